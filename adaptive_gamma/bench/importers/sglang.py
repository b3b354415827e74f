"""``sglang.bench_serving`` (also ``sglang.benchmark.serving``): one object a run, appended as a line.

Traps, by name:

* ``accept_length`` is the server's average since its last reset, not this run's: marked cumulative. Flush the cache
  (``--flush-cache``) before each arm to clear it.
* ``request_rate`` may be a bare ``Infinity`` or a word; it is not read. ``max_concurrency`` may be null.
* gamma stands in ``server_info`` (or the tag). A drafter with a tree verifies more tokens than gamma + 1: refused.
* There may be no failed count: ``num_prompts`` less the completed, else the errors that are not empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.prompts import made_up_by_name
from adaptive_gamma.bench.importers.raw import RawRow, Stated
from adaptive_gamma.bench.importers.vllm_serve import mean_length
from adaptive_gamma.bench.row import SpeculationSeen, SweepRow

__all__ = ["FORMAT", "is_sglang", "sglang_rows"]

FORMAT = "sglang-bench-serving"
MARKS = {"backend", "dataset_name", "max_concurrency", "total_output_tokens", "duration", "completed"}


def is_sglang(value: Any) -> bool:
    """Whether a document is a run of SGLang's benchmark."""
    return isinstance(value, dict) and value.keys() >= MARKS and "model_id" not in value


def sglang_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """The run's row. Raises SweepError for a run that cannot be used."""
    fields = Fields(document.value, document.source)
    completed = fields.required_count("completed")
    failed = _failed(fields, completed, findings)
    if completed == 0:
        raise fields.error("completed", f"no request completed ({failed} failed)")
    duration = fields.seconds("duration")
    if not duration:
        raise fields.error("duration", "is missing" if duration is None else "is zero")
    server = _Server(fields)
    tag, dataset = fields.text("tag"), fields.text("dataset_name")
    row = SweepRow(
        source=document.source,
        format=FORMAT,
        engine=_engine(fields.text("backend")),
        engine_version=server.text("version"),
        model=server.text("served_model_name") or server.text("model_path") or fields.text("model"),
        drafter=(server.text("speculative_algorithm") or "").lower() or None,
        dataset=dataset,
        arm=tag,
        concurrency_asked=fields.concurrency("max_concurrency"),
        concurrency=fields.load("concurrency"),
        input_tokens=mean_length(fields, "total_input_tokens", completed),
        output_tokens=mean_length(fields, "total_output_tokens", completed),
        output_tokens_per_s=fields.tokens_per_second("output_throughput"),
        tpot_p50_s=fields.seconds_per_token("median_tpot_ms", scale=1e-3),
        tpot_p99_s=fields.seconds_per_token("p99_tpot_ms", scale=1e-3),
        tpot_mean_s=fields.seconds_per_token("mean_tpot_ms", scale=1e-3),
        ttft_p50_s=fields.seconds("median_ttft_ms", scale=1e-3),
        acceptance=_acceptance(fields, findings),
        completed=completed,
        failed=failed,
        duration_s=duration,
        run=str(document.source.line or ""),
    )
    yield RawRow(row, server.stated(), made_up_by_name((dataset, tag)))


class _Server:
    """``server_info``: the server's arguments at its top, what the scheduler knows in ``internal_states[0]``."""

    def __init__(self, fields: Fields) -> None:
        info = fields.object("server_info")
        states = list(info.objects("internal_states")) if info is not None else []
        self.places = [place for place in (*states[:1], info) if place is not None]

    def text(self, key: str) -> str | None:
        return next((value for place in self.places if (value := place.text(key)) is not None), None)

    def count(self, key: str) -> int | None:
        return next((value for place in self.places if (value := place.count(key)) is not None), None)

    def stated(self) -> Stated | None:
        """What it says of speculation: only ``speculative_algorithm: null`` says that there is none."""
        known = [place for place in self.places if "speculative_algorithm" in place.values]
        if not known:
            return None
        where = f"{known[0].inside}speculative_algorithm"
        if self.text("speculative_algorithm") is None:
            return Stated(0, False, where)
        steps, verified = self.count("speculative_num_steps"), self.count("speculative_num_draft_tokens")
        if steps is None:
            return None
        branches = self.count("speculative_eagle_topk")
        if (branches or 1) > 1 or (verified is not None and verified != steps + 1):
            raise known[0].error(
                "speculative_num_draft_tokens",
                f"the drafter makes a tree ({verified} tokens verified at {steps} steps); only chains are priced",
            )
        return Stated(steps, True, f"{known[0].inside}speculative_num_steps")


def _engine(backend: str | None) -> str | None:
    if backend is None:
        return None
    return next((engine for engine in ("sglang", "vllm", "lmdeploy", "trt") if backend.startswith(engine)), None)


def _failed(fields: Fields, completed: int, findings: Findings) -> int:
    failed, asked = fields.count("failed"), fields.count("num_prompts")
    if failed is not None:
        return failed
    if asked is not None:
        return max(asked - completed, 0)
    errors = fields.values.get("errors")
    if isinstance(errors, list):
        return sum(bool(error) for error in errors)
    findings.note(fields.source, "is not in the file; taken as none", "failed")
    return 0


def _acceptance(fields: Fields, findings: Findings) -> SpeculationSeen | None:
    length = fields.number("accept_length")
    if length is None or length == 0:
        return None
    findings.note(fields.source, "is the server's average since its last reset, not this run's", "accept_length")
    return SpeculationSeen(mean_length=fields.number("accept_length", least=1.0), cumulative=True)
