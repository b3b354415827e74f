"""The metrics page of the simulated engine: vLLM's names, labels, types and buckets (0.32 and 0.33).

What the simulation does not do (prefix cache, sleep, image input) is printed as on an engine that does not use it.
Series of the Python process and of the HTTP layer are not printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from adaptive_gamma.simulation.engine.core import EngineCore
from adaptive_gamma.simulation.engine.steps import FinishedRequest, StepOutcome

__all__ = ["EngineMetrics", "metrics_page"]

_SHORT_LATENCIES = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_FIRST_TOKEN_LATENCIES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
_REQUEST_LATENCIES = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_N = (1, 2, 5, 10, 20)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def _token_buckets(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to the largest that is not above the model's context."""
    return tuple(m * 10**e for e in range(10) for m in (1, 2, 5) if m * 10**e <= max_model_len)


class EngineMetrics:
    """Counters, gauges and histograms of all data-parallel ranks of one server.

    Args:
        cores: the ranks; each is one value of the label ``engine``.
        model: the label ``model_name``.
    """

    def __init__(self, cores: Sequence[EngineCore], model: str) -> None:
        self.registry = CollectorRegistry()
        self._cores = cores
        self._model = model
        self._speculative = any(core.speculative for core in cores)
        if self._speculative:
            self._drafts = self._counter("spec_decode_num_drafts", "Drafts verified.")
            self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "Tokens drafted.")
            self._accepted = self._counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.")
            positions = [str(i) for i in range(max(core.max_gamma for core in cores))]
            self._per_position = self._counter(
                "spec_decode_num_accepted_tokens_per_pos", "Accepted by draft position.", position=positions
            )
        self._idle_counter("estimated_flops_per_gpu", "Not estimated by a simulation.")
        self._idle_counter("estimated_read_bytes_per_gpu", "Not estimated by a simulation.")
        self._idle_counter("estimated_write_bytes_per_gpu", "Not estimated by a simulation.")
        self._running = self._gauge("num_requests_running", "Requests in the batch.")
        self._waiting = self._gauge("num_requests_waiting", "Requests in the queue.")
        self._waiting_by_reason = self._gauge(
            "num_requests_waiting_by_reason", "Requests in the queue, by reason.", reason=("capacity", "deferred")
        )
        sleep = self._gauge(
            "engine_sleep_state",
            "Always awake.",
            sleep_state=("awake", "weights_offloaded", "discard_all"),
        )
        self._kv_usage = self._gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0..1.")
        for name in ("prefix_cache", "external_prefix_cache", "mm_cache"):
            self._idle_counter(f"{name}_queries", "Nothing is cached across requests.")
            self._idle_counter(f"{name}_hits", "Nothing is cached across requests.")
        self._preemptions = self._counter("num_preemptions", "Sequences that gave up their KV blocks.")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of prefilled requests.")
        self._prompt_by_source = self._counter(
            "prompt_tokens_by_source",
            "Prompt tokens by where their KV came from.",
            source=("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._idle_counter("prompt_tokens_cached", "Nothing is cached across requests.")
        self._counter(
            "prompt_tokens_cached_by_source",
            "Nothing is cached across requests.",
            source=("device", "host", "p2p", "disk", "external_unspecified"),
        )
        self._generation_tokens = self._counter("generation_tokens", "Tokens given to clients.")
        self._finished = self._counter(
            "request_success",
            "Requests that ended, by reason.",
            finished_reason=("stop", "length", "abort", "error", "repetition"),
        )
        rejections = Counter(
            "vllm:admission_rejections",
            "The simulation's queue has no limit.",
            ["model_name", "reason"],
            registry=self.registry,
        )
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            rejections.labels(model, reason)
        self._histograms(max(core.limits.max_model_len for core in cores))
        cache = Gauge(
            "vllm:cache_config_info",
            "The simulated KV cache.",
            ["block_size", "cache_dtype", "enable_prefix_caching", "engine", "kv_cache_size_tokens", "num_gpu_blocks"],
            registry=self.registry,
        )
        for rank, core in enumerate(cores):
            blocks, size = core.limits.kv_blocks, core.limits.block_tokens
            cache.labels(str(size), "auto", "False", str(rank), str(blocks * size), str(blocks)).set(1)
            sleep.labels(str(rank), model, "awake").set(1)
        self._seen_preemptions = [0] * len(cores)

    def _histograms(self, max_model_len: int) -> None:
        tokens = _token_buckets(max_model_len)
        self._request_prompt = self._histogram("request_prompt_tokens", "Prompt tokens.", tokens)
        self._request_generation = self._histogram("request_generation_tokens", "Answer tokens.", tokens)
        self._step_tokens = self._histogram("iteration_tokens_total", "Tokens of an engine step.", _STEP_TOKENS)
        self._request_max = self._histogram("request_max_num_generation_tokens", "Longest answer.", tokens)
        self._params_n = self._histogram("request_params_n", "Answers asked for.", _N)
        self._params_max = self._histogram("request_params_max_tokens", "max_tokens asked for.", tokens)
        self._ttft = self._histogram("time_to_first_token_seconds", "Time to first token.", _FIRST_TOKEN_LATENCIES)
        self._itl = self._histogram(
            "inter_token_latency_seconds", "Time between a request's events, one per step.", _SHORT_LATENCIES
        )
        self._tpot = self._histogram(
            "request_time_per_output_token_seconds", "Mean time per output token of a request.", _SHORT_LATENCIES
        )
        self._e2e = self._histogram("e2e_request_latency_seconds", "Whole request.", _REQUEST_LATENCIES)
        self._queue = self._histogram("request_queue_time_seconds", "In the queue.", _REQUEST_LATENCIES)
        self._inference = self._histogram("request_inference_time_seconds", "In the batch.", _REQUEST_LATENCIES)
        self._prefill = self._histogram("request_prefill_time_seconds", "Until the first token.", _REQUEST_LATENCIES)
        self._decode = self._histogram("request_decode_time_seconds", "After the first token.", _REQUEST_LATENCIES)
        self._request_preemptions = self._histogram("request_num_preemptions", "Preemptions.", _PREEMPTIONS)
        self._computed = self._histogram("request_prefill_kv_computed_tokens", "Prompt tokens computed.", tokens)

    def _labelled(self, metric: Counter | Gauge, labels: dict[str, Sequence[str]]) -> None:
        for rank in range(len(self._cores)):
            if labels:
                ((_, values),) = labels.items()
                for value in values:
                    metric.labels(str(rank), self._model, value)
            else:
                metric.labels(str(rank), self._model)

    def _counter(self, name: str, text: str, **labels: Sequence[str]) -> Counter:
        metric = Counter(f"vllm:{name}", text, ["engine", "model_name", *labels], registry=self.registry)
        self._labelled(metric, labels)
        return metric

    def _idle_counter(self, name: str, text: str) -> None:
        self._counter(name, text)

    def _gauge(self, name: str, text: str, **labels: Sequence[str]) -> Gauge:
        metric = Gauge(f"vllm:{name}", text, ["engine", "model_name", *labels], registry=self.registry)
        self._labelled(metric, labels)
        return metric

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        metric = Histogram(
            f"vllm:{name}", text, ["engine", "model_name"], registry=self.registry, buckets=tuple(buckets)
        )
        for rank in range(len(self._cores)):
            metric.labels(str(rank), self._model)
        return metric

    def observe_step(self, rank: int, outcome: StepOutcome) -> None:
        """Count one finished step of a rank."""
        labels = (str(rank), self._model)
        if outcome.drafts:
            self._drafts.labels(*labels).inc(outcome.drafts)
            self._draft_tokens.labels(*labels).inc(outcome.draft_tokens)
            self._accepted.labels(*labels).inc(outcome.accepted_tokens)
            for position, count in enumerate(outcome.accepted_per_position):
                self._per_position.labels(*labels, str(position)).inc(count)
        self._generation_tokens.labels(*labels).inc(outcome.generation_tokens)
        self._prompt_tokens.labels(*labels).inc(outcome.prompt_tokens)
        self._prompt_by_source.labels(*labels, "local_compute").inc(outcome.prompt_tokens)
        self._step_tokens.labels(*labels).observe(outcome.plan.prefill_tokens + outcome.generation_tokens)
        ttft, itl = self._ttft.labels(*labels), self._itl.labels(*labels)
        for seconds in outcome.first_token_latencies:
            ttft.observe(seconds)
        for seconds in outcome.inter_token_latencies:
            itl.observe(seconds)
        for event in outcome.events:
            if event.finished is not None:
                self.observe_finished(rank, event.finished)

    def observe_finished(self, rank: int, finished: FinishedRequest) -> None:
        """Count one request that ended, aborted ones included."""
        labels = (str(rank), self._model)
        request = finished.request
        self._finished.labels(*labels, finished.reason).inc()
        self._request_prompt.labels(*labels).observe(request.prompt_tokens)
        self._request_generation.labels(*labels).observe(finished.generated)
        self._request_max.labels(*labels).observe(finished.generated)
        self._params_n.labels(*labels).observe(1)
        self._params_max.labels(*labels).observe(request.max_tokens)
        self._e2e.labels(*labels).observe(finished.finished_at - finished.arrived_at)
        self._request_preemptions.labels(*labels).observe(finished.preemptions)
        started, first, last = finished.scheduled_at, finished.first_token_at, finished.last_token_at
        if started is None:
            return
        self._queue.labels(*labels).observe(started - finished.arrived_at)
        if first is None or last is None:
            return
        self._prefill.labels(*labels).observe(first - started)
        self._decode.labels(*labels).observe(last - first)
        self._inference.labels(*labels).observe(last - started)
        self._computed.labels(*labels).observe(request.prompt_tokens)
        self._tpot.labels(*labels).observe((last - first) / (finished.generated - 1) if finished.generated > 1 else 0.0)

    def refresh(self) -> None:
        """Set the gauges to what the ranks are doing now."""
        for rank, core in enumerate(self._cores):
            labels = (str(rank), self._model)
            self._running.labels(*labels).set(core.running)
            self._waiting.labels(*labels).set(core.waiting)
            self._waiting_by_reason.labels(*labels, "capacity").set(core.waiting)
            self._kv_usage.labels(*labels).set(core.kv_usage)
            self._preemptions.labels(*labels).inc(core.preemptions - self._seen_preemptions[rank])
            self._seen_preemptions[rank] = core.preemptions


class _MultiProcessForm(Collector):
    """A registry as several API server processes print it: no ``_created``, histograms with their sum first."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            kept = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            if metric.type == "histogram":
                kept.sort(
                    key=lambda sample: (
                        _rank_of(sample.labels),
                        ("_sum", "_bucket", "_count").index(sample.name.removeprefix(metric.name)),
                    )
                )
            metric.samples = kept
            yield metric


def _rank_of(labels: dict[str, str]) -> int:
    return int(labels.get("engine", "0"))


def metrics_page(metrics: EngineMetrics, *, created: bool = True) -> bytes:
    """The page in the text exposition format.

    Args:
        metrics: what to print.
        created: with ``_created`` series, as one API server process prints it; without, as several do.
    """
    metrics.refresh()
    return generate_latest(metrics.registry if created else _MultiProcessForm(metrics.registry))
