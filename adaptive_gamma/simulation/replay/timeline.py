"""What the replicas of a run did over time, in memory that does not grow with the run.

Time is cut into a fixed number of equal bins. When a run goes on beyond the last of them, neighbours are added up and
each bin covers twice the time: so it is however long requests take after the last one came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adaptive_gamma.simulation.replay.accounts import StepRecord

__all__ = ["ReplicaHistory", "Timeline"]

BINS = 240


class ReplicaHistory(NamedTuple):
    """One replica, bin by bin."""

    busy_s: list[float]
    """Seconds in which it ran a step."""
    sequence_s: list[float]
    """Seconds of steps, each counted for every decoding sequence in it."""
    gamma_s: list[float]
    """The same times the gamma of the step."""


class Timeline:
    """Takes in the steps of replicas, and gives means over bins of time.

    Args:
        start_s: where the first bin starts, in the run's seconds.
        span_s: a first guess at the time to be covered.
        bins: how many; even.
    """

    def __init__(self, start_s: float, span_s: float, bins: int = BINS) -> None:
        if bins < 2 or bins % 2:
            raise ValueError("bins must be even and at least 2")
        self.start_s = start_s
        self.bin_s = max(span_s / bins, 1e-6)
        """Seconds a bin covers now."""
        self._bins = bins
        self._replicas: dict[str, ReplicaHistory] = {}
        self._end = start_s

    def recorder(self, name: str) -> StepRecord:
        """Takes in the steps of the replica of that name."""
        history = self._replicas[name] = ReplicaHistory([0.0] * self._bins, [0.0] * self._bins, [0.0] * self._bins)
        busy, sequences, gammas = history

        def record(began: float, ended: float, batch: int, gamma: int) -> None:
            while ended > self.start_s + self._bins * self.bin_s:
                self._double()
            self._end = max(self._end, ended)
            width, at = self.bin_s, began
            index = min(max(int((began - self.start_s) / width), 0), self._bins - 1)
            while True:
                edge = self.start_s + (index + 1) * width
                last = ended <= edge or index + 1 == self._bins
                part = (ended if last else edge) - at
                if part > 0:
                    busy[index] += part
                    sequences[index] += part * batch
                    gammas[index] += part * batch * gamma
                if last:
                    return
                at, index = max(edge, at), index + 1

        return record

    @property
    def times_s(self) -> list[float]:
        """The middle of each bin up to the last in which something was done, in seconds since ``start_s``."""
        return [(i + 0.5) * self.bin_s for i in range(self._used())]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the replicas."""
        return tuple(self._replicas)

    def decoding(self, names: Sequence[str] | None = None) -> list[float]:
        """Mean number of sequences being decoded in each bin, over some replicas together or all."""
        chosen = self._chosen(names)
        return [sum(h.sequence_s[i] for h in chosen) / self.bin_s for i in range(self._used())]

    def mean_gamma(self, names: Sequence[str] | None = None) -> list[float | None]:
        """Mean gamma that a decoding sequence had in each bin; None where nothing was decoded."""
        chosen, means = self._chosen(names), []
        for i in range(self._used()):
            sequences = sum(h.sequence_s[i] for h in chosen)
            means.append(sum(h.gamma_s[i] for h in chosen) / sequences if sequences > 0 else None)
        return means

    def busy_share(self, names: Sequence[str] | None = None) -> list[float]:
        """Share of each bin in which a replica ran steps, mean over replicas."""
        chosen = self._chosen(names)
        return [sum(h.busy_s[i] for h in chosen) / (self.bin_s * len(chosen)) for i in range(self._used())]

    def _used(self) -> int:
        return min(self._bins, max(1, -int(-(self._end - self.start_s) // self.bin_s)))

    def _chosen(self, names: Sequence[str] | None) -> list[ReplicaHistory]:
        return list(self._replicas.values()) if names is None else [self._replicas[name] for name in names]

    def _double(self) -> None:
        self.bin_s *= 2.0
        half = self._bins // 2
        for history in self._replicas.values():
            for values in history:
                for i in range(half):
                    values[i] = values[2 * i] + values[2 * i + 1]
                values[half:] = [0.0] * half
