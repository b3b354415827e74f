"""From what was seen to a verdict: which tests could be made, what each found, and what none would have seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from adaptive_gamma.bench.parity.run import Compared, Comparison, Pair, Sample
from adaptive_gamma.bench.parity.significance import (
    detectable_mean,
    detectable_share,
    fewest_prompts,
    holm,
    sign_flip_p,
    sign_p,
)

__all__ = ["ALPHA", "NEAR", "TOLERANCE", "CandidateVerdict", "Outcome", "TestResult", "judge", "outcome_of"]

ALPHA = 0.01
"""Probability of a false alarm, over all tests of a candidate together."""
TOLERANCE = 0.01
"""Nats a token: a mean difference this far beyond the floor (1 % of a probability) is not called one."""
NEAR = 0.1
"""Nats: two tokens whose log-probabilities lie within it are a near tie, which rounding may decide."""
_MOST_FAILED = 0.1
_LEAST_COVERAGE = 0.5
Outcome = Literal["no_difference_found", "difference_found", "could_not_look"]


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test. Figures are means over prompts, in ``unit``."""

    name: str
    question: str
    unit: str
    prompts: int
    candidate: float | None = None
    floor: float | None = None
    p: float | None = None
    """One-sided; None where the test could not be made."""
    p_adjusted: float | None = None
    detectable: float | None = None
    """What would have been found in four of five such comparisons; None where nothing would."""
    found: bool = False
    not_made: str | None = None

    @property
    def effect(self) -> float | None:
        """How much further off than the floor."""
        return None if self.candidate is None or self.floor is None else self.candidate - self.floor


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    """The tests of one candidate and what they come to."""

    tests: tuple[TestResult, ...]
    prompts: int
    outcome: Outcome
    why: str


def judge(
    compared: Compared, comparison: Comparison, alpha: float, tolerance: float, seed: int = 0
) -> CandidateVerdict:
    """Test one candidate at level ``alpha``; ``tolerance`` in nats a token."""
    made: list[TestResult] = [_text_test(compared.pairs)]
    for name, question, of, least in _FIGURES:
        made.append(_figure_test(compared, name, question, of, least, tolerance, alpha, seed))
    places = [place for place, test in enumerate(made) if test.p is not None]
    level = alpha / max(len(places), 1)
    adjusted = holm([p for test in made if (p := test.p) is not None])
    for place, p in zip(places, adjusted, strict=True):
        made[place] = _completed(made[place], p, compared.pairs, level, alpha, tolerance)
    found = [test for test in made if test.found]
    return CandidateVerdict(tuple(made), len(compared.pairs), *_verdict(found, made, compared, comparison, level))


def outcome_of(comparison: Comparison, verdicts: Sequence[CandidateVerdict]) -> Outcome:
    """What the whole comes to: a difference with any candidate, else whether all could be looked at."""
    outcomes = [verdict.outcome for verdict in verdicts]
    if "difference_found" in outcomes:
        return "difference_found"
    if "could_not_look" in outcomes or unfinished(comparison, comparison.floor_prompts) is not None:
        return "could_not_look"
    return "no_difference_found"


def unfinished(comparison: Comparison, whole: int) -> str | None:
    """Why a comparison with so many whole prompts is only a part of the one asked for, or None."""
    if comparison.stopped is not None:
        return f"stopped after {comparison.done} of {comparison.prompts} prompts: {comparison.stopped}"
    if comparison.prompts - whole > _MOST_FAILED * comparison.prompts:
        return f"only {whole} of {comparison.prompts} prompts were answered in every run"
    return None


def _verdict(
    found: list[TestResult], made: list[TestResult], compared: Compared, comparison: Comparison, level: float
) -> tuple[Outcome, str]:
    part = unfinished(comparison, len(compared.pairs))
    suffix = "" if part is None else f" ({part})"
    prompts = len(compared.pairs)
    if found:
        words = f"difference found with {prompts} prompts: {'; '.join(_found_words(test) for test in found)}"
        return "difference_found", words + _near_words(found, compared) + suffix
    if part is not None:
        return "could_not_look", f"no difference found in the part that was seen, which is no verdict{suffix}"
    if prompts < fewest_prompts(level):
        return (
            "could_not_look",
            f"{prompts} prompts are too few, {fewest_prompts(level)} are needed: not even a difference in each would "
            "be significant",
        )
    if all(test.detectable is None for test in made):
        floor = next(test.floor for test in made if test.name == "texts")
        return (
            "could_not_look",
            f"the reference's own answers part in {floor:.0%} of the prompts and there are no log-probabilities to go "
            f"by, so no difference could have been seen with {prompts} prompts",
        )
    return (
        "no_difference_found",
        f"no difference found above the noise floor with {prompts} prompts; {_unseen_words(made)} would not have been "
        "seen",
    )


def _found_words(test: TestResult) -> str:
    return f"{test.question} ({test.candidate:.3g} against {test.floor:.3g} {test.unit}, p {test.p_adjusted:.2g})"


def _near_words(found: list[TestResult], compared: Compared) -> str:
    if any(test.name != "texts" for test in found) or not compared.parted_known:
        return ""
    return (
        f"; where the texts part, the reference holds the two tokens within {NEAR:g} nats of each other in "
        f"{compared.parted_near} of {compared.parted_known} prompts, as another order of rounding would make them part"
    )


def _unseen_words(made: Sequence[TestResult]) -> str:
    """What no test would have found: what is rare, and what is everywhere but small."""
    texts, *figures = made
    rare = "differences of any size"
    if texts.detectable is not None:
        rare = f"differences in under {texts.detectable:.0%} of the prompts"
    even = [
        f"under {test.detectable:.2g} {test.unit} in {test.name}" for test in figures if test.detectable is not None
    ]
    return f"{rare}{' or, spread over all alike, ' if even else ''}{', '.join(even)}"


# -- the tests --------------------------------------------------------------------------------------------------------


def _text_test(pairs: Sequence[Pair]) -> TestResult:
    question = "texts part more often than the reference's own"
    if not pairs:
        return TestResult("texts", question, "of the prompts", 0, not_made="no prompt was answered in every run")
    more = sum(pair.candidate.parted > pair.floor.parted for pair in pairs)
    fewer = sum(pair.candidate.parted < pair.floor.parted for pair in pairs)
    return TestResult(
        "texts", question, "of the prompts", len(pairs),
        fmean(pair.candidate.parted for pair in pairs), fmean(pair.floor.parted for pair in pairs), sign_p(more, fewer),
    )  # fmt: skip


_FIGURES: tuple[tuple[str, str, Callable[[Sample], float | None], bool], ...] = (
    (
        "margins",
        "where texts part, the reference would rather have said something else, by more than in its own runs",
        lambda sample: sample.margin,
        False,
    ),
    (
        "log-probabilities",
        "the same tokens after the same text get other log-probabilities",
        lambda sample: sample.logprob,
        True,
    ),
    (
        "choices",
        "tokens are not the likeliest by the replica's own account",
        lambda sample: sample.regret,
        True,
    ),
)  # fmt: skip


def _known(pairs: Sequence[Pair], of: Callable[[Sample], float | None]) -> list[tuple[float, float]]:
    both = ((of(pair.candidate), of(pair.floor)) for pair in pairs)
    return [(a, b) for a, b in both if a is not None and b is not None]


def _figure_test(
    compared: Compared,
    name: str,
    question: str,
    of: Callable[[Sample], float | None],
    needs_coverage: bool,
    tolerance: float,
    alpha: float,
    seed: int,
) -> TestResult:
    unit = "nats a prompt" if name == "margins" else "nats a token"
    known = _known(compared.pairs, of)
    missing = None
    if needs_coverage:
        missing = _coverage_problem(compared)
    if missing is None and len(known) < fewest_prompts(alpha / (1 + len(_FIGURES))):
        missing = f"log-probabilities are there for {len(known)} of {len(compared.pairs)} prompts"
    if missing is not None:
        return TestResult(name, question, unit, len(known), not_made=missing)
    p = sign_flip_p([a - b - tolerance for a, b in known], seed)
    return TestResult(name, question, unit, len(known), fmean(a for a, _ in known), fmean(b for _, b in known), p)


def _coverage_problem(compared: Compared) -> str | None:
    for who, runs in (("candidate", compared.runs), ("reference", compared.floor)):
        if not runs.tokens:
            return f"the {who} gives no log-probabilities"
        if runs.figures < _LEAST_COVERAGE * runs.tokens:
            return (
                f"the {who} gives log-probabilities of {runs.figures} of {runs.tokens} tokens only: none of those it "
                "took over from a draft"
            )
    return None


def _completed(
    test: TestResult, p: float, pairs: Sequence[Pair], level: float, alpha: float, tolerance: float
) -> TestResult:
    if test.name == "texts":
        fewer = sum(pair.candidate.parted < pair.floor.parted for pair in pairs)
        detectable = detectable_share(len(pairs), fewer, level)
        # What parts in the reference's own runs already cannot part more often.
        if detectable is not None and test.floor is not None and test.floor + detectable > 1.0:
            detectable = None
    else:
        of = next(of for name, _, of, _ in _FIGURES if name == test.name)
        detectable = tolerance + detectable_mean([a - b for a, b in _known(pairs, of)], level)
    return TestResult(
        test.name, test.question, test.unit, test.prompts, test.candidate, test.floor, test.p, p, detectable, p < alpha
    )
