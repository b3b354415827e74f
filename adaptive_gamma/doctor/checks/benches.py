"""Benchmarks: what they were measured on, and what they say of speculation."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.evidence import BenchArm
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix

__all__ = ["BENCH_LOSING", "BENCH_PROMPTS"]

_SLOWER = 0.97
_SAME = 0.05
_RANDOM = Cost(
    "measured: 11.96 % of drafts accepted on random tokens, 51.86 % on prose",
    "vLLM PR #53906 (GLM-5.3-Flash on MI350X)",
)


def _prompts(case: Case) -> Iterator[Said]:
    by_file: dict[str, list[Evidence]] = {}
    for remark in case.remarks:
        if remark.made_up_prompts:
            by_file.setdefault(remark.where, []).append(Evidence("setting", remark.where, remark.text[:240]))
    for where, evidence in by_file.items():
        yield Finding(
            "bench_on_made_up_prompts",
            "problem",
            where,
            "the benchmark was run on prompts that nobody sends",
            tuple(evidence[:3]),
            "a drafter cannot guess random tokens, so acceptance on them says nothing of real traffic",
            _RANDOM,
            Fix(
                "measure on prompts of your own, or on those that come along",
                (
                    "adaptive-gamma sweep --dataset builtin",
                    "vllm bench serve --dataset-name custom --dataset-path FILE",
                ),
            ),
        )


def _losing(case: Case) -> Iterator[Said]:
    plain = [arm for arm in case.arms if arm.speculative is False and arm.tokens_per_s and arm.load]
    for arm in case.arms:
        if not arm.speculative or arm.gamma == 0 or not arm.tokens_per_s or arm.load is None or arm.made_up_prompts:
            continue
        other = next((each for each in plain if _comparable(arm, each)), None)
        if other is None or other.tokens_per_s is None or arm.tokens_per_s >= _SLOWER * other.tokens_per_s:
            continue
        yield Finding(
            "bench_speculation_losing",
            "problem",
            arm.name,
            f"at {arm.load:g} requests at once speculation is slower than none: {arm.tokens_per_s:.4g} against "
            f"{other.tokens_per_s:.4g} tokens/s",
            (
                Evidence("figure", arm.where, f"{arm.tokens_per_s:.4g} tokens/s with gamma {_known(arm.gamma)}"),
                Evidence("figure", other.where, f"{other.tokens_per_s:.4g} tokens/s plain"),
            ),
            "at this load and on these prompts drafts cost more than they bring (one run each: small differences "
            "are noise)",
            Cost(f"{1 - arm.tokens_per_s / other.tokens_per_s:.0%} of the throughput at that load", "here"),
            Fix(
                "make a policy of these runs, and let it choose by load", ("adaptive-gamma policy build --from FOLDER",)
            ),
        )


def _comparable(arm: BenchArm, plain: BenchArm) -> bool:
    if arm.load != plain.load or arm.prompts != plain.prompts:
        return False
    return all(
        ours is None or theirs is None or abs(ours - theirs) <= _SAME * theirs
        for ours, theirs in (
            (arm.input_tokens, plain.input_tokens),
            (arm.output_tokens, plain.output_tokens),
        )
    )


def _known(gamma: int | None) -> str:
    return "not known" if gamma is None else str(gamma)


BENCH_PROMPTS = Check(
    "bench prompts", "Was the benchmark run on real text?", ("bench_on_made_up_prompts",), _prompts, "bench"
)
BENCH_LOSING = Check(
    "bench", "Is speculation slower than none in the benchmark?", ("bench_speculation_losing",), _losing, "bench"
)
