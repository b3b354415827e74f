"""What is run: traces, held loads, the choice of the margin, and the facts of the closed loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from adaptive_gamma.simulation.replay import SHAPES

__all__ = ["PARTS", "Plan", "TraceCase", "TraceSource", "Unit", "full_plan", "quick_plan", "trace_file"]

ROOT = Path(__file__).resolve().parents[2]
PARTS = 3
"""Units that the contestants of one trace and seed are dealt out to."""
_SEEDS = (1, 2, 3)
_HELD_S = 240.0

Unit: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A public trace, or where that is not at hand a synthetic one of its statistics."""

    name: str
    """``conv`` or ``code``, as in the public file's name."""
    request_class: str
    """Class of all its requests."""

    @property
    def shape(self) -> str:
        """The synthetic trace's name."""
        return {"conv": "conversation"}.get(self.name, self.name)

    @property
    def file(self) -> Path | None:
        """The public file; None where it is not at hand."""
        return trace_file(self.name)


@dataclass(frozen=True, slots=True)
class TraceCase:
    """One trace to replay, with each of its seeds."""

    key: str
    title: str
    text: str
    sources: tuple[TraceSource, ...] = ()
    """None: the swinging trace, both classes."""
    scale: float = 1.0
    seeds: tuple[int, ...] = (1,)
    duration_s: float | None = None
    truth: tuple[float, float] | None = None
    """What acceptance of every class is, first position and plateau; None: what the policy file says."""
    family: str | None = None
    """Drafter family that the policy is made for; None: that of its file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that goes onto the page."""

    traces: tuple[TraceCase, ...]
    loads: tuple[int, ...]
    """Held loads, sequences a replica."""
    held_s: float
    held_seeds: tuple[int, ...]
    tuning: tuple[tuple[int, float], ...]
    """(seed, factor on the rate) of the swinging traces on which the margin is looked at."""
    tuning_s: float
    fact_seeds: tuple[int, ...]
    edge_s: float

    def units(self) -> list[Unit]:
        """The work, longest first."""
        units: list[Unit] = [
            ("trace", case, seed, part) for case in self.traces for seed in case.seeds for part in range(PARTS)
        ]
        units += [("held", load, seed, self.held_s) for load in reversed(self.loads) for seed in self.held_seeds]
        units += [("margin", seed, scale, self.tuning_s) for seed, scale in self.tuning]
        units += [("fall", seed, set_gamma) for seed in self.fact_seeds for set_gamma in (False, True)]
        units += [(kind, seed, self.edge_s) for seed in self.fact_seeds for kind in ("gamma edge", "pool edge")]
        return [*units, *(("recovery", seed) for seed in self.fact_seeds)]


_SWING = (
    "two synthetic conversation traces, structured and chat, together 11.1 requests/s on average; the rate swings"
    " between 0.2 and 1.8 of that once in 20 minutes, 20 minutes long"
)


def full_plan() -> Plan:
    """What ``make control`` runs."""
    swing = [
        TraceCase("swing", "Load-swinging trace", _SWING, seeds=_SEEDS, duration_s=1200.0),
        TraceCase(
            "swing-other-drafter",
            "Load-swinging trace, another drafter than the file's",
            "the same; the policy file believes an EAGLE-3 drafter, but acceptance is 0.64 at the first position and"
            " 0.65 at the others for every class, as measured of EAGLE-1 drafters: nothing in the file says so",
            duration_s=1200.0,
            truth=(0.64, 0.65),
        ),
        TraceCase(
            "swing-ngram",
            "Load-swinging trace, n-gram drafter",
            "the same requests on the same machines with an n-gram drafter, whose drafts cost nearly nothing and are"
            " seldom accepted: under load chat is better off without, and so gamma 0 and plain replicas come in",
            duration_s=1200.0,
            family="ngram",
        ),
    ]
    azure = [_azure("conv", "chat"), _azure("code", "structured")]
    return Plan(
        (swing[0], *azure, *swing[1:]),
        (1, 4, 16, 64),
        _HELD_S,
        (11, 12, 13),
        ((101, 0.8), (102, 1.1)),
        1200.0,
        _SEEDS,
        300.0,
    )


def quick_plan() -> Plan:
    """Seconds of work, for a look and for tests; its figures mean nothing."""
    return Plan(
        (TraceCase("swing", "Load-swinging trace", "a minute and a half of it", duration_s=90.0),),
        (2,),
        20.0,
        (11,),
        ((101, 0.8),),
        60.0,
        (1,),
        20.0,
    )


def _azure(name: str, request_class: str) -> TraceCase:
    source = TraceSource(name, request_class)
    public = f"AzureLLMInferenceTrace_{name}.csv"
    shape = SHAPES[source.shape]
    rate = f"{(shape.requests - 1) / shape.span_s:.1f} requests/s"
    if source.file is not None:
        title = f"Azure {source.shape} trace"
        text = f"all of the public {public} as class {request_class}, {rate}; seeds draw the luck of its drafts only"
    else:
        title = f"Synthetic {source.shape} trace"
        text = (
            f"the public {public} is not beside the checkout: this is a synthetic trace of as many requests with its"
            f" published statistics, as class {request_class}, {rate}"
        )
    return TraceCase(name, title, text, (source,), seeds=_SEEDS)


@cache
def trace_file(name: str) -> Path | None:
    """A public trace beside the checkout, or a folder above where the checkout is a worktree; None where absent."""
    for folder in list(ROOT.parents)[:2]:
        path = folder / "shared" / "data" / "traces" / f"AzureLLMInferenceTrace_{name}.csv"
        if path.exists():
            return path
    return None
