"""What a soak engine says of itself: health, models, metrics, and what it has open."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

__all__ = ["GAMMA", "MODEL", "STATE_PATH", "EngineCounters", "page"]

MODEL = "soak-model"
STATE_PATH = "/soak/state"
GAMMA = 4
"""Draft tokens per step of the engines that speculate."""

_ACCEPTANCE = 0.7


@dataclass
class EngineCounters:
    """What the metrics page counts; a new process starts from 0, as engines do."""

    speculative: bool
    prompt_tokens: int = 0
    generation_tokens: int = 0
    drafts: int = 0
    accepted: list[int] = field(default_factory=lambda: [0] * GAMMA)

    def step(self, rng: random.Random) -> None:
        """One engine step of one sequence."""
        self.generation_tokens += 1
        if not self.speculative:
            return
        self.drafts += 1
        for position in range(GAMMA):
            if rng.random() > _ACCEPTANCE:
                break
            self.accepted[position] += 1
            self.generation_tokens += 1

    def exposition(self, running: int) -> bytes:
        """The page, in the names an engine gives them."""
        label = f'{{engine="0",model_name="{MODEL}"}}'
        lines = [
            f"vllm:num_requests_running{label} {running}",
            f"vllm:num_requests_waiting{label} 0",
            f"vllm:kv_cache_usage_perc{label} {min(running / 512, 1.0)}",
            f"vllm:prompt_tokens_total{label} {self.prompt_tokens}",
            f"vllm:generation_tokens_total{label} {self.generation_tokens}",
        ]
        if self.speculative:
            lines += [
                f"vllm:spec_decode_num_drafts_total{label} {self.drafts}",
                f"vllm:spec_decode_num_draft_tokens_total{label} {self.drafts * GAMMA}",
                f"vllm:spec_decode_num_accepted_tokens_total{label} {sum(self.accepted)}",
            ]
            for position, count in enumerate(self.accepted):
                where = f'{{engine="0",model_name="{MODEL}",position="{position}"}}'
                lines.append(f"vllm:spec_decode_num_accepted_tokens_per_pos_total{where} {count}")
        return "\n".join([*lines, ""]).encode()


def page(
    target: str, counters: EngineCounters, open_requests: list[tuple[str, float]], connections: dict[str, int]
) -> tuple[str, bytes] | None:
    """Content type and body of a page that is no request for the engine's work; None where it is one.

    ``open_requests`` are (request id, seconds open) of what is being worked on, ``connections`` counts by what they
    have brought.
    """
    if target == "/health":
        return "text/plain", b""
    if target == "/metrics":
        return "text/plain; version=0.0.4", counters.exposition(len(open_requests))
    if target == "/v1/models":
        return "application/json", json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
    if target == STATE_PATH:
        return "application/json", json.dumps({"open": open_requests, "connections": connections}).encode()
    return None
