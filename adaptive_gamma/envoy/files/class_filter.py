"""The Lua filter that names a request's cluster, with the tables that the in-process classifier goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files.names import CLUSTER_HEADER, DEMAND_SAMPLING, DEMAND_STRUCTURE
from adaptive_gamma.policy import CLASS_ALIASES
from adaptive_gamma.routing import canonical_class, score_rules, vocabulary
from adaptive_gamma.routing.endpoints import EndpointTable, Handling
from adaptive_gamma.routing.prompt_members import ITEMS_AT_EACH_END, PROMPT_MEMBERS, SAMPLING_MEMBERS
from adaptive_gamma.routing.structured_output import FORMAT_HOLDERS, FORMATS, FREE_TYPES, GRAMMARS, STRUCTURE_FIELDS

__all__ = ["LOOKED_AT", "class_filter"]

LOOKED_AT = 1_048_576
"""Bytes of a body that the filter looks at, from its start."""
_RAW_END = 12 * score_rules.WINDOW
"""Bytes of JSON in which that many characters have room however they are written."""

_PARTS = ("json_text.lua", "prompt_score.lua", "class_filter.lua")
"""One chunk of Lua in three files."""
_NUMBERS = (
    "WINDOW", "LINES", "FENCE_SCORE", "MOST_CODE_LINES", "DENSE", "DENSER", "LANGUAGE_SCORE", "MOST_FROM_LANGUAGES",
    "NOUN_SCORE", "MOST_FROM_NOUNS", "VERB_SCORE", "MATH_SCORE", "MOST_FROM_MATH", "MOST_CHAT_WORDS", "PLAIN",
    "PLAIN_SCORE", "STRUCTURED_FROM", "CHAT_FROM",
)  # fmt: skip


def class_filter(settings: Settings) -> str:
    """The filter's source: it depends on the configuration alone, not on policy, models or load."""
    classify = settings.classify
    values: dict[str, object] = {
        "PATHS": _paths(settings),
        "HEADER": classify.header,
        "ALIASES": dict(CLASS_ALIASES),
        "RULES": [
            {"path": rule.path, "model": rule.model, "class": canonical_class(rule.request_class)}
            for rule in classify.rules
        ],
        "DEFAULT": canonical_class(classify.default),
        "CLUSTER_HEADER": CLUSTER_HEADER,
        "DEMAND_SAMPLING": DEMAND_SAMPLING,
        "DEMAND_STRUCTURE": DEMAND_STRUCTURE,
        "KEEPS_STRUCTURE_APART": settings.capability.structured_output == "plain",
    }
    return "".join(f"local {name} = {_lua(value)}\n" for name, value in values.items()) + _fixed()


@cache
def _fixed() -> str:
    """What is the same for all configurations."""
    values: dict[str, object] = {name: getattr(score_rules, name) for name in _NUMBERS}
    wanted = {"model", *PROMPT_MEMBERS, *SAMPLING_MEMBERS, *STRUCTURE_FIELDS}
    values |= {
        "LOOKED_AT": LOOKED_AT,
        "RAW_END": _RAW_END,
        "ITEMS_AT_EACH_END": ITEMS_AT_EACH_END,
        "PROMPT_MEMBERS": list(PROMPT_MEMBERS),
        "WANTED": dict.fromkeys(sorted(wanted), True),
        "GRAMMARS": list(GRAMMARS),
        "FORMATS": list(FORMATS),
        "FORMAT_HOLDERS": list(FORMAT_HOLDERS),
        "FREE_TYPES": dict.fromkeys(FREE_TYPES, True),
        "WORDS": _words(),
        "WORD": b"[%w" + _class_of(score_rules.WORD_SIGNS).encode("ascii") + b"\x80-\xff]+",
        "NOT_SYMBOLS": "[^" + _class_of(score_rules.SYMBOLS) + "]",
        "STARTS": _starts(),
        "STARTS_OF_PROSE": [start.decode("ascii") for start in vocabulary.LINE_WORDS_THAT_ARE_PROSE],
        "CODE_LINE_ENDS": dict.fromkeys(score_rules.CODE_LINE_ENDS.decode("ascii"), True),
    }
    parts = [resources.files(__package__).joinpath(name).read_text(encoding="utf-8") for name in _PARTS]
    return "".join(f"local {name} = {_lua(value)}\n" for name, value in values.items()) + "\n".join(parts)


def _paths(settings: Settings) -> dict[str, object]:
    """What the filter does at a path: look at the prompt, at the body, or at neither."""
    return {
        path: "prompt" if endpoint.json and endpoint.generates else "json" if endpoint.json else "opaque"
        for path, endpoint in EndpointTable(settings.allow_paths).fixed()
        if endpoint.handling is Handling.DECIDE
    }


def _words() -> dict[str, object]:
    """Each word with how it counts: language, noun, verb, maths, chat."""
    sets = (
        vocabulary.LANGUAGES, vocabulary.CODE_NOUNS, vocabulary.CODE_VERBS, vocabulary.MATH_WORDS,
        vocabulary.CHAT_WORDS,
    )  # fmt: skip
    return {
        word.decode("ascii"): [int(word in each) for each in sets] for word in sorted(frozenset[bytes]().union(*sets))
    }


def _starts() -> dict[str, object]:
    """Line beginnings by their first character."""
    found: dict[str, list[str]] = {}
    for start in vocabulary.LINE_STARTS:
        text = start.decode("ascii")
        found.setdefault(text[0], []).append(text)
    return dict(found)


def _class_of(characters: Iterable[str]) -> str:
    """Characters as they stand in a Lua character class."""
    return "".join(f"%{character}" for character in characters)


def _lua(value: object) -> str:
    """A value as Lua source."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | bytes):
        return _quoted(value)
    if isinstance(value, Mapping):
        pairs = (f"[{_quoted(key)}]={_lua(each)}" for key, each in value.items() if each is not None)
        return "{" + ",".join(pairs) + "}"
    assert isinstance(value, list)
    return "{" + ",".join(map(_lua, value)) + "}"


def _quoted(text: str | bytes) -> str:
    raw = text.encode("utf-8") if isinstance(text, str) else text
    return '"' + "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:03d}" for c in raw) + '"'
