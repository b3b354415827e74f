"""Every key of the configuration of ``serve``, from the settings themselves."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from adaptive_gamma.config import Settings
from documentation.reference.fields import Key, keys_of
from documentation.reference.markdown import page, prose, table

__all__ = ["all_keys", "configuration_page"]

_HEADS = ("key", "what", "default", "unit", "meaning")


def all_keys() -> Iterator[str]:
    """The dotted path of every key, ``[]`` where there are several."""
    yield from (path for path, _ in _walk(Settings, ""))


def _walk(model: type[BaseModel], above: str) -> Iterator[tuple[str, Key]]:
    for key in keys_of(model):
        path = f"{above}{key.name}"
        yield path, key
        if key.section is not None:
            yield from _walk(key.section, f"{path}{'[]' if key.many else ''}.")


def configuration_page() -> str:
    """The page."""
    prefix = Settings.model_config["env_prefix"]
    top = [key for key in keys_of(Settings) if key.section is None]
    parts = [
        "The YAML file that `adaptive-gamma serve --config FILE` reads; `envoy` and `picker` read the same "
        "one, and say "
        "on their own pages ([Envoy](../envoy.md), [picker](../picker.md)) which keys mean nothing to them. "
        "A wrong key, "
        "type or range stops the start and names the nearest right key.",
        "Every key also comes from the environment, which wins over the file: "
        f"`{prefix}LISTEN`, `{prefix}SCRAPE__INTERVAL_S` with two underscores for a step down, lists as JSON. "
        f"Lengths of "
        "time are seconds.",
        "## Top level",
        table(_HEADS, [_row(key.name, key) for key in top]),
    ]
    for key in keys_of(Settings):
        if key.section is not None:
            parts += _section(key, key.section, "", 2)
    return page("Configuration", *parts)


def _section(key: Key, model: type[BaseModel], above: str, level: int) -> Iterator[str]:
    path = f"{above}{key.name}"
    yield f"{'#' * level} {path}"
    said = prose(model.__doc__ or "") if model.__doc__ and model.__doc__ != BaseModel.__doc__ else ""
    words = [said] if said else []
    if key.meaning and key.meaning != said:
        words.append(key.meaning)
    if key.many:
        words.append("A list; each of it has these keys.")
    if key.default == "`null`":
        words.append("Not there by default.")
    if key.default.startswith("required"):
        words.append(f"{key.default[0].upper()}{key.default[1:]}.")
    if words:
        yield " ".join(words)
    inner = f"{path}{'[]' if key.many else ''}."
    plain = [each for each in keys_of(model) if each.section is None]
    if plain:
        yield table(_HEADS, [_row(each.name, each) for each in plain])
    for each in keys_of(model):
        if each.section is not None:
            yield from _section(each, each.section, inner, level + 1)


def _row(name: str, key: Key) -> tuple[str, ...]:
    return f"`{name}`", key.kind, key.default, key.unit, key.meaning
