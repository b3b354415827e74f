"""YAML files of this project: safe, bounded, and with errors that name the file and the line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.yaml_text import parse_yaml, read_text

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
        text = read_text(path)
    except OSError as error:
        raise PolicyError(source, "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PolicyError(source, "", "is not UTF-8 text") from error
    data = parse_yaml(text, source, error=PolicyError)
    if not isinstance(data, Mapping):
        raise PolicyError(source, "", f"expected a mapping with the keys {keys}")
    return dict(data)
