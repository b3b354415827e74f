"""``vllm bench forward``: single engine steps, timed without sampling and scheduler. The best calibration source.

A case is ``N*Q@KV:D``: N requests with Q query tokens each over KV tokens of context, of which D are drafts. Decoding
requests have Q = D + 1; all others are prompt tokens in the step. The drafter is in the time unless
``--exclude-drafter`` was given, and the file does not tell: it is taken as in, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.raw import RawRow, Stated
from adaptive_gamma.bench.row import StepSeen, SweepRow
from adaptive_gamma.errors import SweepError

__all__ = ["FORMAT", "forward_rows", "is_forward"]

FORMAT = "vllm-bench-forward"


def is_forward(value: Any) -> bool:
    """Whether a document is the list of cases that ``--output-json`` writes."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and item.keys() >= {"case", "requests", "median_us"} for item in value)
    )


def forward_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """One row for each case with decoding requests; a bad case does not take the others with it."""
    drafted = False
    for index, item in enumerate(document.value):
        fields = Fields(item, document.source, f"[{index}].")
        try:
            raw = _case(fields, findings)
        except SweepError as error:
            findings.error(document.source, error)
            continue
        if raw is not None:
            drafted = drafted or bool(raw.stated)
            yield raw
    if drafted:
        findings.note(
            document.source,
            "does not tell whether --exclude-drafter was given; the drafter is taken as in",
            "median_us",
        )


def _case(fields: Fields, findings: Findings) -> RawRow | None:
    case = fields.text("case") or ""
    seconds = fields.seconds_per_token("median_us", scale=1e-6)
    if seconds is None:
        raise fields.error("median_us", "is missing")
    decoding: list[tuple[int, int, float]] = []
    prefill = 0
    for request in fields.objects("requests"):
        query, drafts = request.required_count("query_len"), request.count("num_draft_tokens") or 0
        if drafts + 1 == query:
            context = request.length("kv_len")
            if context is None:
                raise request.error("kv_len", "is missing")
            decoding.append((query, drafts, context))
        elif drafts:
            raise request.error("num_draft_tokens", f"{drafts} drafts in a query of {query} tokens")
        else:
            prefill += query
    if not decoding:
        findings.skipped(fields.source, f"case {case!r} has no decoding requests", fields.inside + "requests")
        return None
    gammas = {drafts for _, drafts, _ in decoding}
    if len(gammas) > 1:
        raise fields.error("requests", f"mixes drafts of {', '.join(map(str, sorted(gammas)))} tokens in one step")
    gamma = gammas.pop()
    sequences = len(decoding)
    row = SweepRow(
        source=fields.source,
        format=FORMAT,
        engine="vllm",
        completed=_samples(fields),
        run=case,
        step=StepSeen(
            seconds=seconds,
            sequences=sequences,
            tokens_per_sequence=gamma + 1.0,
            scheduled_tokens=sequences * (gamma + 1) + prefill,
            context_tokens=sum(context for _, _, context in decoding) / sequences,
            includes_drafter=gamma > 0,
            prefill_tokens=prefill,
        ),
    )
    return RawRow(row, Stated(gamma, True, "the case's num_draft_tokens") if gamma else None)


def _samples(fields: Fields) -> int:
    """How often the step was timed; 1 where that is not recorded."""
    for rank in fields.objects("ranks"):
        latency = rank.object("latency_us")
        if latency is not None:
            return latency.count("count") or 1
    return 1
