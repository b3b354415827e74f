"""One dialect a file: the only places where an engine's metric names occur."""

from adaptive_gamma.engines.reading import Dialect, EngineReading, LatencySum, SpeculationCounters

__all__ = ["Dialect", "EngineReading", "LatencySum", "SpeculationCounters"]
