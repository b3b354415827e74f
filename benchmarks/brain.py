"""The decision, the classifier and what is remembered of prompts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.routing import AffinityIndex, PriceBook, ReplicaState, RequestNeeds, classify_prompt, decide

from .measure import Figure, PerCall, per_call

__all__ = ["brain_figures"]

_POLICIES = Path(__file__).resolve().parents[1] / "policies"
_CODE = 'Please fix this function:\n```python\ndef head(xs):\n    return xs[0] + 1\n```\nIt raises:\n{"error": 1}\n'
_PROSE = "Write a polite letter to my neighbour about the garden wall and the old apple tree behind it. "
_MIX = (
    "The quick brown fox went over to the hill and looked at the river, which was wide and grey. Nobody there had seen "
    "it before, and the class of the next day was a test in patience; tell me what they found, step by step. "
)
"""Words of both kinds and nothing that settles it early: every word is counted."""


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


def _time_decide(policy: Policy, size: int, cached: dict[str, int] | None = None) -> PerCall:
    states, needs, prices = _fleet(size), RequestNeeds("chat", 900, "m", cached=cached), PriceBook()
    return per_call(lambda: decide(needs, states, policy, now=1.0, tie_break=0.4, prices=prices))


def _time_affinity(prompt: str) -> PerCall:
    index = AffinityIndex(8192, 600.0)
    for i in range(10_000):
        index.record(index.look_up(f"session {i}", "", 1.0), f"replica-{i % 16}", 900, 1.0)

    def request() -> None:
        index.record(index.look_up("session 9999", prompt, 1.0), "replica-3", 900, 1.0)

    return per_call(request)


def brain_figures(yardstick: PerCall) -> Iterator[Figure]:
    def figure(name: str, taken: PerCall, goal: float) -> Figure:
        ratio = taken.median_us / yardstick.median_us
        return Figure(name, taken.median_us, "us", goal, ratio, least=taken.least_us)

    policy = load_policy(_POLICIES / "h100-llama3-8b-eagle3.yaml")
    for size, goal in ((2, 10.0), (16, 20.0), (256, 200.0)):
        yield figure(f"decide, {size} replicas", _time_decide(policy, size), goal)
    yield figure("decide, 16 replicas, prompt cached on one", _time_decide(policy, 16, {"replica-4": 800}), 30.0)
    for size, goal in ((1, 12.0), (4, 25.0), (8, 40.0)):
        for name, text in (("code", _CODE), ("prose", _PROSE), ("a mix", _MIX)):
            prompt = (text * 120)[: size * 1024]
            yield figure(f"classify, {size} kB of {name}", per_call(partial(classify_prompt, prompt)), goal)
    yield figure("affinity, a session and 4 kB of prompt", _time_affinity(_PROSE * 44), 15.0)
