"""Reading policy files: by path, or by the name of one that ships with the package."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from adaptive_gamma.errors import PolicyError, nearest
from adaptive_gamma.policy.table import Policy

__all__ = ["find_policy", "load_policy", "read_policy_file", "shipped_policies"]

_PACKAGE = Path(__file__).resolve().parents[1]
# In a wheel the files lie inside the package, in a source checkout beside it.
_SHIPPED = (_PACKAGE / "_policies", _PACKAGE.parent / "policies")
_MOST_BYTES = 16 * 1024 * 1024


def shipped_policies() -> dict[str, Path]:
    """The policies that come with the package, by bare name."""
    for folder in _SHIPPED:
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return {}


def find_policy(name_or_path: str | Path) -> Path:
    """The file that a path or a bare name (``article-h100-27b``) means; a file at that path goes first.

    Raises PolicyError with the nearest name where there is no such file.
    """
    path, text = Path(name_or_path), str(name_or_path)
    try:
        is_file, is_directory = path.is_file(), path.is_dir()
    except OSError as error:
        raise PolicyError(text, "", f"cannot be read: {error.strerror}") from error
    if is_file:
        return path
    shipped = shipped_policies()
    bare = text.removesuffix(".yaml").removesuffix(".yml")
    if bare in shipped:
        return shipped[bare]
    if is_directory:
        raise PolicyError(str(path), "", "is a directory; expected a policy file")
    listing = ", ".join(shipped) or "none"
    raise PolicyError(
        text, "", f"no such file, and no policy of that name (shipped: {listing})", nearest(path.stem, shipped)
    )


def load_policy(name_or_path: str | Path) -> Policy:
    """Read, check and build a policy.

    Raises PolicyError that names the file, the key, what was expected and the nearest right key.
    """
    path = find_policy(name_or_path)
    return Policy.from_mapping(read_policy_file(path), str(path))


def read_policy_file(path: Path) -> dict[str, Any]:
    """The file's mapping, not checked yet. Raises PolicyError where it cannot be read or is no YAML mapping."""
    source = str(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise PolicyError(source, "", f"is larger than {_MOST_BYTES} bytes; not a policy file")
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
        raise PolicyError(source, "", "expected a mapping with the keys schema, name, inputs and table")
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
