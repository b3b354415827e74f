"""Acceptance to expect of a drafter family before any traffic, as (first position, plateau) by class."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_gamma.policy.schema import (
    AutoregressiveInput,
    ClassPrior,
    DrafterInput,
    NgramInput,
    ParallelInput,
    TwoParameters,
)

__all__ = ["FAMILIES", "DrafterFamily", "family_named"]


@dataclass(frozen=True, slots=True)
class DrafterFamily:
    """A kind of drafter: what it costs and what it gets accepted."""

    name: str
    drafter: DrafterInput
    priors: dict[str, tuple[float, float]]
    """Class -> (acceptance at position 1, conditional acceptance at every later position)."""
    source: str

    def classes(self) -> dict[str, ClassPrior]:
        """The priors as a policy's classes."""
        return {
            name: ClassPrior(
                reading="unconditional", two_parameter=TwoParameters(first=p1, plateau=r), source=self.source
            )
            for name, (p1, r) in self.priors.items()
        }


_EAGLE3 = DrafterFamily(
    name="eagle3",
    drafter=AutoregressiveInput(
        kind="autoregressive",
        family="eagle3",
        pass_fraction=0.12,
        source="10-14 % of a target step per pass, Llama-3.1-8B at batch 1 (vLLM issue #20780)",
    ),
    priors={"structured": (0.89, 0.80), "chat": (0.73, 0.68), "unsure": (0.80, 0.76)},
    source="accepted lengths at gamma 3/5/7 of SpecForge EAGLE-3 on SGLang/H200, mean of 8-10 targets: structured = "
    "HumanEval, LiveCodeBench, MATH-500, GSM8K; chat = MT-bench; unsure = those, GPQA and FinanceQA",
)
_EAGLE1 = DrafterFamily(
    name="eagle1",
    drafter=AutoregressiveInput(
        kind="autoregressive",
        family="eagle1",
        pass_fraction=0.105,
        source="0.740 ms per pass on a 7.07 ms step, Llama-3.1-8B at batch 1 (vLLM issue #20780)",
    ),
    priors={"structured": (0.64, 0.65), "chat": (0.64, 0.65), "unsure": (0.64, 0.65)},
    source="EAGLE on Llama-3.1-8B (SpecDecode-Bench): code and prose within 0.1 accepted tokens of each other",
)
_PARALLEL = DrafterFamily(
    name="dflash",
    drafter=ParallelInput(
        kind="parallel",
        family="dflash",
        weight_fraction=0.17,
        compute_fraction=0.26,
        kv_fraction=0.17,
        source="a draft pass takes 17-26 % of a verify pass, DSpark on B300 (vLLM blog 2026-08-14)",
    ),
    priors={"structured": (0.89, 0.83), "chat": (0.75, 0.70), "unsure": (0.75, 0.72)},
    source="DFlash on Gemma-4-31B (vLLM blog 2026-05-28): structured = HumanEval and math, chat = question and "
    "writing, unsure = mean of nine tasks",
)
_MTP = DrafterFamily(
    name="mtp",
    drafter=AutoregressiveInput(
        kind="autoregressive",
        family="mtp",
        pass_fraction=0.10,
        source="low end of the 10-14 % measured for one-layer drafters (vLLM issue #20780); not measured for MTP",
    ),
    priors={"structured": (0.76, 0.84), "chat": (0.73, 0.69), "unsure": (0.74, 0.70)},
    source="structured: MTP on GSM8K (vLLM PR #48892); chat and unsure: general priors, not measured for MTP",
)
_NGRAM = DrafterFamily(
    name="ngram",
    drafter=NgramInput(kind="ngram", family="ngram", fraction=0.006, source="CPU look-up, about 0.6 % of a step"),
    priors={"structured": (0.23, 0.87), "chat": (0.16, 0.80), "unsure": (0.10, 0.70)},
    source="n-gram k = 3 on Llama-3.1-8B (SpecDecode-Bench): structured pools code editing (.37, .92) with maths, "
    "where it fails (.09, .60); chat = ShareGPT; unsure = other tasks, rounded",
)

FAMILIES: dict[str, DrafterFamily] = {f.name: f for f in (_EAGLE3, _EAGLE1, _PARALLEL, _MTP, _NGRAM)}
_ALIASES = {
    "eagle": "eagle1", "eagle31": "eagle3", "dspark": "dflash", "peagle": "dflash", "parallel": "dflash",
    "promptlookup": "ngram",
}  # fmt: skip


def family_named(name: str) -> DrafterFamily | None:
    """The family of that name, case and punctuation aside; ``dspark``, ``p-eagle`` and ``parallel`` mean ``dflash``."""
    squeezed = "".join(c for c in name.lower() if c.isalnum())
    return FAMILIES.get(_ALIASES.get(squeezed, squeezed))
