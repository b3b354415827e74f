"""Many simulated engines in one process, and clients that ask a proxy in front of them: what the live page is shown.

``python -m tests.browser.simulated_fleet FOLDER COUNT CLIENTS`` writes FOLDER/config.yaml and FOLDER/policy.yaml,
prints ``ready``, reads the proxy's data port as a line, and then serves and asks until it is killed. Steps take about a
fifth of a second, so that 64 engines that all decode are little work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import uvloop
import yaml
from prometheus_client import generate_latest

from adaptive_gamma.policy import Policy, build_policy, policy_yaml
from adaptive_gamma.policy.schema import PolicyInputs
from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.engine import (
    EngineMetrics,
    EngineSettings,
    Faults,
    PolicyStepClock,
    SimulatedEngine,
    StepClock,
    app,
    serving,
)

INPUTS = {
    "step_time": {"kind": "linear", "fixed_seconds": 0.18, "seconds_per_token": 0.003},
    "drafter": {"kind": "autoregressive", "family": "eagle3", "pass_seconds": 0.012},
    "classes": {
        "structured": {"reading": "unconditional", "two_parameter": {"first": 0.9, "plateau": 0.85}},
        "chat": {"reading": "unconditional", "two_parameter": {"first": 0.7, "plateau": 0.62}},
        "unsure": {"reading": "unconditional", "two_parameter": {"first": 0.8, "plateau": 0.75}},
    },
    "default_class": "unsure",
    "limits": {"max_gamma": 7, "max_batch": 256, "context_buckets": [512, 2048, 8192], "zero_gamma_tax": 0.07},
}
CODE = "def merge(a: list[int], b: list[int]) -> list[int]:\n    result = []\n    while a and b:\n        "
PROSE = "Tell me what it was like to walk through the old town on a rainy evening in November, and whom you met."
GAMMAS: tuple[int | GammaSchedule, ...] = (5, 4, 3, 5, GammaSchedule([(1, 4, 6), (5, 12, 4), (13, 64, 2)]))


SERIES = [
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
    "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:inter_token_latency_seconds_sum",
    "vllm:inter_token_latency_seconds_count",
]  # fmt: skip


def short_page(metrics: EngineMetrics, *, created: bool = True) -> bytes:
    """The page without what nobody reads: 64 whole ones a second would keep a core busy."""
    metrics.refresh()
    return generate_latest(metrics.registry.restricted_registry(SERIES))


@dataclass
class SlowClock:
    """Steps that take longer than the policy says."""

    clock: StepClock
    factor: float

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        return self.factor * self.clock.seconds(batch, gamma, context_tokens, prefill_tokens)


def slow_policy() -> Policy:
    """The policy that the engines follow."""
    return build_policy(PolicyInputs.model_validate(INPUTS), name="simulated-slow-steps")


def engines_of(count: int, policy: Policy) -> list[tuple[str, SimulatedEngine]]:
    """Two thirds speculate; of the first of them one is slow, and one accepts less than is believed."""
    made = []
    for i in range(count):
        speculative = i % 3 != 2
        clock: StepClock = PolicyStepClock(policy, speculative=speculative)
        if i == 4:
            clock = SlowClock(clock, 1.6)
        faults = Faults(metrics="html") if i == 7 else Faults()
        rates = [0.9, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85] if i != 3 else [0.5, 0.4, 0.35, 0.3, 0.3, 0.3, 0.3]
        settings = EngineSettings(
            gamma=GAMMAS[i % len(GAMMAS)] if speculative else None,
            step_clock=clock,
            acceptance={"structured": rates, "chat": [0.8 * rate for rate in rates], "unsure": rates},
            seed=i,
            answer_tokens=160,
            acceptance_report="detailed",
        )
        made.append((f"{'spec' if speculative else 'plain'}-{i:02d}", SimulatedEngine(settings, faults=faults)))
    return made


async def _ask(port: int, draw: random.Random) -> None:
    """One request after another, on a connection of its own each."""
    while True:
        code = draw.random() < 0.55
        wanted = {"role": "user", "content": CODE if code else PROSE}
        asked = {"model": "simulated", "stream": True, "max_tokens": draw.randrange(40, 160), "messages": [wanted]}
        body = json.dumps(asked).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(1)
            continue
        with contextlib.suppress(OSError):
            writer.write(head.encode() + body)
            while await reader.read(65536):
                pass
        writer.close()
        await asyncio.sleep(draw.expovariate(1.0))


async def _main(folder: Path, count: int, clients: int) -> None:
    setattr(app, "metrics_page", short_page)  # noqa: B010  # a name that the module does not export
    policy = slow_policy()
    (folder / "policy.yaml").write_text(policy_yaml(policy))
    async with contextlib.AsyncExitStack() as stack:
        replicas = []
        for name, engine in engines_of(count, policy):
            url = await stack.enter_async_context(serving(engine))
            replicas.append({"name": name, "url": url, "gamma": 0 if name.startswith("plain") else "auto"})
        if replicas:
            replicas[-1]["url"] = "http://127.0.0.1:9"  # nobody listens there: it is down
        config = {
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:00",
            "policy": str(folder / "policy.yaml"),
            "replicas": replicas,
            "health": {"interval_s": 2.0, "timeout_s": 10},
            "scrape": {"timeout_s": 3, "stale_after_s": 6},
            "drain": {"grace_s": 0},
            "cost_check": {"flag_after_s": 8},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        print("ready", flush=True)
        port = int(await asyncio.to_thread(sys.stdin.readline))
        draws = [random.Random(i) for i in range(clients)]
        await asyncio.gather(*(_ask(port, draw) for draw in draws))


if __name__ == "__main__":
    uvloop.run(_main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
