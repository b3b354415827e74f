"""What a simulated engine is started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from adaptive_gamma.routing import GammaSchedule, classify_prompt
from adaptive_gamma.simulation.engine.acceptance import DEFAULT_ACCEPTANCE
from adaptive_gamma.simulation.engine.step_clock import LinearStepClock, StepClock
from adaptive_gamma.simulation.engine.steps import CoreLimits

__all__ = ["DEFAULT_STEP", "EngineSettings", "class_by_prompt"]

DEFAULT_STEP = LinearStepClock(base_s=0.020, token_s=0.000_11, draft_pass_s=0.002_4)
"""About a 27B dense model in bf16 on one H100 by the roofline (20 ms, 0.11 ms a token), a drafter pass at 12 %."""


def class_by_prompt(prompt: str) -> str:
    """The class that the router's own look at the prompt gives."""
    return classify_prompt(prompt).name


@dataclass(frozen=True)
class EngineSettings:
    """A simulated engine. Time is in simulated seconds: ``time_scale`` of them pass in one real second.

    Raises:
        ValueError: values that cannot go together.
    """

    model: str = "simulated"
    gamma: int | GammaSchedule | None = None
    """Draft tokens per step or their schedule by batch; None is a plain engine."""
    step_clock: StepClock = DEFAULT_STEP
    acceptance: Mapping[str, Sequence[float]] = field(default_factory=lambda: dict(DEFAULT_ACCEPTANCE))
    """Conditional acceptance by class and position; the last rate holds beyond."""
    classify: Callable[[str], str] = class_by_prompt
    """Gives the class of a prompt."""
    limits: CoreLimits = field(default_factory=CoreLimits)
    engines: int = 1
    """Data-parallel ranks, each a batch of its own and a value of the label ``engine``."""
    time_scale: float = 1.0
    seed: int = 0
    answer_tokens: int = 256
    """Mean length of an answer that ends by itself (without ``ignore_eos``); lengths lie within half and one and a half
    of it."""
    api_key: str | None = None
    """Bearer token that paths under ``/v1`` ask for."""
    created_series: bool = True
    """Print ``_created`` series, as one API server process does."""
    statistics: bool = True
    """Print engine series at all (vLLM's ``--disable-log-stats`` turns them off)."""
    per_request_metrics: bool = False
    """Put timings into responses (vLLM's ``--enable-per-request-metrics``)."""
    acceptance_report: Literal["none", "summary", "detailed"] = "none"
    """Put acceptance into responses: totals and a histogram, or each step too (vLLM's
    ``--per-request-spec-decode-metrics``)."""

    def __post_init__(self) -> None:
        if self.engines < 1:
            raise ValueError("engines must be at least 1")
        if not self.time_scale > 0:
            raise ValueError("time_scale must be above 0")
        if self.answer_tokens < 2:
            raise ValueError("answer_tokens must be at least 2")
        if self.engines > 1 and isinstance(self.gamma, GammaSchedule):
            raise ValueError("a schedule cannot be used with several data-parallel engines (vLLM does not allow it)")
