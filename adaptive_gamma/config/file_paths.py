"""Files that a configuration names: a relative path in it is one from the folder that the configuration lies in.

A process is started from anywhere; what a file says must not depend on that. Variables and options are given by whoever
starts the process, so that their paths stay relative to its working directory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from adaptive_gamma.config.section import NamedFile

__all__ = ["beside"]

_NO_FOLDERS = ("/dev", "/proc")
"""What is piped in lies in no folder of anybody's."""


@dataclass(frozen=True, slots=True)
class _Place:
    folder: Path
    policies: Collection[str]


def beside(path: Path, values: Mapping[str, Any], model: type[BaseModel], policies: Collection[str]) -> dict[str, Any]:
    """The values of a configuration file, with the relative paths in them as seen from the working directory.

    Args:
        path: the file. What comes out of a pipe has no folder, and its paths stay as they are.
        values: what is in it, not checked yet; what is no text where a path is expected stays as it is.
        model: of the whole.
        policies: values that name something else than a file where both may stand, unless there is such a file.
    """
    if not path.is_file() or any(path.is_relative_to(folder) for folder in _NO_FOLDERS):
        return dict(values)
    return _mapped(values, model, _Place(path.parent, policies))


def _mapped(values: Mapping[str, Any], model: type[BaseModel], place: _Place) -> dict[str, Any]:
    found = {}
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in values.items():
        field = fields.get(key)
        found[key] = value if field is None else _placed(value, field.annotation, field.metadata, place)
    return found


def _placed(value: Any, annotation: Any, metadata: Collection[object], place: _Place) -> Any:
    """One value, in whichever of the forms of its annotation it is in."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _placed(value, inner, more, place)
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            value = _placed(value, each, metadata, place)
        return value
    if isinstance(value, Mapping) and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _mapped(value, annotation, place)
    if isinstance(value, list) and get_origin(annotation) is list:
        return [_placed(each, get_args(annotation)[0], (), place) for each in value]
    file = next((each for each in metadata if isinstance(each, NamedFile)), None)
    if file is None or not isinstance(value, str) or not value or value in file.no_files or os.path.isabs(value):
        return value
    joined = str(place.folder / value)
    if file.or_policy and not os.path.isfile(joined) and _is_name(value, place.policies):
        return value
    return joined


def _is_name(value: str, policies: Collection[str]) -> bool:
    """Whether it looks like the name of a policy, perhaps a wrong one, and not like a file."""
    bare = value.removesuffix(".yaml").removesuffix(".yml")
    return bare in policies or (bare == value and "/" not in value)
