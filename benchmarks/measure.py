"""CPU time of small and large calls, with medians."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Figure", "per_call_us", "yardstick_us"]

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


def per_call_us(call: Callable[[], object], *, seconds: float = 0.15) -> float:
    """Median over nine repeats of the CPU microseconds of one call."""
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
    return statistics.median(samples) * 1e6


def yardstick_us() -> float:
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
    return per_call_us(lambda: json.loads(body))
