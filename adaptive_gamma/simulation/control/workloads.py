"""Requests whose rate swings, as the hours of a day make it swing."""

from __future__ import annotations

import math

import numpy as np

from adaptive_gamma.simulation.replay.trace import Trace

__all__ = ["swinging"]


def swinging(trace: Trace, period_s: float, depth: float) -> Trace:
    """The same requests at 1 - depth cos(2 pi t / period) of their rate: quiet first, busy half a period later.

    Gaps are stretched and pressed, so the order and the burstiness stay, and whole periods last as long as before.

    Args:
        trace: requests at a rate that is about steady.
        period_s: from one quiet time to the next, in seconds.
        depth: share of the mean rate by which it falls and rises, 0 <= depth < 1.
    """
    if not 0 <= depth < 1:
        raise ValueError(f"depth must be within 0..1, below 1, not {depth}")
    if not period_s > 0:
        raise ValueError(f"period_s must be > 0, not {period_s}")
    # A request at t moves to where the swinging rate has brought as many as the steady one by t.
    end = trace.span_s + period_s
    clock = np.linspace(0.0, end, max(int(end), 1) * 10 + 1)
    turn = 2.0 * math.pi / period_s
    brought = clock - depth * np.sin(turn * clock) / turn
    moved = np.interp(np.asarray(trace.arrival_s), brought, clock)
    return Trace(f"swinging:{trace.source}", moved.tolist(), trace.prompt_tokens, trace.output_tokens)
