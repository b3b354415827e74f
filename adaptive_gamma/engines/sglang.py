"""SGLang: ``/metrics`` (started with ``--enable-metrics``) and ``/v1/loads``, as of 0.5.

What differs from other engines:

* There are no counters of drafts or accepted tokens, and nothing by position: the page has gauges of a mean over the
  last log interval, of which no total can be made. So a reading has no speculation counters. The only exact source is
  the answer of a request that asked for it (``return_spec_tokens_details``).
* The gauges are written once in ``--decode-log-interval`` decode steps (40 unless set), so they lag a second or so.
  ``/v1/loads`` needs no flag and is fresher; what it tells of requests goes before the gauges.
* A plain server has the speculation gauges too, with 0, as has an adaptive one that does not draft now. So 0 does not
  tell that a server is plain: give such a replica ``gamma: 0``.
* The histogram of inter-token latency counts each token of a burst, with its share of the time: it is no sum of steps.
* Series of one rank may come several times, for each of its tensor and pipeline workers; only data-parallel ranks add
  up.
* Tokens proposed per step are reported as those of the server's fixed tree. With a tree (``topk`` above 1), or where
  the length varies, they are not the gamma of the page, and then the histogram is not believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from adaptive_gamma.engines._acceptance import believed_acceptance, count, counts
from adaptive_gamma.engines._bounds import LARGEST_COUNT, believed_gamma, request_count, share
from adaptive_gamma.engines._exposition import Exposition, read_exposition
from adaptive_gamma.engines._speculation import counter
from adaptive_gamma.engines.reading import EngineReading, RequestAcceptance, StreamAsk

__all__ = ["SglangDialect"]

_PREFIX = "sglang:"
_RUNNING = _PREFIX + "num_running_reqs"
_WAITING = _PREFIX + "num_queue_reqs"
_KV_USAGE = _PREFIX + "token_usage"
_STEPS = _PREFIX + "spec_num_steps"
_TREE = _PREFIX + "spec_num_draft_tokens"
_ACCEPT_LENGTH = _PREFIX + "spec_accept_length"
_VERIFY_CALLS = counter(_PREFIX + "spec_verify_calls")
_GENERATION_TOKENS = counter(_PREFIX + "generation_tokens")
_PROMPT_TOKENS = counter(_PREFIX + "prompt_tokens")
_WANTED = frozenset(
    (
        _RUNNING,
        _WAITING,
        _KV_USAGE,
        _STEPS,
        _TREE,
        _ACCEPT_LENGTH,
        *_VERIFY_CALLS,
        *_GENERATION_TOKENS,
        *_PROMPT_TOKENS,
    )
)
_METRICS, _LOADS = "/metrics", "/v1/loads?include=core"


def _is_details(event: Mapping[str, object]) -> bool:
    extension = event.get("sglext")
    if event.get("choices") != [] or not isinstance(extension, Mapping) or isinstance(event.get("usage"), Mapping):
        return False
    return {name for name, value in extension.items() if value is not None} == {"spec_tokens_details"}


class SglangDialect:
    """The names of SGLang."""

    name = "sglang"
    metrics_paths: tuple[str, ...] = (_METRICS, _LOADS)
    refused_parameters: frozenset[str] = frozenset()
    acceptance_mark = b'"spec_verify_ct"'
    stream_ask: StreamAsk | None = StreamAsk(
        paths=frozenset({"/v1/chat/completions", "/v1/completions"}),
        member="return_spec_tokens_details",
        option=None,
        not_beside=frozenset(),
        mark=b'"sglext"',
        is_added=_is_details,
    )

    def read(self, pages: Mapping[str, str]) -> EngineReading:
        """Read ``/metrics``, and ``/v1/loads`` where it came along.

        ``gamma`` is the number of draft steps that the server makes now; on an adaptive one it changes. Where it says
        none, but a block of draft tokens, it is the block without the token that the target gives. ``speculative`` is
        True once a gauge or the counter of verifications shows speculation, else None. ``kv_usage`` is that of the
        fullest rank.
        """
        page = read_exposition(pages[_METRICS], _WANTED)
        running, waiting = _loads(pages.get(_LOADS))
        steps, block = page.highest(_STEPS), page.highest(_TREE)
        gamma = _whole(steps)
        if gamma is None and block is not None and block > 1:
            gamma = _whole(block - 1)
        shown = (gamma or 0, page.highest(_ACCEPT_LENGTH) or 0, page.total(*_VERIFY_CALLS) or 0)
        return EngineReading(
            running=request_count(_over_ranks(page, _RUNNING) if running is None else running),
            waiting=request_count(_over_ranks(page, _WAITING) if waiting is None else waiting),
            kv_usage=share(page.highest(_KV_USAGE)),
            speculative=True if any(value > 0 for value in shown) else None,
            gamma=gamma,
            generation_tokens=page.total(*_GENERATION_TOKENS),
            prompt_tokens=page.total(*_PROMPT_TOKENS),
        )

    def gamma_from_response(self, body: Mapping[str, object]) -> int | None:
        """Draft tokens per step as the request's report tells it; None where steps differ, or without a report."""
        report = _report(body)
        steps, proposed = count(report.get("spec_verify_ct")), count(report.get("spec_num_proposed_drafts"))
        if not steps or proposed is None or proposed % steps:
            return None
        return believed_gamma(proposed // steps)

    def acceptance_from_response(self, body: Mapping[str, object]) -> RequestAcceptance | None:
        """``sglext.spec_tokens_details`` of a request that set ``return_spec_tokens_details``, or ``meta_info``.

        Requests for several choices get a list of reports, which is not read.
        """
        report, gamma = _report(body), self.gamma_from_response(body)
        steps, proposed = count(report.get("spec_verify_ct")), count(report.get("spec_num_proposed_drafts"))
        correct = count(report.get("spec_num_correct_drafts"))
        if not steps or not proposed or correct is None or correct > proposed:
            return None
        if gamma is None:
            return RequestAcceptance(
                drafts=steps, draft_tokens=proposed, accepted_tokens=correct, histogram=None, gamma=None
            )
        # What was never seen at the histogram's end is left out, and all of it where the server does not keep one.
        histogram = counts(report.get("spec_correct_drafts_histogram")) or None
        return believed_acceptance(steps, proposed, correct, gamma, histogram)


def _report(body: Mapping[str, object]) -> Mapping[str, object]:
    """What an answer reports of its drafts; empty where it reports nothing."""
    extension = body.get("sglext")
    report = extension.get("spec_tokens_details") if isinstance(extension, Mapping) else body.get("meta_info")
    return report if isinstance(report, Mapping) else {}


def _whole(value: float | None) -> int | None:
    return believed_gamma(int(value)) if value is not None and value == math.floor(value) else None


def _over_ranks(page: Exposition, name: str) -> float | None:
    """The sum over data-parallel ranks, for each the largest of what its workers say."""
    by_rank: dict[str, float] = {}
    for sample in page.samples(name):
        if not 0 <= sample.value <= LARGEST_COUNT:
            return None
        rank = sample.labels.get("dp_rank", "")
        by_rank[rank] = max(by_rank.get(rank, 0.0), sample.value)
    return math.fsum(by_rank.values()) if by_rank else None


def _loads(text: str | None) -> tuple[float | None, float | None]:
    """Running and waiting requests over all ranks; None where a rank does not say."""
    if text is None:
        return None, None
    try:
        page = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    ranks = page.get("loads") if isinstance(page, dict) else None
    if not isinstance(ranks, list) or not ranks or not all(isinstance(rank, dict) for rank in ranks):
        return None, None
    running, waiting = ([count(rank.get(name)) for rank in ranks] for name in ("num_running_reqs", "num_waiting_reqs"))
    return _sum(running), _sum(waiting)


def _sum(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(sum(known)) if len(known) == len(values) else None
