"""Benchmark results, by the same reader as ``policy build --from``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adaptive_gamma.bench import SweepRow, read_sweep
from adaptive_gamma.doctor.evidence import BenchArm, BenchRemark
from adaptive_gamma.doctor.gather.unreadable import Unreadable
from adaptive_gamma.errors import ConfigurationError, SweepError

__all__ = ["BenchEvidence", "read_benches"]

_MADE_UP = "made-up prompts"


@dataclass(frozen=True, slots=True)
class BenchEvidence:
    """Runs of all files given, and what the reader said of them."""

    files: tuple[str, ...] = ()
    arms: tuple[BenchArm, ...] = ()
    remarks: tuple[BenchRemark, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def read_benches(paths: Sequence[Path]) -> BenchEvidence:
    """Read files and folders of results. One without a result that can be used is unreadable, with the reason."""
    files: list[str] = []
    arms: list[BenchArm] = []
    remarks: list[BenchRemark] = []
    unreadable: list[Unreadable] = []
    for path in paths:
        try:
            sweep = read_sweep([path])
        except (SweepError, ConfigurationError) as error:
            unreadable.append(Unreadable(str(path), error.problem))
            continue
        found = [
            BenchRemark(str(each.source), each.field, each.problem, each.kind == "refused" and _MADE_UP in each.problem)
            for each in sweep.findings
        ]
        if not sweep.rows:
            reasons = "; ".join(remark.text for remark in found[:3]) or "holds no result"
            unreadable.append(Unreadable(str(path), reasons))
            continue
        files.append(str(path))
        remarks += found
        arms += [_arm(row) for row in sweep.rows]
    return BenchEvidence(tuple(files), tuple(arms), tuple(remarks), tuple(unreadable))


def _arm(row: SweepRow) -> BenchArm:
    return BenchArm(
        where=str(row.source),
        name=row.arm or Path(row.source.file).name,
        speculative=row.speculative,
        gamma=row.gamma,
        load=row.concurrency_asked if row.concurrency_asked is not None else row.concurrency,
        tokens_per_s=row.output_tokens_per_s,
        made_up_prompts=row.acceptance is not None and row.acceptance.made_up_prompts,
        prompts=row.request_class or row.dataset,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
    )
