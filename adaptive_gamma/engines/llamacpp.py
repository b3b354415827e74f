"""llama.cpp's ``llama-server``: ``/metrics`` (started with ``--metrics``) and ``/slots``.

What differs from other engines:

* The speculation counters (builds from about b10434) exist with 0 on a plain server too, and the series by position
  appears with the first finished request that drafted. ``/slots`` tells a drafter's presence at once; ``/props`` does
  not (it prints ``none`` on a speculating server).
* All token and draft counters move only when a request ends. Between two scrapes without a finished request there is
  no data, which is not an acceptance of 0. The two request gauges are live.
* There is no gauge of KV use, no model label, and no latency histogram; seconds of generation and steps, summed over
  requests, take its place where the accepted tokens are counted.
* No request field changes gamma on current builds (older ones: ``per_request.py``), and none is refused for the
  drafter's sake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from adaptive_gamma.engines._acceptance import count
from adaptive_gamma.engines._bounds import believed_gamma, request_count
from adaptive_gamma.engines._exposition import Exposition, read_exposition
from adaptive_gamma.engines._speculation import contiguous_positions, counter, speculation_counters
from adaptive_gamma.engines.actuator import Drafting
from adaptive_gamma.engines.reading import EngineReading, LatencySum, RequestAcceptance, StreamAsk

__all__ = ["LlamaCppDialect", "drafting_of"]

_PREFIX = "llamacpp:"
_RUNNING = _PREFIX + "requests_processing"
_WAITING = _PREFIX + "requests_deferred"
_GENERATION_TOKENS = counter(_PREFIX + "tokens_predicted")
_PROMPT_TOKENS = counter(_PREFIX + "prompt_tokens")
_GENERATION_SECONDS = counter(_PREFIX + "tokens_predicted_seconds")
_DRAFTS = counter(_PREFIX + "spec_decode_num_drafts")
_DRAFT_TOKENS = counter(_PREFIX + "spec_decode_num_draft_tokens")
_ACCEPTED_TOKENS = counter(_PREFIX + "spec_decode_num_accepted_tokens")
_ACCEPTED_PER_POSITION = counter(_PREFIX + "spec_decode_num_accepted_tokens_per_pos")
_WANTED = frozenset(
    (
        _RUNNING,
        _WAITING,
        *_GENERATION_TOKENS,
        *_PROMPT_TOKENS,
        *_GENERATION_SECONDS,
        *_DRAFTS,
        *_DRAFT_TOKENS,
        *_ACCEPTED_TOKENS,
        *_ACCEPTED_PER_POSITION,
    )
)
_METRICS, _SLOTS = "/metrics", "/slots"


class LlamaCppDialect:
    """The names of llama.cpp's server."""

    name = "llamacpp"
    metrics_paths: tuple[str, ...] = (_METRICS, _SLOTS)
    refused_parameters: frozenset[str] = frozenset()
    acceptance_mark = b'"draft_n"'
    stream_ask: StreamAsk | None = None

    def read(self, pages: Mapping[str, str]) -> EngineReading:
        """Read ``/metrics``, and ``/slots`` where it came along.

        ``speculative`` is what the slots say; without them a draft already counted means True, and none counted
        means nothing. ``gamma`` is the number of position labels, None before the first finished speculative request.
        """
        page = read_exposition(pages[_METRICS], _WANTED)
        positions = contiguous_positions(page, _ACCEPTED_PER_POSITION)
        counters = speculation_counters(
            page,
            drafts=_DRAFTS,
            draft_tokens=_DRAFT_TOKENS,
            accepted_tokens=_ACCEPTED_TOKENS,
            accepted_per_position=positions,
        )
        speculative = _slots_speculate(pages.get(_SLOTS))
        if speculative is None and (positions or (counters is not None and counters.draft_tokens > 0)):
            speculative = True
        accepted = None if counters is None else counters.accepted_tokens
        return EngineReading(
            running=request_count(page.total(_RUNNING)),
            waiting=request_count(page.total(_WAITING)),
            speculative=speculative,
            gamma=len(positions) if positions and speculative is not False else None,
            speculation=None if speculative is False else counters,
            inter_token_latency=_latency(page, 0.0 if speculative is False else accepted),
            generation_tokens=page.total(*_GENERATION_TOKENS),
            prompt_tokens=page.total(*_PROMPT_TOKENS),
        )

    def gamma_from_response(self, body: Mapping[str, object]) -> int | None:
        """Gamma estimated from a response's ``timings``; None when nothing was drafted, or
        beyond the largest gamma believed.

        ``predicted_n - draft_n_accepted`` counts the target model's passes: an upper bound of the steps that drafted,
        as the first token comes from the prompt's pass and drafts near the end are cut. So ``draft_n`` over it is a
        lower bound of gamma, rounded up here; over several responses the largest is the best estimate.
        """
        seen = self.acceptance_from_response(body)
        if seen is None or seen.most_drafts is None:
            return None
        return believed_gamma(-(-seen.draft_tokens // seen.most_drafts))  # the ceiling, without floats

    def acceptance_from_response(self, body: Mapping[str, object]) -> RequestAcceptance | None:
        """The totals in ``timings``: draft tokens and how many of them were accepted.

        The number of steps that drafted is not told. Each pass of the target gives one token beyond those accepted, so
        tokens less accepted ones are the passes: the prompt's, and those without a draft, which is at most the last one
        or two, where no room is left. Over 32 answers of 96 tokens they were 1.3 an answer more than the drafts.
        """
        timings = body.get("timings")
        if not isinstance(timings, Mapping):
            return None
        drafted, accepted, predicted = (
            count(timings.get(key)) for key in ("draft_n", "draft_n_accepted", "predicted_n")
        )
        if not drafted or accepted is None or predicted is None or predicted <= accepted or accepted > drafted:
            return None
        return RequestAcceptance(
            drafts=None,
            draft_tokens=drafted,
            accepted_tokens=accepted,
            histogram=None,
            gamma=None,
            most_drafts=predicted - accepted,
        )


def drafting_of(body: Mapping[str, object]) -> Drafting | None:
    """What the ``timings`` of an answer tell of the drafting for it, one without any included.

    None where there are none, or they do not add up, or the answer has more than one choice.
    """
    timings, choices = body.get("timings"), body.get("choices")
    if not isinstance(timings, Mapping) or (isinstance(choices, list) and len(choices) > 1):
        return None
    predicted = count(timings.get("predicted_n"))
    drafted, accepted = (count(timings.get(key, 0)) for key in ("draft_n", "draft_n_accepted"))
    if predicted is None or drafted is None or accepted is None or predicted <= accepted or accepted > drafted:
        return None
    return Drafting(predicted - accepted, drafted)


def _latency(page: Exposition, accepted: float | None) -> LatencySum | None:
    """A request's steps are its tokens less those that came as accepted drafts, the prompt's pass included."""
    seconds, tokens = page.total(*_GENERATION_SECONDS), page.total(*_GENERATION_TOKENS)
    if seconds is None or tokens is None or accepted is None or tokens < accepted:
        return None
    return LatencySum(seconds=seconds, count=tokens - accepted, at_end=True)


def _slots_speculate(page: str | None) -> bool | None:
    if page is None:
        return None
    try:
        slots = json.loads(page)
    except (ValueError, RecursionError):
        return None
    if not isinstance(slots, list):
        return None
    flags = [slot["speculative"] for slot in slots if isinstance(slot, dict) and "speculative" in slot]
    if not flags or not all(isinstance(flag, bool) for flag in flags):
        return None
    return any(flags)
