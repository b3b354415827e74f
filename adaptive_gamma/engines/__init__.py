"""One dialect a file: the only places where an engine's metric names occur."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from adaptive_gamma.engines._bounds import LARGEST_GAMMA
from adaptive_gamma.engines.llamacpp import LlamaCppDialect
from adaptive_gamma.engines.reading import (
    Dialect,
    EngineReading,
    LatencySum,
    RequestAcceptance,
    SpeculationCounters,
    StreamAsk,
)
from adaptive_gamma.engines.sglang import SglangDialect
from adaptive_gamma.engines.vllm import VllmDialect
from adaptive_gamma.errors import ConfigurationError, nearest

__all__ = [
    "DIALECTS",
    "LARGEST_GAMMA",
    "Dialect",
    "EngineReading",
    "LatencySum",
    "LlamaCppDialect",
    "RequestAcceptance",
    "SglangDialect",
    "SpeculationCounters",
    "StreamAsk",
    "VllmDialect",
    "dialect_for",
]

_ALL: tuple[Dialect, ...] = (VllmDialect(), LlamaCppDialect(), SglangDialect())
DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in _ALL})
"""Every engine that can be read, by the name the configuration uses."""


def dialect_for(name: str) -> Dialect:
    """The dialect of the engine called ``name``.

    Raises:
        ConfigurationError: no dialect has this name; the message gives the nearest one.
    """
    try:
        return DIALECTS[name]
    except KeyError:
        raise ConfigurationError(
            "configuration",
            "engine",
            f"unknown engine {name!r}, expected one of {', '.join(sorted(DIALECTS))}",
            nearest(name, DIALECTS),
        ) from None
