"""Whether a request's output must follow a grammar or schema, in any of the words the APIs have for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FORMATS", "FORMAT_HOLDERS", "FREE_TYPES", "GRAMMARS", "STRUCTURE_FIELDS", "asks_for_structure"]

GRAMMARS = (
    "structured_outputs",  # vLLM
    "guided_json", "guided_regex", "guided_choice", "guided_grammar",  # vLLM before 0.12
    "grammar", "json_schema",  # llama.cpp
    "regex", "ebnf", "structural_tag",  # SGLang
)  # fmt: skip
"""Members that ask for it by being there and not empty."""
FORMATS = ("response_format", "output_format")
"""Members that ask for it by their ``type``."""
FORMAT_HOLDERS = ("text", "output_config")
"""Members that hold such a one under ``format``."""
STRUCTURE_FIELDS = frozenset({*GRAMMARS, *FORMATS, *FORMAT_HOLDERS, "tool_choice"})
"""A request with none of these asks for none."""

FREE_TYPES = ("text", "auto", "none")


def asks_for_structure(fields: Mapping[str, Any]) -> bool:
    """Whether the engine will constrain the output: a schema, a grammar, or a call of a tool that it must make."""
    if any(fields.get(name) for name in GRAMMARS):
        return True
    if any(_constrains(fields.get(name)) for name in FORMATS):
        return True
    holders = [fields.get(name) for name in FORMAT_HOLDERS]
    if any(_constrains(holder.get("format")) for holder in holders if isinstance(holder, dict)):
        return True
    choice = fields.get("tool_choice")
    return choice == "required" or _constrains(choice)


def _constrains(value: object) -> bool:
    """Whether an object with a ``type`` names one that leaves the output no freedom."""
    return isinstance(value, dict) and bool(value) and value.get("type") not in FREE_TYPES
