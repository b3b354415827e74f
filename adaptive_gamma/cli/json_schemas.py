"""JSON schemas of the files people write, for their editors: from the models that read them, with what these say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from adaptive_gamma.cli.attribute_words import attribute_words
from adaptive_gamma.config import Settings
from adaptive_gamma.policy import PolicyDocument

__all__ = ["CONFIG", "POLICY", "schema_text"]

CONFIG: tuple[type[BaseModel], str] = (Settings, "Configuration of adaptive-gamma")
POLICY: tuple[type[BaseModel], str] = (PolicyDocument, "Policy of adaptive-gamma, adaptive-gamma/policy/v1")


def schema_text(of: tuple[type[BaseModel], str]) -> str:
    """The schema (2020-12) as it stands in a file."""
    model, title = of
    schema = model.model_json_schema()
    models = {each.__name__: each for each in _subclasses(BaseModel) if each.__module__.startswith("adaptive_gamma.")}
    _describe(schema, model)
    for name, section in schema.get("$defs", {}).items():
        if name in models:
            _describe(section, models[name])
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _subclasses(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in base.__subclasses__():
        yield each
        yield from _subclasses(each)


def _describe(section: dict[str, Any], model: type[BaseModel]) -> None:
    """Add what stands below each field in the source."""
    properties = section.get("properties", {})
    for name, text in attribute_words(model).items():
        field = model.model_fields.get(name)
        key = (field.alias or name) if field is not None else name
        if key in properties:
            properties[key].setdefault("description", " ".join(text.split()))
