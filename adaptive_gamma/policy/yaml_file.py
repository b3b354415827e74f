"""YAML files of this project: safe, bounded, and with errors that name the file and the line."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from adaptive_gamma.errors import PolicyError

__all__ = ["SHIPPED_FOLDERS", "read_yaml_mapping"]

_PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED_FOLDERS = (_PACKAGE / "_policies", _PACKAGE.parent / "policies")
"""Where shipped files lie: inside the package in a wheel, beside it in a source checkout."""
_MOST_BYTES = 16 * 1024 * 1024


def read_yaml_mapping(path: Path, what: str, keys: str) -> dict[str, Any]:
    """The file's mapping, not checked yet; ``what`` it should be and its ``keys`` are for the errors.

    Raises PolicyError where it cannot be read or is no YAML mapping.
    """
    source = str(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise PolicyError(source, "", f"is larger than {_MOST_BYTES} bytes; not a {what}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyError(source, "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PolicyError(source, "", "is not UTF-8 text") from error
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise PolicyError(source, "", f"{where}{problem}") from error
    except RecursionError as error:
        raise PolicyError(source, "", "is nested too deeply") from error
    if not isinstance(data, Mapping):
        raise PolicyError(source, "", f"expected a mapping with the keys {keys}")
    return dict(data)


class _Loader(yaml.SafeLoader):
    """Safe YAML with two differences: ``3.35e12`` is a number as in YAML 1.2, and a key may stand only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)
