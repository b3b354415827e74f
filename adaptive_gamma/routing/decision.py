"""A decision as data: the one object that headers, ``/decisions``, logs, dry run and pages print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from adaptive_gamma.routing.replica import Pool

__all__ = ["Candidate", "Decision", "RequestNeeds"]


class RequestNeeds(NamedTuple):
    """What a request asks of a replica, as far as routing cares."""

    request_class: str
    """``structured``, ``chat``, ``unsure``, or a class of the policy in use."""
    prompt_tokens: int | None = None
    """Estimated prompt length; None when unknown."""
    model: str | None = None
    """The model the client named; None accepts any."""
    parameters: frozenset[str] = frozenset()
    """The sampling parameters present that some replica may refuse, such as ``min_p``."""
    max_output_tokens: int | None = None
    """The most output tokens the client allows; None when it does not say."""
    cached: Mapping[str, int] | None = None
    """Prompt tokens believed to be in the KV cache, by replica; None or empty where nothing is."""
    pinned: str | None = None
    """The replica that stores the response which the request goes on from; None where there is none, or not known."""


class Candidate(NamedTuple):
    """One replica as it was weighed."""

    replica: str
    pool: Pool
    gamma: int | None
    """Draft tokens per step at the load the request would find; None when unknown (it is then priced as plain)."""
    load: int
    """Requests already there, the new one not counted."""
    cost_s: float
    """Marginal cost: the request's own time per output token plus the delay it puts on the others, in seconds."""
    tpot_s: float
    """Predicted time per output token of this request there, in seconds."""
    cached_tokens: int = 0
    """Prompt tokens whose prefill the cost leaves out; 0 also where the replica is too loaded for that to count."""


class Decision(NamedTuple):
    """Where a request goes, why, and what else was weighed."""

    request_class: str
    replica: str
    pool: Pool
    gamma: int | None
    reason: str
    """A short stable word; the list is in ``adaptive_gamma.routing.decide``."""
    chosen: Candidate
    runners_up: tuple[Candidate, ...] = ()
    """The next best, cheapest first; a handful, not the whole fleet."""
    excluded: tuple[tuple[str, str], ...] = ()
    """(replica, why) for each replica that could not be considered."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, the same wherever a decision is printed."""
        return {
            "class": self.request_class,
            "replica": self.replica,
            "pool": self.pool,
            "gamma": self.gamma,
            "reason": self.reason,
            "chosen": self.chosen._asdict(),
            "runners_up": [candidate._asdict() for candidate in self.runners_up],
            "excluded": [{"replica": name, "why": why} for name, why in self.excluded],
        }
