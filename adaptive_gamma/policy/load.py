"""Reading policy files: by path, or by the name of one that ships with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaptive_gamma.errors import PolicyError, nearest
from adaptive_gamma.policy.table import Policy
from adaptive_gamma.policy.yaml_file import SHIPPED_FOLDERS, read_yaml_mapping

__all__ = ["find_policy", "load_policy", "read_policy_file", "shipped_policies"]


def shipped_policies() -> dict[str, Path]:
    """The policies that come with the package, by bare name; the library's files lie in a folder below and are none."""
    for folder in SHIPPED_FOLDERS:
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
    return read_yaml_mapping(path, "policy file", "schema, name, inputs and table")
