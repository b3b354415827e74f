"""vLLM: what its pages are called, from 0.6.6 (V0 engine) to 0.33 (V1 engine, Python and Rust front ends).

Spellings by version:

* KV use is ``kv_cache_usage_perc``; before 0.9 ``gpu_cache_usage_perc``; 0.9 and 0.10 print both. A share, 0..1.
* Latency between output events is ``inter_token_latency_seconds`` from 0.10.2, before that
  ``time_per_output_token_seconds``. One sample per engine step of a sequence, so with speculation not one per token.
* Speculation counters keep their names since the V1 engine of 0.8.5. The V0 engine has neither the number of drafts
  nor acceptance by position.
* Labels: V1 adds ``engine``, the data-parallel rank; the page of one server holds a child for each rank.

A server started with ``--disable-log-stats`` prints no series of its own: the read fails with ``no_series``.
A server with the plugin ``adaptive_gamma.vllm_plugin`` counts drafts by position too, which vLLM does not publish, and
tells the gamma of its last step.
With adaptive verification switched on the counters count what was drafted, not what was verified; the page does not
tell, so the acceptance of such a server reads low.
"""

from __future__ import annotations

from collections.abc import Mapping

from adaptive_gamma.engines._acceptance import believed_acceptance, count, counts
from adaptive_gamma.engines._bounds import LARGEST_GAMMA, believed_gamma, request_count, share
from adaptive_gamma.engines._exposition import Exposition, read_exposition
from adaptive_gamma.engines._speculation import contiguous_positions, counter, speculation_counters
from adaptive_gamma.engines.reading import EngineReading, LatencySum, RequestAcceptance, StreamAsk

__all__ = ["VllmDialect"]

_PREFIX = "vllm:"


def _names(*stems: str) -> tuple[str, ...]:
    return tuple(_PREFIX + stem for stem in stems)


_RUNNING = _names("num_requests_running")
_WAITING = _names("num_requests_waiting")
_KV_USAGE = _names("kv_cache_usage_perc", "gpu_cache_usage_perc")
_LATENCY = _names("inter_token_latency_seconds", "time_per_output_token_seconds")
_SLEEP = _names("engine_sleep_state")
_CACHE_INFO = _names("cache_config_info")
_FIRST_TOKENS = _names("time_to_first_token_seconds_count")
_ENGINE_STEPS = _names("iteration_tokens_total_count")
_STARTED = _names("generation_tokens_created")
_GENERATION_TOKENS = counter(_PREFIX + "generation_tokens")
_PROMPT_TOKENS = counter(_PREFIX + "prompt_tokens")
_DRAFTS = counter(_PREFIX + "spec_decode_num_drafts")
_DRAFT_TOKENS = counter(_PREFIX + "spec_decode_num_draft_tokens")
_ACCEPTED_TOKENS = counter(_PREFIX + "spec_decode_num_accepted_tokens")
_ACCEPTED_PER_POSITION = counter(_PREFIX + "spec_decode_num_accepted_tokens_per_pos")
_DRAFTED_PER_POSITION = counter("adaptive_gamma_draft_tokens_per_position")
_SCHEDULED_GAMMA = ("adaptive_gamma_scheduled_gamma",)
_V0_SPECULATION = (
    *_names("spec_decode_draft_acceptance_rate", "spec_decode_efficiency"),
    *counter(_PREFIX + "spec_decode_num_emitted_tokens"),
)
_SPECULATION = (*_DRAFTS, *_DRAFT_TOKENS, *_ACCEPTED_TOKENS, *_ACCEPTED_PER_POSITION, *_V0_SPECULATION)

_WANTED = frozenset(
    (
        *_RUNNING,
        *_WAITING,
        *_KV_USAGE,
        *(name + part for name in _LATENCY for part in ("_sum", "_count")),
        *_SLEEP,
        *_CACHE_INFO,
        *_FIRST_TOKENS,
        *_ENGINE_STEPS,
        *_STARTED,
        *_GENERATION_TOKENS,
        *_PROMPT_TOKENS,
        *_SPECULATION,
        *_DRAFTED_PER_POSITION,
        *_SCHEDULED_GAMMA,
    )
)
_DIGITS = 15
_DIFFUSION = "\n" + _PREFIX + "diffusion_"
"""Diffusion models use the speculative path without its counters, so there their absence tells nothing."""


def _is_usage(event: Mapping[str, object]) -> bool:
    return event.get("choices") == [] and isinstance(event.get("usage"), Mapping)


class VllmDialect:
    """The names of vLLM."""

    name = "vllm"
    metrics_paths: tuple[str, ...] = ("/metrics",)
    refused_parameters: frozenset[str] = frozenset({"min_p", "logit_bias"})
    acceptance_mark = b'"speculative_decoding"'
    stream_ask: StreamAsk | None = StreamAsk(
        paths=frozenset({"/v1/chat/completions", "/v1/completions"}),
        member="stream_options",
        option="include_usage",
        not_beside=frozenset({"continuous_usage_stats"}),
        mark=b'"usage"',
        is_added=_is_usage,
    )

    def read(self, pages: Mapping[str, str]) -> EngineReading:
        """Read ``/metrics``. Running, waiting and all counters are summed over data-parallel ranks and model names.

        ``kv_usage`` is that of the fullest rank: the one that will preempt first, and a mean would hide it.
        ``gamma`` is the number of position labels, which the server creates at start-up for the configured maximum.
        ``speculative`` is False only on a page that would show the counters if there were any (V1 engine, Python
        front end): the V0 engine and the Rust front end create them with the first draft, so there it is None.
        ``awake`` is False when any rank sleeps.
        """
        text = pages[self.metrics_paths[0]]
        page = read_exposition(text, _WANTED)
        positions = contiguous_positions(page, _ACCEPTED_PER_POSITION)
        speculative: bool | None = None
        if any(name in page for name in _SPECULATION):
            speculative = True
        elif _tells_all(page) and _DIFFUSION not in text:
            speculative = False
        return EngineReading(
            running=request_count(page.total(*_RUNNING)),
            waiting=request_count(page.total(*_WAITING)),
            kv_usage=share(page.highest(*_KV_USAGE)),
            speculative=speculative,
            gamma=len(positions) if positions else None,
            speculation=speculation_counters(
                page,
                drafts=_DRAFTS,
                draft_tokens=_DRAFT_TOKENS,
                accepted_tokens=_ACCEPTED_TOKENS,
                accepted_per_position=positions,
                drafted_per_position=contiguous_positions(page, _DRAFTED_PER_POSITION),
            ),
            generation_tokens=page.total(*_GENERATION_TOKENS),
            prompt_tokens=page.total(*_PROMPT_TOKENS),
            inter_token_latency=_latency(page),
            awake=_awake(page),
            scheduled_gamma=_scheduled(page),
            first_tokens=page.total(*_FIRST_TOKENS),
            engine_steps=page.total(*_ENGINE_STEPS),
            kv_tokens=_kv_tokens(page),
            started_at=page.highest(*_STARTED),
        )

    def gamma_from_response(self, body: Mapping[str, object]) -> int | None:
        """The configured gamma out of ``metrics.speculative_decoding.num_spec_tokens``.

        Present from 0.29 on servers started with ``--per-request-spec-decode-metrics``; exact. None where it is no
        gamma, or one beyond the largest believed.
        """
        gamma = count(_speculation(body).get("num_spec_tokens"))
        return None if gamma is None else believed_gamma(gamma)

    def acceptance_from_response(self, body: Mapping[str, object]) -> RequestAcceptance | None:
        """``metrics.speculative_decoding`` of an answer, or of a stream's usage chunk.

        Servers started with ``--per-request-spec-decode-metrics summary`` or ``detailed`` (0.29 and later) send it
        for requests of one choice, null for others; in a stream only to clients that ask for usage.
        """
        report = _speculation(body)
        drafts, draft_tokens = count(report.get("num_spec_steps")), count(report.get("num_draft_tokens"))
        accepted, gamma = count(report.get("num_accepted_draft_tokens")), self.gamma_from_response(body)
        if drafts is None or draft_tokens is None or accepted is None or gamma is None:
            return None
        drafted_by_step, accepted_by_step = (
            counts(report.get("per_step_drafted")),
            counts(report.get("per_step_accepted")),
        )
        return believed_acceptance(
            drafts,
            draft_tokens,
            accepted,
            gamma,
            counts(report.get("acceptance_histogram")),
            None if drafted_by_step is None or accepted_by_step is None else (drafted_by_step, accepted_by_step),
        )


def _speculation(body: Mapping[str, object]) -> Mapping[str, object]:
    """What an answer reports of its drafts; empty where it reports nothing."""
    metrics = body.get("metrics")
    report = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    return report if isinstance(report, Mapping) else {}


def _tells_all(page: Exposition) -> bool:
    return any("engine" in sample.labels for sample in page.samples(*_RUNNING)) and _CACHE_INFO[0] in page


def _latency(page: Exposition) -> LatencySum | None:
    for name in _LATENCY:
        seconds, count = page.total(name + "_sum"), page.total(name + "_count")
        if seconds is not None and count is not None:
            return LatencySum(seconds=seconds, count=count)
    return None


def _scheduled(page: Exposition) -> int | None:
    told = page.highest(*_SCHEDULED_GAMMA)
    return round(told) if told is not None and 0 <= told <= LARGEST_GAMMA else None


def _kv_tokens(page: Exposition) -> int | None:
    """Of the smallest rank, as its label says, or its blocks (before 0.29)."""
    sizes = []
    for sample in page.samples(*_CACHE_INFO):
        told = sample.labels.get("kv_cache_size_tokens", "")
        if told.isdecimal() and len(told) <= _DIGITS:
            sizes.append(int(told))
            continue
        blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
        if not (blocks.isdecimal() and size.isdecimal() and len(blocks + size) <= _DIGITS):
            return None
        sizes.append(int(blocks) * int(size))
    return min(sizes, default=None) or None


def _awake(page: Exposition) -> bool | None:
    states = [sample.value for sample in page.samples(*_SLEEP) if sample.labels.get("sleep_state") == "awake"]
    if not states or not all(0 <= value <= 1 for value in states):  # NaN is neither asleep nor awake
        return None
    return all(value > 0 for value in states)
