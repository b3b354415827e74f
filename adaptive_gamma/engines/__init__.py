"""One dialect a file: the only places where an engine's metric names occur."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from adaptive_gamma.engines._bounds import LARGEST_GAMMA
from adaptive_gamma.engines.actuator import (
    ActuatorSite,
    ActuatorState,
    Drafting,
    EngineCalls,
    GammaActuator,
    GammaRanges,
    GammaSet,
)
from adaptive_gamma.engines.llamacpp import LlamaCppDialect
from adaptive_gamma.engines.no_actuator import NoActuator
from adaptive_gamma.engines.per_request import PerRequestActuator
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
from adaptive_gamma.engines.vllm_schedule import VllmScheduleActuator
from adaptive_gamma.errors import ConfigurationError, nearest

__all__ = [
    "ACTUATORS",
    "DIALECTS",
    "LARGEST_GAMMA",
    "ActuatorSite",
    "ActuatorState",
    "Dialect",
    "Drafting",
    "EngineCalls",
    "EngineReading",
    "GammaActuator",
    "GammaRanges",
    "GammaSet",
    "LatencySum",
    "LlamaCppDialect",
    "NoActuator",
    "PerRequestActuator",
    "RequestAcceptance",
    "SglangDialect",
    "SpeculationCounters",
    "StreamAsk",
    "VllmDialect",
    "VllmScheduleActuator",
    "actuator_for",
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


ACTUATORS: Mapping[str, Callable[[ActuatorSite], GammaActuator]] = MappingProxyType(
    {
        "none": lambda site: NoActuator(),
        "per_request": lambda site: PerRequestActuator(site.replica),
        "vllm_schedule": VllmScheduleActuator.at,
    }
)
"""Every way to set an engine's gamma, by the name the setting ``set_gamma`` uses."""


def actuator_for(name: str, site: ActuatorSite) -> GammaActuator:
    """A new actuator for one replica.

    Raises:
        ConfigurationError: there is none of this name; the message gives the nearest one.
    """
    try:
        make = ACTUATORS[name]
    except KeyError:
        raise ConfigurationError(
            "configuration",
            "set_gamma",
            f"unknown actuator {name!r}, expected one of {', '.join(sorted(ACTUATORS))}",
            nearest(name, ACTUATORS),
        ) from None
    return make(site)
