"""Observations with known truths."""

from __future__ import annotations

import random
from typing import Any

from adaptive_gamma.observe import Observation, Place

START = 1_700_000_000.0


def place(name: str = "plain-0", pool: str = "plain", *, tpot_s: float = 0.02, **more: Any) -> Place:
    values = {"gamma": 4 if pool == "speculative" else 0, "load": 3, "cost_s": 1.5 * tpot_s, "prefill_s": 0.0, **more}
    return Place(name, pool, tpot_s=tpot_s, **values)


PLAIN = place()
SPECULATIVE = place("spec-0", "speculative", tpot_s=0.01)


def observation(
    *, at: float = 0.0, sent: Place = PLAIN, decided: Place = SPECULATIVE, tokens: int | None = 101, **more: Any
) -> Observation:
    """A stream that took what was predicted, after 100 ms to its first byte."""
    known = 101 if tokens is None else tokens
    values: dict[str, Any] = {
        "request_id": "id",
        "path": "/v1/chat/completions",
        "request_class": "structured",
        "reason": "low_load",
        "prompt_tokens": 10,
        "expected_tokens": 200,
        "outcome": "ok",
        "status": 200,
        "stream": True,
        "first_byte_s": 0.1,
        "total_s": 0.1 + (known - 1) * sent.tpot_s,
        **more,
    }
    return Observation(time_s=START + at, sent=sent, decided=decided, output_tokens=tokens, **values)


def hour(
    seed: int, *, per_minute: int = 10, plain_error: float = 1.0, speculative_error: float = 1.0
) -> list[Observation]:
    """An hour of requests spread over two pools, all decided for the speculative one, whose luck a minute shares.

    The policy says that the plain pool takes 20 ms a token and the speculative one 10 ms; they really take that times
    their errors.
    """
    draw = random.Random(seed)
    found = []
    for minute in range(60):
        luck = draw.lognormvariate(0.0, 0.2)
        for n in range(per_minute):
            sent, error = (PLAIN, plain_error) if draw.random() < 0.5 else (SPECULATIVE, speculative_error)
            steps = draw.randrange(50, 400)
            total = 0.1 + steps * sent.tpot_s * error * luck * draw.lognormvariate(0.0, 0.1)
            found.append(observation(at=minute * 60 + n, sent=sent, tokens=steps + 1, total_s=total))
    return found
