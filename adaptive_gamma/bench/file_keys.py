"""The key of a result file that a row's field was read from, so that a finding names what stands in the file."""

from __future__ import annotations

from adaptive_gamma.bench.row import SweepRow

__all__ = ["file_key"]

_BENCH_SERVING = {
    "tpot_p50_s": "median_tpot_ms",
    "tpot_p99_s": "p99_tpot_ms",
    "tpot_mean_s": "mean_tpot_ms",
    "output_tokens_per_s": "output_throughput",
    "concurrency_asked": "max_concurrency",
    "concurrency": "max_concurrency",
    "input_tokens": "total_input_tokens",
    "output_tokens": "total_output_tokens",
}
_GUIDELLM = {
    "tpot_p50_s": "metrics.inter_token_latency_ms.successful.median",
    "tpot_p99_s": "metrics.inter_token_latency_ms.successful.percentiles.p99",
    "tpot_mean_s": "metrics.inter_token_latency_ms.successful.mean",
    "output_tokens_per_s": "metrics.output_tokens_per_second.successful.mean",
    "concurrency_asked": "config.strategy.streams",
    "concurrency": "metrics.request_concurrency.successful.mean",
    "input_tokens": "metrics.prompt_token_count.successful.mean",
    "output_tokens": "metrics.output_token_count.successful.mean",
}
_AIPERF = {
    "tpot_p50_s": "inter_token_latency.p50",
    "tpot_p99_s": "inter_token_latency.p99",
    "tpot_mean_s": "inter_token_latency.avg",
    "output_tokens_per_s": "output_token_throughput.avg",
    "concurrency_asked": "input_config.phases",
    "concurrency": "request_latency.avg",
    "input_tokens": "input_sequence_length.avg",
    "output_tokens": "output_sequence_length.avg",
}
_KEYS = {
    "vllm-bench-serve": _BENCH_SERVING,
    "sglang-bench-serving": _BENCH_SERVING | {"concurrency": "concurrency"},
    "guidellm": _GUIDELLM,
    "aiperf": _AIPERF,
}


def file_key(row: SweepRow, field: str) -> str:
    """The name that the row's file has for ``field``; a field without one, as in our own rows, keeps its name."""
    key = _KEYS.get(row.format, {}).get(field, field)
    return f"{row.run}.{key}" if row.format == "guidellm" and row.run and key != field else key
