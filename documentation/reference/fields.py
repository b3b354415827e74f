"""The keys of a pydantic model: what may stand there, what does by default, in which unit, and what it means."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from adaptive_gamma.cli.attribute_words import attribute_words
from documentation.reference.markdown import prose

__all__ = ["Key", "keys_of", "models_in"]

_UNITS = (
    ("_bytes_per_s", "bytes/s"),
    ("_flops_per_s", "FLOP/s"),
    ("_bytes_per_token", "bytes/token"),
    ("flops_per_token", "FLOP/token"),
    ("_seconds_per_token", "s/token"),
    ("seconds_per_token", "s/token"),
    ("seconds_per_kv_token", "s/token"),
    ("_seconds", "s"),
    ("seconds", "s"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
    ("tokens", "tokens"),
    ("drafter_context", "tokens"),
    ("context_buckets", "tokens"),
    ("contexts", "tokens"),
    ("capture_sizes", "tokens"),
)


@dataclass(frozen=True)
class Key:
    """One key of a section."""

    name: str
    kind: str
    default: str
    unit: str
    meaning: str
    section: type[BaseModel] | None
    """The model of what stands below it, where that is a section of its own."""
    many: bool
    """Whether it holds several of these."""


def keys_of(model: type[BaseModel]) -> Iterator[Key]:
    """The keys in the order in which they are defined."""
    words = attribute_words(model)
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        below = models_in(field.annotation)
        yield Key(
            name=name,
            kind=_kind(field.annotation, field.metadata),
            default=_default(field, bool(below)),
            unit=next((unit for ending, unit in _UNITS if name.endswith(ending)), ""),
            meaning=prose(words.get(attribute, "")),
            section=below[0] if len(below) == 1 else None,
            many=_holds_many(field.annotation),
        )


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names, each once."""
    if inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        return [annotation]
    found: list[type[BaseModel]] = []
    for inner in get_args(annotation):
        found += [model for model in models_in(inner) if model not in found]
    return found


def _holds_many(annotation: Any) -> bool:
    if get_origin(annotation) in (list, dict, tuple):
        return True
    return any(_holds_many(inner) for inner in get_args(annotation) if inner is not NoneType)


def _default(field: FieldInfo, is_section: bool) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return ""
    if is_section and value == ():
        return "required, unless `discovery` is there"
    return "empty" if value == "" else f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "..."
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _kind(annotation: Any, metadata: list[Any]) -> str:
    """In a person's words: what may stand there, and between which bounds."""
    words = _words(annotation)
    bounds = _bounds(metadata, "characters" if annotation is str else "of them")
    return f"{words}{',' if bounds.startswith(('at ', 'exactly ')) else ''} {bounds}" if bounds else words


def _words(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        return _kind(inner, metadata)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        parts = [_words(part) for part in get_args(annotation) if part is not NoneType]
        null = [] if NoneType not in get_args(annotation) else ["`null`"]
        return " or ".join([*dict.fromkeys(parts), *null])
    if origin in (list, tuple):
        arguments = [part for part in get_args(annotation) if part is not ...]
        if origin is tuple:
            return "[" + ", ".join(_words(part) for part in arguments) + "]"
        return f"list of {_words(arguments[0])}"
    if origin is dict:
        key, value = get_args(annotation)
        return f"mapping of {_words(key)} to {_words(value)}"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return _title(annotation)
    return {
        str: "text", float: "number", int: "whole number", bool: "`true`, `false`", SecretStr: "text (secret)",
        Any: "see the meaning", object: "see the meaning",
    }.get(annotation, str(annotation))  # fmt: skip


def _title(model: type[BaseModel]) -> str:
    """The kind of a section, by the value that tells it from its neighbours, or simply ``section``."""
    kind = model.model_fields.get("kind")
    if kind is not None and get_origin(kind.annotation) is Literal and len(get_args(kind.annotation)) == 1:
        return f"`{get_args(kind.annotation)[0]}` section"
    return "section"


def _bounds(metadata: list[Any], counted: str) -> str:
    least = most = fewest = longest = None
    for each in _flat(metadata):
        if isinstance(each, annotated_types.Ge):
            least = f"from {_number(each.ge)}"
        elif isinstance(each, annotated_types.Gt):
            least = f"above {_number(each.gt)}"
        elif isinstance(each, annotated_types.Le):
            most = f"to {_number(each.le)}"
        elif isinstance(each, annotated_types.Lt):
            most = f"below {_number(each.lt)}"
        elif isinstance(each, annotated_types.MinLen) and each.min_length > 1:
            fewest = each.min_length
        elif isinstance(each, annotated_types.MaxLen):
            longest = each.max_length
    if fewest is not None and fewest == longest:
        sizes = [f"exactly {fewest} {counted}"]
    else:
        sizes = [f"at {word} {n:,} {counted}" for word, n in (("least", fewest), ("most", longest)) if n is not None]
    return ", ".join([*filter(None, [" ".join(filter(None, (least, most)))]), *sizes])


def _flat(metadata: list[Any]) -> Iterator[Any]:
    for each in metadata:
        if isinstance(each, FieldInfo):
            yield from _flat(each.metadata)
        elif isinstance(each, annotated_types.GroupedMetadata):
            yield from each
        else:
            yield each


def _number(value: Any) -> str:
    number = float(value)
    if number.is_integer() and abs(number) < 1e9:
        return f"{int(number):,}"
    return re.sub(r"e\+0*", "e", f"{number:.6g}")
