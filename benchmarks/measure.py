"""CPU time of small and large calls, with medians."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Figure", "PerCall", "per_call", "yardstick"]

_REPEATS = 9


@dataclass(frozen=True)
class Figure:
    """One line of the printed table."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    ratio: float | None = None
    """The value over the yardstick's, where both are CPU time."""
    note: str = ""
    least: float | None = None
    """The smallest of the repeats: what the call costs when the machine leaves it alone."""


class PerCall(NamedTuple):
    """CPU microseconds of one call over nine repeats."""

    median_us: float
    least_us: float


def per_call(call: Callable[[], object], *, seconds: float = 0.15) -> PerCall:
    """Time a call: nine repeats of as many calls as fit into ``seconds``."""
    call()
    start = time.process_time()
    call()
    once = max(time.process_time() - start, 1e-7)
    number = max(1, int(seconds / once))
    samples = []
    for _ in range(_REPEATS):
        start = time.process_time()
        for _ in range(number):
            call()
        samples.append((time.process_time() - start) / number)
    return PerCall(statistics.median(samples) * 1e6, min(samples) * 1e6)


def yardstick() -> PerCall:
    """CPU microseconds to ``json.loads`` a 4 kB chat request: what a machine-neutral ratio is taken to."""
    body = json.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": "word " * 40} for _ in range(18)],
            "max_tokens": 128,
            "temperature": 0.7,
            "stream": True,
        }
    )
    return per_call(lambda: json.loads(body))
