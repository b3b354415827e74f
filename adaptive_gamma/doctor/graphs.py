"""In what form a server's decode steps run, as far as its log and its info page tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from adaptive_gamma.doctor.case import Replica
from adaptive_gamma.doctor.evidence import Downgrade, Fact, ServerStart, Version
from adaptive_gamma.doctor.finding import Evidence

__all__ = ["GRAPH_ORDER", "GraphState", "Graphs", "graphs_apply", "graphs_of"]

GraphState: TypeAlias = Literal["full", "piecewise", "none"]

GRAPH_ORDER: Mapping[str, int] = MappingProxyType({"none": 0, "piecewise": 1, "full": 2})
"""From the slowest to the fastest."""

_MODES: Version = (0, 10, 1)
"""Before, pieces were all that the V1 engine captured."""
_BARS: Version = (0, 9, 0)
"""Before, the V1 engine drew no progress bar while it captured."""
_FULL = frozenset({"FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"})
_NO_GRAPHS_ON = frozenset({"cpu", "hpu", "neuron", "npu", "tpu", "xpu"})


@dataclass(frozen=True, slots=True)
class Graphs:
    """How decode steps run, and what says so."""

    state: GraphState
    evidence: tuple[Evidence, ...]
    why: Literal["eager", "downgraded", "only_encoder", "asked", "not_captured", "unknown"] = "unknown"
    downgrade: Downgrade | None = None
    best_of_version: bool = False
    """No more can be had from this version."""


def graphs_apply(replica: Replica) -> bool:
    """Whether the device has graphs at all; where it is not known, yes."""
    return replica.device is None or replica.device.value.lower() not in _NO_GRAPHS_ON


def graphs_of(replica: Replica) -> Graphs | None:
    """None where nothing proves it."""
    if not graphs_apply(replica):
        return None
    if replica.start is not None and (
        found := _by_log(replica.start, replica.version.value if replica.version else None)
    ):
        return found
    if replica.server is not None and (mode := replica.server.told.graph_mode) is not None:
        eager = replica.server.told.enforce_eager
        if mode.value == "NONE":
            asked_eager = eager is not None and eager.value
            return Graphs("none", (mode.evidence,), "eager" if asked_eager else "unknown")
        if mode.value == "PIECEWISE":
            return Graphs("piecewise", (mode.evidence,))
        # Full graphs there are what was asked for: the page does not know of what the workers made of it.
    return None


def _by_log(start: ServerStart, version: Version | None) -> Graphs | None:
    downgrade = start.downgrades[-1] if start.downgrades else None
    said = (downgrade.evidence,) if downgrade is not None else ()
    if start.capture_skipped is not None:
        why, cause = _why_none(start, downgrade)
        return Graphs("none", (*cause, start.capture_skipped), why, downgrade)
    eager = start.eager or _true(start.told.enforce_eager) or _true(start.asked.enforce_eager)
    if eager is not None:
        return Graphs("none", (eager,), "eager")
    modes = {capture.mode: capture.evidence for capture in start.captures if capture.part == "target"}
    full = next((evidence for mode, evidence in modes.items() if mode in _FULL), None)
    if full is not None:
        return Graphs("full", (full,))
    old = version is not None and version < _MODES
    done = start.capture_finished is not None or start.ready is not None
    if "PIECEWISE" in modes and (done or said):
        return Graphs("piecewise", (*said, modes["PIECEWISE"]), "downgraded" if said else "unknown", downgrade, old)
    if downgrade is not None and downgrade.after in ("NONE", "PIECEWISE"):
        state: GraphState = "none" if downgrade.after == "NONE" else "piecewise"
        finished = (start.capture_finished,) if start.capture_finished is not None else ()
        return Graphs(state, (*said, *finished), "downgraded", downgrade)
    if (asked := start.told.graph_mode) is not None and asked.value == "NONE":
        return Graphs("none", (asked.evidence,), "asked")
    if start.capture_finished is not None:
        return _finished(start, start.capture_finished, version, old)
    if start.ready is not None and start.told.generation is not None:
        missing = Evidence(
            "line", start.ready.where, "the server is up, and no line before says that graphs were captured"
        )
        return Graphs("none", (missing,), "not_captured")
    return None


def _finished(start: ServerStart, finished: Evidence, version: Version | None, old: bool) -> Graphs | None:
    """Something was captured, and no bar says what."""
    encoder = next((capture.evidence for capture in start.captures if capture.part == "encoder"), None)
    bars = start.progress_kept and version is not None and version >= _BARS
    if encoder is not None and bars:
        return Graphs("none", (encoder, finished), "only_encoder")
    if old and encoder is None:
        return Graphs("piecewise", (finished,), best_of_version=True)
    pieces = start.captured_sizes.get("PIECEWISE")
    if pieces is not None and not _FULL & start.captured_sizes.keys():
        return Graphs("piecewise", (pieces.evidence, finished))
    return None


def _why_none(
    start: ServerStart, downgrade: Downgrade | None
) -> tuple[Literal["downgraded", "asked", "unknown"], tuple[Evidence, ...]]:
    if downgrade is not None and downgrade.after == "NONE":
        return "downgraded", (downgrade.evidence,)
    asked = start.asked.graph_mode or start.told.graph_mode
    if asked is not None and asked.value == "NONE":
        return "asked", (asked.evidence,)
    return "unknown", ()


def _true(fact: Fact[bool] | None) -> Evidence | None:
    return fact.evidence if fact is not None and fact.value else None
