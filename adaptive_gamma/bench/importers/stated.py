"""The speculation that settings written into a file state: metadata, overrides of a sweep, a server's own arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.raw import Stated

__all__ = ["DATASET_KEYS", "flat_settings", "stated_speculation", "stated_text"]

MOST_GAMMA = 64
GAMMA_KEYS = (
    "num_speculative_tokens",
    "speculative_num_steps",
    "num_spec_tokens",
    "spec_tokens",
    "max_draft_len",
    "gamma",
)
CONFIG_KEYS = ("speculative_config",)
DRAFTER_KEYS = ("drafter", "speculative_method", "spec_method", "method", "speculative_algorithm")
VERSION_KEYS = ("engine_version", "vllm_version", "sglang_version", "server_version")
CLASS_KEYS = ("request_class", "class", "traffic_class")
DATASET_KEYS = ("dataset_name", "dataset")
ARM_KEYS = ("arm", "variant", "config_name")
KEYS = {
    "drafter": DRAFTER_KEYS,
    "engine_version": VERSION_KEYS,
    "request_class": CLASS_KEYS,
    "dataset": DATASET_KEYS,
    "arm": ARM_KEYS,
}
NO_DRAFTER = {"", "none", "null", "off", "false", "plain", "disabled", "no"}


def flat_settings(values: Mapping[str, Any], depth: int = 4) -> Iterator[tuple[str, str, Any]]:
    """All settings as (last part of the name in one spelling, dotted name as written, value).

    ``--speculative-config`` with JSON text in it, ``speculative_config.num_speculative_tokens`` and the nested object
    all come out alike.
    """
    for key, value in values.items():
        if not isinstance(key, str):
            continue
        last = key.rsplit(".", 1)[-1].lstrip("-").replace("-", "_").lower()
        inner = _object(value) if last in CONFIG_KEYS else value if isinstance(value, dict) else None
        yield last, key, value
        if isinstance(inner, dict) and depth > 1:
            for name, dotted, item in flat_settings(inner, depth - 1):
                yield name, f"{key}.{dotted}", item


def stated_speculation(fields: Fields) -> Stated | None:
    """The gamma that the settings of an object state, or that they state there is no drafter; None where none does.

    Raises SweepError where a key that names gamma holds something else, or two such keys differ.
    """
    gamma: int | None = None
    speculative: bool | None = None
    where = ""
    for last, dotted, value in flat_settings(fields.values):
        if last in CONFIG_KEYS and _says_none(value):
            found: tuple[int, bool | None] = (0, False)
        elif last in GAMMA_KEYS and value is not None:
            number = _gamma(fields, dotted, value)
            # Engines refuse a drafter of 0 tokens, so 0 says that nothing is drafted and leaves open by what engine.
            found = (number, True if number > 0 else None)
        else:
            continue
        if gamma is not None and gamma != found[0]:
            raise fields.error(dotted, f"says gamma {found[0]}, but {where} says {gamma}")
        gamma, where = found[0], where or fields.inside + dotted
        speculative = found[1] if speculative is None else speculative
    return None if gamma is None else Stated(gamma, speculative, where)


def stated_text(fields: Fields, what: str) -> str | None:
    """The first text under one of the keys that name ``what``: drafter, engine_version, request_class, dataset, arm."""
    found = {last: value for last, _, value in flat_settings(fields.values) if isinstance(value, str) and value.strip()}
    text = next((found[key] for key in KEYS[what] if key in found), None)
    return Fields({what: text}, fields.source, fields.inside).text(what)


def _gamma(fields: Fields, key: str, value: Any) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:9])
    number = Fields({key: value}, fields.source, fields.inside).required_count(key)
    if number > MOST_GAMMA:
        raise fields.error(key, f"is no gamma: {number} is more than {MOST_GAMMA}")
    return number


def _says_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in NO_DRAFTER)


def _object(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value
