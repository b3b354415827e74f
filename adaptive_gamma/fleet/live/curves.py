"""tau(n) of a fleet: seconds of a step and tokens from it, by batch, for each gamma in force.

A replica's own curve is step seconds times its ``step_time_ratio``, over 1 + (tokens - 1) times its
``acceptance_ratio``; both ratios are in its row, 1 where they are None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from adaptive_gamma.fleet.live.rows import setting_key
from adaptive_gamma.routing import GammaSchedule, GammaSetting, PolicyPrices

if TYPE_CHECKING:
    from adaptive_gamma.routing import ReplicaState

__all__ = ["curves_page", "sampled_batches"]

_POINTS = 33
_MOST_SETTINGS = 256
"""Schedules differ from replica to replica where each is set by itself; a page of more lines shows nothing."""


def sampled_batches(largest: int, points: int = _POINTS) -> list[int]:
    """Batches from 1 to ``largest``, all of the first few and then evenly by ratio."""
    if largest <= points:
        return list(range(1, largest + 1))
    spread = {round(largest ** (i / (points - 1))) for i in range(points)}
    return sorted(spread | {1, 2, 3, 4, 6, 8, largest})


def curves_page(states: Iterable[ReplicaState], policy: PolicyPrices, max_batch: int) -> dict[str, Any]:
    """The curves that the replicas need, by ``setting_key``; ``plain`` is always among them.

    ``tokens`` holds, for each class, one number where gamma is the same at every batch, else one for each batch.
    """
    settings: dict[str, tuple[bool, GammaSetting | None]] = {"plain": (False, None)}
    for state in states:
        key = setting_key(state.speculative, state.gamma)
        if key is not None and len(settings) < _MOST_SETTINGS:
            settings.setdefault(key, (bool(state.speculative), state.gamma))
    batches = sampled_batches(max_batch)
    return {
        "batches": batches,
        "curves": {
            key: _curve(speculative, gamma, policy, batches)
            for key, (speculative, gamma) in sorted(settings.items(), key=lambda item: item[0])
        },
    }


def _curve(speculative: bool, gamma: GammaSetting | None, policy: PolicyPrices, batches: list[int]) -> dict[str, Any]:
    if not speculative or gamma is None:
        seconds = [policy.step_seconds(batch, 0, None, False) for batch in batches]
        return {"gamma": None, "step_s": _rounded(seconds), "tokens": dict.fromkeys(policy.classes, 1.0)}
    if isinstance(gamma, GammaSchedule):
        at = [gamma.at(batch) for batch in batches]
        return {
            "gamma": at,
            "step_s": _rounded(policy.step_seconds(batch, g) for batch, g in zip(batches, at, strict=True)),
            "tokens": {name: _rounded(policy.expected_tokens(name, g) for g in at) for name in policy.classes},
        }
    return {
        "gamma": gamma,
        "step_s": _rounded(policy.step_seconds(batch, gamma) for batch in batches),
        "tokens": {name: round(policy.expected_tokens(name, gamma), 6) for name in policy.classes},
    }


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]
