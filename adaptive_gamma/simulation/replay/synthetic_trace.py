"""Synthetic traces with the shape of the two public Azure traces of 2023, for a clone that does not have the files.

Only published summary statistics go in: number of requests, span, coefficient of variation of the gaps between
arrivals, and the 50th, 95th and 99th percentile of the prompt and output lengths. Lengths are lognormal through the
median and the 95th percentile and are cut at the longest length named; prompt and output lengths are independent
(their correlation in the public files is within 0.12 of zero). Gaps are exponential where their coefficient of
variation is near 1, and else hyperexponential with balanced means: two exponential phases, each carrying half of the
time, which gives the code trace its bursts between minutes of silence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TextIO

import numpy as np
import numpy.typing as npt

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.simulation.replay.trace import COLUMNS, Trace

__all__ = ["PREFIX", "SHAPES", "LengthShape", "TraceShape", "synthetic_trace", "write_trace"]

PREFIX = "synthetic:"
_NORMAL_95 = 1.6448536269514722
"""95th percentile of the standard normal distribution."""
_EXPONENTIAL_BELOW = 1.2
"""Gaps with a coefficient of variation below this are drawn as a Poisson process."""


@dataclass(frozen=True, slots=True)
class LengthShape:
    """A lognormal length in tokens, given by its median and 95th percentile, cut to shortest..longest."""

    median: int
    p95: int
    shortest: int
    longest: int

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        sigma = math.log(self.p95 / self.median) / _NORMAL_95
        values = np.rint(self.median * np.exp(sigma * rng.standard_normal(count)))
        cut: npt.NDArray[np.float64] = np.clip(values, self.shortest, self.longest)
        return cut.astype(np.int64)


@dataclass(frozen=True, slots=True)
class TraceShape:
    """The summary statistics a trace is drawn from."""

    requests: int
    span_s: float
    gap_variation: float
    """Standard deviation over mean of the gaps between arrivals."""
    prompt: LengthShape
    output: LengthShape

    def arrivals(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Arrival times in seconds, the first at 0."""
        mean = self.span_s / (self.requests - 1)
        gaps = rng.standard_exponential(count)
        choice = rng.random(count)
        gaps[0] = 0.0
        if self.gap_variation < _EXPONENTIAL_BELOW:
            return np.cumsum(gaps * mean)
        square = self.gap_variation**2
        short = 0.5 * (1.0 + math.sqrt((square - 1.0) / (square + 1.0)))
        means = np.where(choice < short, mean / (2.0 * short), mean / (2.0 * (1.0 - short)))
        return np.cumsum(gaps * means)


SHAPES = {
    "conversation": TraceShape(19_366, 3501.7, 1.09, LengthShape(1020, 4083, 2, 4142), LengthShape(129, 451, 7, 1000)),
    "code": TraceShape(8_819, 3435.9, 13.15, LengthShape(1469, 7303, 3, 7437), LengthShape(13, 90, 6, 1899)),
}


def synthetic_trace(name: str, seed: int, count: int | None = None) -> Trace:
    """Draw a trace; the same name, seed and count give the same trace.

    Args:
        name: one of ``SHAPES``.
        seed: of the random generator.
        count: requests to draw; None draws as many as the public trace holds.

    Raises:
        ConfigurationError: no such shape.
    """
    shape = SHAPES.get(name)
    if shape is None:
        raise ConfigurationError(
            f"{PREFIX}{name}", "", f"no such synthetic trace; there are {', '.join(SHAPES)}", nearest(name, SHAPES)
        )
    size = shape.requests if count is None else count
    # Each column has a generator of its own, so that a longer trace begins with the shorter one.
    times, prompts, outputs = (np.random.Generator(np.random.PCG64([seed, i])) for i in range(3))
    arrivals = _arrivals(shape, times, size)
    return Trace(
        f"{PREFIX}{name}",
        arrivals,
        [int(n) for n in shape.prompt.draw(prompts, size)],
        [int(n) for n in shape.output.draw(outputs, size)],
    )


def _arrivals(shape: TraceShape, rng: np.random.Generator, size: int) -> list[float]:
    # Drawn in blocks of the public trace's size for the same reason; 100 ns is what the file format resolves.
    drawn: list[float] = []
    start = 0.0
    while len(drawn) < size:
        block = shape.arrivals(rng, shape.requests)
        drawn += [round(start + float(t), 7) for t in block[: size - len(drawn)]]
        start += float(block[-1])
    return drawn


def write_trace(trace: Trace, file: TextIO, start: datetime) -> None:
    """Write a trace in the public files' format; ``start`` is the time of the first request."""
    file.write(",".join(COLUMNS) + "\n")
    for arrival, prompt, output in zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True):
        ticks = round(arrival * 10_000_000)
        whole = start + timedelta(seconds=ticks // 10_000_000)
        file.write(f"{whole:%Y-%m-%d %H:%M:%S}.{ticks % 10_000_000:07d},{prompt},{output}\n")
