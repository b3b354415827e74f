"""Result files in the shapes that the tools write, with figures made up for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "vllm"

PROMPT_LENGTHS = [31, 512, 77, 240, 118, 903, 64, 350, 41, 133, 610, 95]


def bench_serve(**changes: Any) -> dict[str, Any]:
    """A run of ``vllm bench serve`` on a server whose draft counters were not read."""
    values: dict[str, Any] = {
        "date": "20261130-101500",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "Qwen/Qwen3-8B",
        "tokenizer_id": "Qwen/Qwen3-8B",
        "num_prompts": 12,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 4,
        "duration": 6.0,
        "completed": 12,
        "failed": 0,
        "total_input_tokens": sum(PROMPT_LENGTHS),
        "total_output_tokens": 1200,
        "request_throughput": 2.0,
        "request_goodput": None,
        "output_throughput": 200.0,
        "total_token_throughput": 729.0,
        "latencies": [1.9] * 12,
        "queue_times": [0.001] * 12,
        "max_output_tokens_per_s": 312.0,
        "max_concurrent_requests": 9,
        "mean_ttft_ms": 110.0,
        "median_ttft_ms": 100.0,
        "std_ttft_ms": 5.0,
        "p99_ttft_ms": 150.0,
        "mean_tpot_ms": 18.2,
        "median_tpot_ms": 18.0,
        "std_tpot_ms": 1.0,
        "p99_tpot_ms": 22.0,
    }
    duration = changes.get("duration")
    if isinstance(duration, int | float) and duration > 0:
        values["output_throughput"] = values["total_output_tokens"] / duration
    return values | changes


def counters(gamma: int = 3, drafts: int = 400, rates: tuple[float, ...] = (0.8, 0.6, 0.4)) -> dict[str, Any]:
    """What a speculative server adds; the rate is in percent."""
    accepted = round(sum(rate * drafts for rate in rates))
    return {
        "spec_decode_acceptance_rate": 100.0 * accepted / (gamma * drafts),
        "spec_decode_acceptance_length": 1.0 + accepted / drafts,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": gamma * drafts,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": list(rates),
    }


def detailed(**changes: Any) -> dict[str, Any]:
    """A run with ``--save-detailed``."""
    return bench_serve(
        input_lens=PROMPT_LENGTHS,
        output_lens=[100] * 12,
        start_times=[0.1 * i for i in range(12)],
        ttfts=[0.1] * 12,
        itls=[[0.018] * 99] * 12,
        generated_texts=["word " * 20] * 12,
        errors=[""] * 12,
        **changes,
    )


def sglang(**changes: Any) -> dict[str, Any]:
    """A line of SGLang's benchmark."""
    values: dict[str, Any] = {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "sharegpt",
        "request_rate": float("inf"),
        "max_concurrency": 8,
        "sharegpt_output_len": None,
        "random_input_len": 1024,
        "random_output_len": 1024,
        "random_range_ratio": 0.0,
        "server_info": {
            "version": "0.5.9",
            "model_path": "Qwen/Qwen3-8B",
            "internal_states": [
                {
                    "avg_spec_accept_length": 2.9,
                    "speculative_algorithm": "EAGLE3",
                    "speculative_num_steps": 3,
                    "speculative_eagle_topk": 1,
                    "speculative_num_draft_tokens": 4,
                }
            ],
        },
        "duration": 20.0,
        "completed": 100,
        "total_input_tokens": 30000,
        "total_output_tokens": 20000,
        "total_output_tokens_retokenized": 19990,
        "request_throughput": 5.0,
        "input_throughput": 1500.0,
        "output_throughput": 1000.0,
        "total_throughput": 2500.0,
        "mean_e2e_latency_ms": 1500.0,
        "median_e2e_latency_ms": 1480.0,
        "mean_ttft_ms": 92.0,
        "median_ttft_ms": 76.0,
        "mean_tpot_ms": 7.2,
        "median_tpot_ms": 7.0,
        "p99_tpot_ms": 11.0,
        "mean_itl_ms": 20.0,
        "concurrency": 7.5,
        "accept_length": 2.9,
        "max_output_tokens_per_s": 1500.0,
        "max_concurrent_requests": 31,
        "errors": [""] * 98 + ["timed out", "timed out"],
    }
    return values | changes


def forward_case(
    sequences: int = 16, query: int = 4, context: int = 4096, drafts: int = 3, **changes: Any
) -> dict[str, Any]:
    """A case of ``vllm bench forward``."""
    request = {"query_len": query, "kv_len": context, "num_draft_tokens": drafts, "chunked": False}
    values: dict[str, Any] = {
        "case": f"{sequences}*{query}@{context}:{drafts}",
        "requests": [dict(request) for _ in range(sequences)],
        "median_us": 21500.0,
        "ranks": [{"rank": 0, "latency_us": {"median": 21500.0, "count": 50, "samples_us": [21500.0] * 50}}],
    }
    return values | changes


def statistics(mean: float, median: float | None = None, p99: float | None = None) -> dict[str, Any]:
    """A metric of guidellm by status."""
    middle = mean if median is None else median
    inner = {
        "mean": mean,
        "median": middle,
        "std_dev": 0.1,
        "count": 40,
        "percentiles": {"p50": middle, "p99": p99 or mean},
    }
    empty = {"mean": 0.0, "median": 0.0, "std_dev": 0.0, "count": 0, "percentiles": {"p50": 0.0, "p99": 0.0}}
    return {"successful": inner, "errored": empty, "incomplete": empty, "total": inner}


def guidellm_benchmark(**changes: Any) -> dict[str, Any]:
    """One load of a guidellm report."""
    values: dict[str, Any] = {
        "type_": "generative_benchmark",
        "config": {
            "strategy": {"type_": "concurrent", "streams": 8},
            "backend": {"type_": "openai_http", "model": "Qwen/Qwen3-8B"},
        },
        "scheduler_metrics": {
            "measure_start_time": 1000.0,
            "measure_end_time": 1030.0,
            "requests_made": {"successful": 40, "errored": 1, "incomplete": 8, "total": 49},
            "strategy_type": "concurrent",
        },
        "metrics": {
            "request_concurrency": statistics(7.8),
            "time_to_first_token_ms": statistics(120.0, 110.0),
            "time_per_output_token_ms": statistics(14.0, 13.0, 18.0),
            "inter_token_latency_ms": statistics(9.0, 8.5, 12.0),
            "output_tokens_per_second": statistics(800.0),
            "output_tokens_per_iteration": statistics(2.4),
            "iter_tokens_per_iteration": statistics(2.5),
            "prompt_token_count": statistics(300.0),
            "output_token_count": statistics(200.0),
        },
        "requests": {"successful": [], "errored": [], "incomplete": []},
    }
    return values | changes


def guidellm(*benchmarks: dict[str, Any], version: int = 2, **changes: Any) -> dict[str, Any]:
    """A guidellm report."""
    values: dict[str, Any] = {
        "metadata": {"version": version, "guidellm_version": "0.8.1"},
        "config": {"data": ["chat.jsonl"]},
        "benchmarks": list(benchmarks) or [guidellm_benchmark()],
        "conclusions": [],
    }
    return values | changes


def metric(unit: str, average: float, **changes: float) -> dict[str, Any]:
    """A metric of aiperf."""
    return {
        "unit": unit,
        "avg": average,
        "p50": average,
        "p99": average * 1.5,
        "min": 0.0,
        "max": average * 2,
    } | changes


def aiperf(**changes: Any) -> dict[str, Any]:
    """A run of aiperf."""
    values: dict[str, Any] = {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "benchmark_id": "a1b2",
        "output_token_throughput": metric("tokens/sec", 900.0),
        "request_throughput": metric("requests/sec", 4.0),
        "time_to_first_token": metric("ms", 90.0),
        "inter_token_latency": metric("ms", 8.0),
        "request_latency": metric("ms", 2000.0),
        "request_count": metric("requests", 120.0),
        "error_request_count": metric("requests", 3.0),
        "input_sequence_length": metric("tokens", 250.0),
        "output_sequence_length": metric("tokens", 225.0),
        "benchmark_duration": metric("sec", 30.0),
        "total_draft_tokens": metric("tokens", 3000.0),
        "pooled_spec_decode_acceptance_histogram": {"0": 200, "1": 150, "3": 650},
        "input_config": {
            "models": {"items": [{"name": "Qwen/Qwen3-8B"}]},
            "phases": [
                {"name": "warmup", "concurrency": 1},
                {"name": "profiling", "type": "concurrency", "concurrency": 8},
            ],
        },
        "run_info": {
            "variation_label": "k3",
            "variation_values": {"server.num_speculative_tokens": 3},
            "cli_command": "aiperf profile",
        },
        "was_cancelled": False,
        "is_complete": True,
    }
    return values | changes


def server_metrics(drafts: float = 1000.0, rates: tuple[float, ...] = (0.8, 0.6, 0.4)) -> dict[str, Any]:
    """aiperf's export of a server's metrics, on two ranks."""

    def counter(*series: tuple[dict[str, str], float]) -> dict[str, Any]:
        return {
            "type": "counter",
            "series": [
                {"endpoint_url": "http://a", "labels": labels, "stats": {"total": total}} for labels, total in series
            ],
        }

    half = [({"engine": rank}, 0.5) for rank in ("0", "1")]
    prefix = "vllm" + ":spec_decode_num_"
    return {
        "metrics": {
            f"{prefix}drafts": counter(*((labels, share * drafts) for labels, share in half)),
            f"{prefix}draft_tokens": counter(*((labels, share * drafts * len(rates)) for labels, share in half)),
            f"{prefix}accepted_tokens": counter(*((labels, share * drafts * sum(rates)) for labels, share in half)),
            f"{prefix}accepted_tokens_per_pos": counter(
                *(
                    (labels | {"position": str(position)}, share * drafts * rate)
                    for labels, share in half
                    for position, rate in enumerate(rates)
                )
            ),
        }
    }


def iteration(requests: int, tokens: int, ms: float, *, prefill: int = 0, newer: bool = True, kv: float = 12.5) -> str:
    """A line of the iteration log, in the words of 0.25 and later or of before."""
    head, tail = ("Engine 000: ", f", GPU KV cache usage: {kv}%") if newer else ("", "")
    return (
        f"INFO 11-30 03:42:47 [loggers.py:10] {head}Iteration(12): {int(prefill > 0)} context requests, {prefill} "
        f"context tokens, {requests} generation requests, {tokens} generation tokens, iteration "
        f"elapsed time: {ms:.2f} ms{tail}"
    )


def engine_start(speculative: str) -> str:
    """The line in which a vLLM server prints its configuration."""
    return (
        "(EngineCore pid=7) INFO 11-30 03:42:47 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        f"model='/models/target', speculative_config={speculative}, tokenizer='/models/target', "
        "served_model_name=tiny, enable_prefix_caching=True"
    )


DRAFTING = "SpeculativeConfig(method='draft_model', model='/models/draft', num_spec_tokens=5)"


def write(path: Path, *values: Any) -> Path:
    """One value as a document, several as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(values) == 1:
        path.write_text(json.dumps(values[0], indent=1))
    else:
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path
