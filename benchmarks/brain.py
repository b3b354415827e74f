"""The decision, the classifier and the policy build."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.routing import ReplicaState, RequestNeeds, classify_prompt, decide

from .measure import Figure, PerCall, per_call

__all__ = ["brain_figures"]

_POLICIES = Path(__file__).resolve().parents[1] / "policies"
_CODE = 'Please fix this function:\n```python\ndef head(xs):\n    return xs[0] + 1\n```\nIt raises:\n{"error": 1}\n'
_PROSE = "Write a polite letter to my neighbour about the garden wall and the old apple tree behind it. "


def _fleet(size: int) -> list[ReplicaState]:
    rng = random.Random(size)
    return [
        ReplicaState(
            name=f"replica-{i}",
            speculative=i % 2 == 0,
            gamma=4 if i % 2 == 0 else 0,
            running=rng.randrange(40),
            waiting=0,
            kv_usage=0.3,
            in_flight=3,
            in_flight_at_scrape=2,
            fresh_until=1e9,
            models=frozenset({"m"}),
            acceptance_ratio=1.02 if i % 2 == 0 else None,
        )
        for i in range(size)
    ]


def _time_decide(policy: Policy, size: int) -> PerCall:
    states, needs = _fleet(size), RequestNeeds("chat", 900, "m")
    return per_call(lambda: decide(needs, states, policy, now=1.0, tie_break=0.4))


def brain_figures(yardstick: PerCall) -> Iterator[Figure]:
    def figure(name: str, taken: PerCall, goal: float) -> Figure:
        ratio = taken.median_us / yardstick.median_us
        return Figure(name, taken.median_us, "us", goal, ratio, least=taken.least_us)

    policy = load_policy(_POLICIES / "h100-llama3-8b-eagle3.yaml")
    for size, goal in ((16, 30.0), (256, 200.0)):
        yield figure(f"decide, {size} replicas", _time_decide(policy, size), goal)
    for name, text in (("code", _CODE), ("prose", _PROSE)):
        prompt = (text * 60)[:4096]
        yield figure(f"classify, 4 kB of {name}", per_call(partial(classify_prompt, prompt)), 100.0)
