"""The exposition page as numbers to add up."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MetricsPage"]

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$", re.M)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


class MetricsPage:
    """One answer of ``/metrics``."""

    def __init__(self, text: str) -> None:
        self.samples = [
            (name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _SAMPLE.findall(text)
        ]

    def values(self, metric: str, **labels: str) -> Iterator[float]:
        """The values of a metric's series that have the labels given (``class_`` for ``class``)."""
        wanted = {name.rstrip("_"): value for name, value in labels.items()}
        for name, own, value in self.samples:
            if name == f"adaptive_gamma_{metric}" and wanted.items() <= own.items():
                yield value

    def total(self, metric: str, **labels: str) -> float:
        """Their sum; 0 where there is none."""
        return sum(self.values(metric, **labels))

    def requests(self, outcome: str | None = None, **labels: str) -> float:
        """``adaptive_gamma_requests_total``."""
        return self.total("requests_total", **({"outcome": outcome} if outcome else {}), **labels)

    @property
    def in_flight(self) -> list[float]:
        """``adaptive_gamma_in_flight`` of each replica."""
        return list(self.values("in_flight"))
