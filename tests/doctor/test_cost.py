"""The arithmetic: what holds for any numbers."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from adaptive_gamma.doctor.cost import (
    LEAST_STEPS,
    best_gamma,
    conditional,
    expected_tokens,
    explained_step_ratio,
    mean_pace,
    unconditional,
)
from adaptive_gamma.engines import EngineReading, LatencySum

_RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).map(lambda rates: sorted(rates, reverse=True))
_GAMMAS = st.integers(1, 16)


@given(_RATES)
def test_a_step_gives_one_token_and_at_most_one_for_each_draft_more(rates: list[float]) -> None:
    tokens = [expected_tokens(rates, gamma) for gamma in range(len(rates) + 1)]
    assert tokens[0] == 1.0
    assert all(before <= after <= before + 1.0 + 1e-9 for before, after in pairwise(tokens))


@given(_RATES)
def test_conditional_rates_multiply_back(rates: list[float]) -> None:
    product = 1.0
    found = conditional(rates)
    for rate, wanted in zip(found, rates, strict=False):
        product *= rate
        assert math.isclose(product, wanted, rel_tol=1e-6, abs_tol=1e-12)
    assert len(found) == len(rates) or rates[len(found) - 1] == 0.0 or rates[len(found)] == 0.0


@given(_RATES, st.floats(0.0, 0.5))
def test_the_best_gamma_is_at_least_as_good_as_the_longest(rates: list[float], share: float) -> None:
    best, gain = best_gamma(rates, share)
    assert 0 <= best <= len(rates)
    assert gain >= 0
    if share == 0.0 and rates[-1] > 1e-6:
        assert best == len(rates)


@given(_RATES, st.floats(0.0, 0.4), st.floats(0.0, 0.1))
def test_dearer_passes_never_make_drafts_longer(rates: list[float], share: float, more: float) -> None:
    assert best_gamma(rates, share + more)[0] <= best_gamma(rates, share)[0]


@given(_GAMMAS, st.floats(1.0, 512.0), st.floats(1.0, 512.0), st.integers(0, 16))
def test_what_is_explained_grows_with_what_explains_it(gamma: int, batch: float, plain: float, passes: int) -> None:
    ratio = explained_step_ratio(gamma, batch, plain, passes)
    assert ratio >= 1.0
    assert explained_step_ratio(gamma + 1, batch, plain, passes) >= ratio
    assert explained_step_ratio(gamma, batch + 1, plain, passes) >= ratio
    assert explained_step_ratio(gamma, batch, plain, passes + 1) > ratio
    assert explained_step_ratio(gamma, batch, plain + 1, passes) <= ratio


def test_measured_servers_are_explained_and_the_field_note_s_is_not() -> None:
    eagle3 = {2: 4.32 * 2.36, 3: 4.09 * 2.79, 4: 4.05 * 3.08, 5: 4.13 * 3.32, 6: 4.20 * 3.46, 7: 4.29 * 3.54}
    for gamma, step_ms in eagle3.items():  # Llama-3.1-8B, one request (vLLM issue #20780)
        assert step_ms / 7.07 < explained_step_ratio(gamma, 1, 1, gamma)
    most = 1.4 * explained_step_ratio(3, 1, 1, 3)
    for step_ms in (165.0, 108.0):
        assert step_ms * 26.3 / 1000 > most


@given(
    step_s=st.floats(1e-3, 10.0),
    steps=st.integers(int(LEAST_STEPS), 10**6),
    per_step=st.floats(1.0, 17.0),
    requests=st.integers(1, 1000),
    batch=st.floats(1.0, 64.0),
    old=st.integers(0, 10**6),
)
def test_a_pace_is_what_was_put_in(
    step_s: float, steps: int, per_step: float, requests: int, batch: float, old: int
) -> None:
    def reading(count: float, age: float) -> EngineReading:
        return EngineReading(
            generation_tokens=count * per_step + requests * age,
            first_tokens=requests * age,
            inter_token_latency=LatencySum(count * step_s, count),
            engine_steps=count / batch,
        )

    first, last = reading(old, 1), reading(old + steps, 2)
    pace = mean_pace(first, last, "while watched")
    assert pace is not None
    assert math.isclose(pace.step_s, step_s, rel_tol=1e-3)
    assert pace.tokens_per_step is not None
    assert math.isclose(pace.tokens_per_step, per_step, rel_tol=1e-3)
    assert pace.batch is not None
    assert math.isclose(pace.batch, batch, rel_tol=1e-3)
    assert math.isclose(pace.tokens_per_s or 0, per_step / step_s, rel_tol=1e-2)


@given(st.floats(), st.floats(), st.floats(), st.floats())
def test_any_counters(seconds: float, count: float, tokens: float, first_tokens: float) -> None:
    assume(not math.isnan(count))
    reading = EngineReading(
        generation_tokens=tokens, first_tokens=first_tokens, inter_token_latency=LatencySum(seconds, count)
    )
    for first in (None, reading, EngineReading()):
        pace = mean_pace(first, reading, "since its start")
        if pace is not None:
            assert pace.step_s > 0
            assert pace.words


@given(st.floats(), st.lists(st.floats(), max_size=6))
def test_rates_of_any_counts(drafts: float, counts: list[float]) -> None:
    rates = unconditional(drafts, counts)
    if rates is not None:
        assert all(0 <= rate <= 1 + 1e-9 for rate in rates)


def test_too_little_is_no_pace() -> None:
    assert mean_pace(None, EngineReading(), "since its start") is None
    few = EngineReading(inter_token_latency=LatencySum(1.0, LEAST_STEPS - 1), generation_tokens=99)
    assert mean_pace(None, few, "since its start") is None
