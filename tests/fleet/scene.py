"""A fleet over scripted engines, with a clock that a test moves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from adaptive_gamma.config.settings import HealthSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.fleet import Fleet
from tests.support.scripted_engine import ScriptedEngine

__all__ = ["Clock", "Prior", "a_fleet", "page", "watched"]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Prior:
    """Acceptance 0.8 for structured requests and 0.5 for all others, at any gamma."""

    default_class = "unsure"

    def class_for(self, name: str) -> str:
        return name

    def expected_tokens(self, request_class: str, gamma: int) -> float:
        rate = 0.8 if request_class == "structured" else 0.5
        return float(sum(rate**position for position in range(gamma + 1)))

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float:
        """10 ms, and 0.1 ms for each token verified."""
        return 0.010 + 0.0001 * batch * (gamma + 1)

    def prefill_seconds(self, tokens: int) -> float:
        return 0.0001 * tokens

    def largest_gamma(self, batch: int) -> int | None:
        return max(128 // batch - 1, 0)


def a_fleet(
    *replicas: ReplicaSettings,
    clock: Clock | None = None,
    timeout_s: float = 5.0,
    health: dict[str, Any] | None = None,
    **more: Any,
) -> Fleet:
    return Fleet(
        replicas,
        scrape=ScrapeSettings(timeout_s=timeout_s),
        health=HealthSettings(timeout_s=timeout_s, **(health or {})),
        clock=clock or Clock(),
        **more,
    )


@contextlib.asynccontextmanager
async def watched(
    server: ScriptedEngine, clock: Clock | None = None, *, policy: Prior | None = None, **settings: Any
) -> AsyncIterator[Fleet]:
    fleet = a_fleet(ReplicaSettings(name="r", url=server.url, **settings), clock=clock, policy=policy)
    try:
        yield fleet
    finally:
        await fleet.stop()


def page(
    *,
    running: int = 0,
    drafts: float = 0,
    accepted: tuple[float, ...] = (),
    generated: float = 0,
    draft_tokens: float | None = None,
    awake: bool = True,
) -> str:
    """A speculative vLLM's page."""
    labels = 'engine="0",model_name="m"'
    lines = [
        f"vllm:cache_config_info{{{labels}}} 1.0",
        f"vllm:num_requests_running{{{labels}}} {running}.0",
        f"vllm:num_requests_waiting{{{labels}}} 0.0",
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.5",
        f"vllm:generation_tokens_total{{{labels}}} {generated}",
        f'vllm:engine_sleep_state{{{labels},sleep_state="awake"}} {float(awake)}',
    ]
    if accepted:
        tokens = drafts * len(accepted) if draft_tokens is None else draft_tokens
        lines += [
            f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}",
            f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {tokens}",
            f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {sum(accepted)}",
            *(
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{position}"}} {value}'
                for position, value in enumerate(accepted)
            ),
        ]
    return "\n".join(lines) + "\n"
