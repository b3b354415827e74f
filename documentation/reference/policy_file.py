"""The schema of a policy file, from the models that read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from adaptive_gamma.policy.schema import SCHEMA, PolicyDocument
from documentation.reference.fields import Key, keys_of, models_in
from documentation.reference.markdown import page, prose, table

__all__ = ["policy_file_page", "sections"]

_HEADS = ("key", "what", "default", "unit", "meaning")
_EVERYWHERE = {
    "compute_fraction": "The drafter's FLOP for a token, as a share of the target's.",
    "description": "For the reader.",
    "family": "What the drafter is, for the reader.",
    "kind": "Tells this section from its like.",
    "kv_fraction": "The drafter's KV cache, as a share of the target's.",
    "launch_seconds": "Fixed time of a pass.",
    "memory_bytes": "For the reader.",
    "name": "For the reader.",
    "seconds_per_kv_token": "For each token of context that is read.",
    "seconds_per_token": "For each token computed.",
    "source": "Where the numbers come from.",
    "weight_fraction": "The drafter's weights, as a share of the target's.",
}
"""Keys that several sections have, and that mean the same in each."""


def sections() -> list[tuple[str, type[BaseModel]]]:
    """The dotted place of every section and its model, in the order of the file. A model stands once."""
    found: list[tuple[str, type[BaseModel]]] = []
    _collect(PolicyDocument, "", found)
    return found


def _collect(model: type[BaseModel], place: str, found: list[tuple[str, type[BaseModel]]]) -> None:
    if any(model is seen for _, seen in found):
        return
    found.append((place, model))
    for attribute, field in model.model_fields.items():
        for inner in models_in(field.annotation):
            name = f"{place}.{field.alias or attribute}" if place else (field.alias or attribute)
            _collect(inner, f"{name}.*" if _is_mapping(field.annotation) else name, found)


def _is_mapping(annotation: object) -> bool:
    return get_origin(annotation) is dict or any(_is_mapping(inner) for inner in get_args(annotation))


def policy_file_page() -> str:
    """The page."""
    parts = [
        f"YAML with `schema: {SCHEMA}`. `inputs` is what a person writes, or `policy build` fits; `table` follows from "
        "it (`adaptive-gamma policy build --inputs FILE -o FILE` makes it, `policy check` proves it), and "
        "`evidence` is "
        "there in a policy that was built from a sweep. A number in the wrong unit is refused with the right one. "
        "What a policy is for: [Policies](../policies.md).",
    ]
    for place, model in sections():
        parts += _section(place, model)
    return page("Policy file", *parts)


def _section(place: str, model: type[BaseModel]) -> Iterator[str]:
    kind = model.model_fields.get("kind")
    title = place or "Top level"
    if kind is not None and get_origin(kind.annotation) is Literal:
        title += f" of kind {get_args(kind.annotation)[0]}"
    yield f"## {title}"
    if model.__doc__ and model.__doc__ != BaseModel.__doc__:
        yield prose(model.__doc__)
    yield table(_HEADS, [(f"`{key.name}`", key.kind, key.default, key.unit, _meaning(key)) for key in keys_of(model)])


def _meaning(key: Key) -> str:
    return key.meaning or _EVERYWHERE.get(key.name, "")
