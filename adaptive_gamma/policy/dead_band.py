"""Edges of a schedule that stand on the usual load: there gamma keeps flipping."""

from __future__ import annotations

__all__ = ["DEAD_BAND", "edge_on_load"]

DEAD_BAND = 0.1
"""Share of the median load on either side of it, in which an edge is reported or avoided."""


def edge_on_load(first: int, median_load: float) -> bool:
    """Whether the edge below batch ``first`` lies within 10 % (and at least one sequence) of the median load.

    A schedule that changes there changes all the time: measured, 232 tokens/s became 24-157 (vLLM issue #49548).
    """
    return abs(first - 0.5 - median_load) <= max(DEAD_BAND * median_load, 1.0)
