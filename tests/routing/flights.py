"""A replica whose gamma a pilot sets, second by second, in a world of a few lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from adaptive_gamma.routing import GammaPilot, GammaPrices, GammaRules

from .prices import LinearPrices

__all__ = ["Change", "Flight", "Prices", "fly", "most_in_a_minute"]


@dataclass
class Prices(LinearPrices):
    """Linear prices with limits: what a pilot asks of a policy."""

    default_class: str = "unsure"
    min_gamma: int = 1
    max_gamma: int = 8
    capture_tokens: int | None = None

    def largest_gamma(self, batch: int) -> int | None:
        return None if self.capture_tokens is None else max(self.capture_tokens // batch - 1, 0)


@dataclass(frozen=True)
class Change:
    at: float
    before: int
    gamma: int
    reason: str
    gain: float
    margin: float


@dataclass
class Flight:
    changes: list[Change] = field(default_factory=list)
    """That came into force."""
    asked: list[float] = field(default_factory=list)
    """When a change was asked for, taken or not."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Looks by reason."""
    gammas: list[int] = field(default_factory=list)
    """In force, by look."""


def fly(
    policy: GammaPrices,
    seconds: int,
    load: Callable[[int], int | None],
    *,
    gamma: int = 4,
    largest: int = 8,
    smallest: int = 0,
    rules: GammaRules | None = None,
    ratio: Callable[[int, int], float | None] = lambda second, gamma: None,
    takes: Callable[[int], bool] = lambda second: True,
    takes_s: int = 0,
    noise: float | None = None,
    slo_tpot_s: float | None = None,
    every_s: int = 1,
) -> Flight:
    """Ask the pilot once every ``every_s`` seconds.

    Args:
        load: sequences in the batch at a second.
        ratio: acceptance seen at a second with a gamma in force, over what the policy expects; not asked at gamma 0.
        takes: whether the engine takes a change asked for at a second.
        takes_s: how long that takes it.
    """
    pilot, flight = GammaPilot("r", rules or GammaRules(), 0.0), Flight()
    due: tuple[int, int, bool, Change] | None = None
    for second in range(0, seconds, every_s):
        if due is not None and second >= due[0]:
            if due[2]:
                gamma = due[1]
                pilot.applied(float(second))
                flight.changes.append(due[3])
            else:
                pilot.failed(float(second))
            due = None
        decision = pilot.decide(
            float(second),
            policy,
            gamma=gamma,
            largest=largest,
            smallest=smallest,
            batch=load(second),
            mix={"chat": 1.0},
            acceptance_ratio=ratio(second, gamma) if gamma else None,
            noise=noise,
            slo_tpot_s=slo_tpot_s,
        )
        flight.reasons[decision.reason] = flight.reasons.get(decision.reason, 0) + 1
        if decision.changes:
            assert due is None, "a second change while one is under way"
            assert decision.wanted is not None
            assert decision.gain is not None
            pilot.asked(decision, float(second))
            flight.asked.append(float(second))
            change = Change(second, gamma, decision.wanted, decision.reason, decision.gain, decision.margin)
            due = (second + takes_s, decision.wanted, takes(second), change)
            if not takes_s:
                if due[2]:
                    gamma = decision.wanted
                    pilot.applied(float(second))
                    flight.changes.append(change)
                else:
                    pilot.failed(float(second))
                due = None
        flight.gammas.append(gamma)
    return flight


def most_in_a_minute(flight: Flight) -> int:
    """The largest number of changes within any 60 seconds."""
    times = [change.at for change in flight.changes]
    return max((sum(start <= at < start + 60 for at in times) for start in times), default=0)
