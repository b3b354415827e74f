"""From a parsed YAML mapping to a checked document, with errors that name the key and the nearest right one."""

from __future__ import annotations

import re
import reprlib
import types
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from adaptive_gamma.errors import PolicyError, nearest
from adaptive_gamma.policy.schema import SCHEMA, PolicyDocument, PolicyInputs

__all__ = ["parse_document", "parse_inputs", "parse_section"]

_Model = TypeVar("_Model", bound=BaseModel)


def parse_document(data: Mapping[str, Any], source: str) -> PolicyDocument:
    """The whole file.

    Raises PolicyError with the dotted key, what was expected, and the nearest right key or value.
    """
    found = data.get("schema")
    if found != SCHEMA:
        problem = "missing" if found is None else f"is {found!r}"
        raise PolicyError(source, "schema", f"{problem}; expected {SCHEMA!r}")
    if "inputs" in data and "table" not in data and not set(data) - set(_keys(PolicyDocument)):
        raise PolicyError(source, "table", "missing; make it with `adaptive-gamma policy build --inputs FILE`")
    return parse_section(PolicyDocument, data, source, "")


def parse_inputs(data: Mapping[str, Any], source: str, key: str = "inputs") -> PolicyInputs:
    """The ``inputs`` part alone; ``key`` is where it stands in ``source``. Raises PolicyError likewise."""
    return parse_section(PolicyInputs, data, source, key)


def parse_section(model: type[_Model], data: Mapping[str, Any], source: str, key: str) -> _Model:
    """One section of a file; ``key`` is where it stands in ``source``. Raises PolicyError likewise."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # A misspelt key gives two errors, "missing" and "not permitted"; the second one tells what to do.
        errors = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        raise _policy_error(model, data, errors[0], source, key) from error


def _policy_error(
    model: type[BaseModel], data: Mapping[str, Any], error: ErrorDetails, source: str, prefix: str
) -> PolicyError:
    path, allowed = _located(model, data, error["loc"])
    key = _dotted(path)
    if prefix:
        key = f"{prefix}.{key}" if key else prefix
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        listing = ", ".join(allowed)
        return PolicyError(source, key, f"unknown key; expected one of {listing}", nearest(str(path[-1]), allowed))
    if kind == "missing":
        return PolicyError(source, key, "missing")
    if kind == "union_tag_not_found":
        return PolicyError(source, f"{key}.kind", "missing")
    if kind in ("union_tag_invalid", "literal_error"):
        listing = str(context.get("expected_tags" if kind == "union_tag_invalid" else "expected", ""))
        found = str(context.get("tag", error["input"]))
        where = f"{key}.kind" if kind == "union_tag_invalid" else key
        choices = re.findall(r"'([^']*)'", listing)
        return PolicyError(source, where, f"expected one of {listing}, not {found!r}", nearest(found, choices))
    message = error["msg"].removeprefix("Value error, ")
    if kind != "value_error":
        message = f"{message[:1].lower()}{message[1:]}, not {reprlib.repr(error['input'])}"
    return PolicyError(source, key, message)


def _located(model: type[BaseModel], data: object, loc: tuple[int | str, ...]) -> tuple[list[int | str], list[str]]:
    """The path as the file has it (pydantic puts union tags in between), and the keys allowed where it ends."""
    path: list[int | str] = []
    annotation: object = model
    allowed: list[str] = []
    for step in loc:
        is_tag = isinstance(data, Mapping) and step not in data and step == data.get("kind")
        if is_tag or step == "[key]":
            continue
        path.append(step)
        section = _section(annotation, data)
        if section is not None:
            fields = _keys(section)
            allowed = list(fields)
            annotation = section.model_fields[fields[str(step)]].annotation if str(step) in fields else None
        else:
            allowed = []
            annotation = _element(annotation)
        data = _item(data, step)
    return path, allowed


def _keys(model: type[BaseModel]) -> dict[str, str]:
    """Key in the file -> field name."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _alternatives(annotation: object) -> list[object]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin is Union or origin is types.UnionType:
        return [a for argument in get_args(annotation) for a in _alternatives(argument)]
    return [annotation]


def _section(annotation: object, data: object) -> type[BaseModel] | None:
    """The section that ``data`` is meant to be; of several kinds, the one it names."""
    sections = [a for a in _alternatives(annotation) if isinstance(a, type) and issubclass(a, BaseModel)]
    if len(sections) > 1 and isinstance(data, Mapping):
        for section in sections:
            if data.get("kind") in get_args(section.model_fields["kind"].annotation):
                return section
    return sections[0] if sections else None


def _element(annotation: object) -> object:
    """What a dict or list holds."""
    for alternative in _alternatives(annotation):
        if get_origin(alternative) in (dict, list):
            return get_args(alternative)[-1]
    return None


def _item(data: object, step: int | str) -> object:
    if isinstance(data, Mapping):
        return data.get(step)
    if isinstance(data, list) and isinstance(step, int) and 0 <= step < len(data):
        return data[step]
    return None


def _dotted(path: list[int | str]) -> str:
    """``inputs.classes.chat.rates[2]``; a whole number after ``table.classes.NAME`` is a key, not an index."""
    text = ""
    for i, step in enumerate(path):
        is_index = isinstance(step, int) and not (path[0] == "table" and i in (3, 5))
        text += f"[{step}]" if is_index else f".{step}" if text else str(step)
    return text
