"""Replicas and decisions in one line each."""

from __future__ import annotations

from typing import Any

from adaptive_gamma.routing import Decision, ReplicaState, RequestNeeds, decide

from .prices import LinearPrices

PRICES = LinearPrices()


def replica(name: str, gamma: Any = 0, load: int | None = 0, **more: Any) -> ReplicaState:
    """A read replica; load None is one whose reading is unknown."""
    fields: dict[str, Any] = {
        "speculative": gamma != 0,
        "gamma": gamma,
        "running": load,
        "waiting": None if load is None else 0,
        "fresh_until": 100.0,
    }
    return ReplicaState(name, **(fields | more))


def choose(states: list[ReplicaState], request_class: str = "chat", *, tie_break: float = 0.0, **more: Any) -> Decision:
    needs = more.pop("needs", RequestNeeds(request_class))
    return decide(needs, states, PRICES, now=50.0, tie_break=tie_break, **more)
