"""A policy as an engine's own start-up schedule: which gamma at which batch, in the form each engine validates."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy.export.engine import EXPORT_SCHEMA, EngineExport, Gate, Runner, ServerOptions, Situation
from adaptive_gamma.policy.export.notes import Note, Severity
from adaptive_gamma.policy.export.prices import Loss
from adaptive_gamma.policy.export.schedule import CellLoss, Schedule, ScheduleOptions, Step, make_schedule
from adaptive_gamma.policy.export.sglang import export_sglang
from adaptive_gamma.policy.export.table_check import TableOptions, TableReport, check_engine_table
from adaptive_gamma.policy.export.tensorrt_llm import export_tensorrt_llm
from adaptive_gamma.policy.export.version import Version, parse_version
from adaptive_gamma.policy.export.vllm import export_vllm
from adaptive_gamma.policy.table import Policy

__all__ = [
    "ENGINES",
    "EXPORT_SCHEMA",
    "CellLoss",
    "EngineExport",
    "Gate",
    "Loss",
    "Note",
    "Runner",
    "Schedule",
    "ScheduleOptions",
    "ServerOptions",
    "Severity",
    "Situation",
    "Step",
    "TableOptions",
    "TableReport",
    "Version",
    "check_engine_table",
    "export_policy",
    "make_schedule",
    "parse_version",
]

_Exporter = Callable[[Policy, ServerOptions, ScheduleOptions], EngineExport]

ENGINES: MappingProxyType[str, _Exporter] = MappingProxyType(
    {"vllm": export_vllm, "sglang": export_sglang, "tensorrt-llm": export_tensorrt_llm}
)
"""By the name of the engine."""


def export_policy(
    policy: Policy, engine: str, server: ServerOptions | None = None, options: ScheduleOptions | None = None
) -> EngineExport:
    """A policy as the engine's own schedule.

    Raises ConfigurationError for an unknown engine or an option out of range, ExportRefused where the engine would
    reject the table or drop it in silence; the message says what to do instead.
    """
    exporter = ENGINES.get(engine)
    if exporter is None:
        raise ConfigurationError(
            "engine", "", f"no export for {engine!r}; there are {', '.join(ENGINES)}", nearest(engine, ENGINES)
        )
    return exporter(policy, server or ServerOptions(), options or ScheduleOptions())
