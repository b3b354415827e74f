"""A decision before it is data: what the request needs to go its way, and the numbers behind it as they were.

Most decisions are read by nobody, so that the candidates are worked out when somebody asks. The numbers they are worked
out from are taken at once, as a replica's state goes on changing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from adaptive_gamma.routing.decision import Candidate, Decision
from adaptive_gamma.routing.pricing import Pricing
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting, Pool

__all__ = ["Numbers", "Verdict", "gamma_shown"]

Numbers: TypeAlias = tuple[str, bool | None, GammaSetting | None, float | None, float | None, int, float, int]
"""Of one replica: name, speculative, gamma, acceptance ratio, step time ratio, load, cost in seconds, cached tokens."""


class Verdict:
    """Where a request goes and why.

    Args:
        pricing: the prices that were used.
        reason: see ``adaptive_gamma.routing.decide``.
        weighed: numbers of the chosen replica, then of the next best, cheapest first.
        excluded: (replica, why) for each that could not be considered.
    """

    __slots__ = ("_excluded", "_pricing", "_weighed", "gamma", "pool", "reason", "replica", "request_class")

    def __init__(
        self, pricing: Pricing, reason: str, weighed: Sequence[Numbers], excluded: Sequence[tuple[str, str]]
    ) -> None:
        name, speculative, setting, _, _, load, _, _ = weighed[0]
        self.request_class = pricing.request_class
        self.replica = name
        self.pool: Pool = "speculative" if speculative else "plain"
        self.gamma = gamma_shown(speculative, setting, load + 1)
        self.reason = reason
        self._pricing = pricing
        self._weighed = weighed
        self._excluded = excluded

    @property
    def next_best(self) -> list[str]:
        """The replicas that were weighed beside the chosen one, cheapest first; a handful."""
        return [numbers[0] for numbers in self._weighed[1:]]

    def decision(self) -> Decision:
        """The decision as data."""
        chosen, *runners_up = (self._candidate(numbers) for numbers in self._weighed)
        return Decision(
            self.request_class,
            self.replica,
            self.pool,
            self.gamma,
            self.reason,
            chosen,
            tuple(runners_up),
            tuple(self._excluded),
        )

    def _candidate(self, numbers: Numbers) -> Candidate:
        name, speculative, setting, acceptance_ratio, step_time_ratio, load, cost, cached = numbers
        gamma = gamma_shown(speculative, setting, load + 1)
        return Candidate(
            name,
            "speculative" if speculative else "plain",
            gamma,
            load,
            cost,
            self._pricing.tpot_at(gamma if speculative else None, load + 1, acceptance_ratio, step_time_ratio),
            cached,
        )


def gamma_shown(speculative: bool | None, setting: GammaSetting | None, batch: int) -> int | None:
    """Draft tokens per step at a batch: 0 on a plain replica, None while it is not known."""
    if not speculative:
        return 0 if speculative is False else None
    return setting.at(batch) if isinstance(setting, GammaSchedule) else setting
