"""The engine's core as a pure object: time is a number, and every law of the real engine's counters must hold."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.engine import (
    CoreLimits,
    EngineCore,
    EngineRequest,
    LinearStepClock,
    PolicyStepClock,
    ScriptedAcceptance,
    StepOutcome,
    drain,
)

CLOCK = LinearStepClock(base_s=0.01, token_s=0.0001, draft_pass_s=0.001)
ACCEPTANCE = ScriptedAcceptance({"structured": (0.84, 0.83), "chat": (0.73, 0.5, 0.4)})

gammas = st.one_of(
    st.none(),
    st.integers(0, 8),
    st.lists(st.integers(0, 6), min_size=1, max_size=3).map(
        lambda ks: GammaSchedule([(3 * i + 1, 3 * i + 3, k) for i, k in enumerate(ks)])
    ),
)
requests = st.lists(
    st.tuples(
        st.integers(1, 120), st.integers(1, 60), st.floats(0, 2), st.sampled_from(["structured", "chat", "unsure"])
    ),
    min_size=1,
    max_size=24,
)
limits = st.builds(
    CoreLimits,
    max_num_seqs=st.integers(1, 8),
    max_num_batched_tokens=st.integers(8, 200),
    max_model_len=st.just(200),
    kv_blocks=st.integers(13, 60),
    block_tokens=st.just(16),
)


def make(spec: list[tuple[int, int, float, str]]) -> list[tuple[float, EngineRequest]]:
    arrivals = sorted(((at, i, row) for i, row in enumerate(spec) for at in (row[2],)), key=lambda x: x[:2])
    return [(at, EngineRequest(f"r{i}", row[3], row[0], row[1], seed=i)) for at, i, row in arrivals]


@settings(max_examples=150, deadline=None)
@given(requests, limits, gammas)
def test_tokens_are_conserved_and_limits_hold(
    spec: list[tuple[int, int, float, str]], sizes: CoreLimits, gamma: int | GammaSchedule | None
) -> None:
    core = EngineCore(sizes, CLOCK, ACCEPTANCE, gamma)
    given_tokens: Counter[str] = Counter()
    finished = {}
    now = 0.0
    for outcome in drain(core, 0.0, make(spec)):
        plan = outcome.plan
        assert outcome.finished_at > now
        now = outcome.finished_at
        assert 1 <= plan.batch <= sizes.max_num_seqs
        assert core.running <= sizes.max_num_seqs
        assert plan.decoding + plan.verify_tokens + plan.prefill_tokens <= sizes.max_num_batched_tokens
        assert 0.0 <= core.kv_usage <= 1.0
        assert outcome.generation_tokens == sum(event.tokens for event in outcome.events)
        assert outcome.accepted_tokens == sum(outcome.accepted_per_position) <= outcome.draft_tokens
        assert outcome.draft_tokens == plan.verify_tokens
        per_position = outcome.accepted_per_position
        assert all(a >= b for a, b in zip((outcome.drafts, *per_position), per_position, strict=False))
        for event in outcome.events:
            given_tokens[event.request_id] += event.tokens
            if event.finished is not None:
                finished[event.request_id] = event.finished
    assert given_tokens == {f"r{i}": row[1] for i, row in enumerate(spec)}
    assert {name: account.reason for name, account in finished.items()} == dict.fromkeys(given_tokens, "length")
    assert core.kv_usage == 0.0
    for account in finished.values():
        assert account.scheduled_at is not None
        assert account.first_token_at is not None
        assert account.last_token_at is not None
        assert account.arrived_at <= account.scheduled_at < account.first_token_at <= account.last_token_at
        if account.preemptions == 0:
            # the first token needs no verify step; every later one comes out of a step, cut at the answer's end
            gained = sum(account.per_step_accepted) + len(account.per_step_accepted)
            assert gained + 1 >= account.generated or gamma is None or gamma == 0 or isinstance(gamma, GammaSchedule)


@settings(max_examples=60, deadline=None)
@given(requests, limits, gammas, st.randoms(use_true_random=False))
def test_aborts_free_everything_at_once(
    spec: list[tuple[int, int, float, str]],
    sizes: CoreLimits,
    gamma: int | GammaSchedule | None,
    rng: random.Random,
) -> None:
    core = EngineCore(sizes, CLOCK, ACCEPTANCE, gamma)
    open_ids = set()
    for _, request in make(spec):
        core.submit(request, 0.0)
        open_ids.add(request.request_id)
    now = 0.0
    while core.has_work:
        plan = core.begin_step(now)
        assert plan is not None
        victim = rng.choice(sorted(open_ids))  # in the middle of a step
        account = core.abort(victim, now)
        assert account is not None
        assert account.reason == "abort"
        open_ids.discard(victim)
        now += plan.seconds
        outcome = core.finish_step(now)
        assert victim not in {event.request_id for event in outcome.events}
        open_ids -= {event.request_id for event in outcome.events if event.finished}
        assert core.running + core.waiting == len(open_ids)
    assert core.abort("r0", now) is None
    assert core.kv_usage == 0.0


def run(
    gamma: int | GammaSchedule | None, request_class: str, *, count: int = 40, tokens: int = 400
) -> list[StepOutcome]:
    core = EngineCore(CoreLimits(max_num_seqs=8), CLOCK, ACCEPTANCE, gamma)
    return list(
        drain(core, 0.0, [(0.0, EngineRequest(f"r{i}", request_class, 10, tokens, seed=i)) for i in range(count)])
    )


@pytest.mark.parametrize(
    ("request_class", "conditional"),
    [("structured", (0.84, 0.83, 0.83, 0.83)), ("chat", (0.73, 0.5, 0.4, 0.4)), ("prose", (0.73, 0.5, 0.4, 0.4))],
)
def test_measured_acceptance_converges_to_the_script(request_class: str, conditional: tuple[float, ...]) -> None:
    outcomes = run(4, request_class)
    drafts = sum(o.drafts for o in outcomes)
    accepted = [sum(o.accepted_per_position[i] for o in outcomes) for i in range(4)]
    assert drafts > 4000
    for before, after, rate in zip([drafts, *accepted], accepted, conditional, strict=False):
        four_sigma = 4 * (rate * (1 - rate) / before) ** 0.5
        assert after / before == pytest.approx(rate, abs=four_sigma)


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(5, "chat", count=6) == run(5, "chat", count=6)


def test_a_step_with_gamma_zero_counts_no_draft_and_pays_the_tax() -> None:
    outcomes = run(0, "chat", count=1, tokens=5)
    assert sum(o.drafts + o.draft_tokens for o in outcomes) == 0
    taxed = LinearStepClock(0.01, 0.0001, speculative=True)
    assert taxed.seconds(4, 0, 100.0, 0) == pytest.approx(1.066 * CLOCK.seconds(4, 0, 100.0, 0))
    assert taxed.seconds(4, 2, 100.0, 0) == pytest.approx(0.01 + 0.0001 * 12)


def test_the_schedule_takes_effect_on_the_next_step() -> None:
    core = EngineCore(CoreLimits(), CLOCK, ACCEPTANCE, GammaSchedule([(1, 1, 4), (2, 9, 1)]))
    core.submit(EngineRequest("a", "chat", 4, 50), 0.0)
    plan = core.begin_step(0.0)
    assert plan is not None
    assert (plan.batch, plan.gamma, plan.verify_tokens) == (1, 4, 0)  # prefill: drafts 4, verifies none
    core.finish_step(1.0)
    core.submit(EngineRequest("b", "chat", 4, 50), 1.0)
    plan = core.begin_step(1.0)
    assert plan is not None
    assert (plan.batch, plan.gamma, plan.verify_tokens) == (2, 1, 4)
    core.finish_step(2.0)
    plan = core.begin_step(2.0)
    assert plan is not None
    assert (plan.batch, plan.gamma, plan.verify_tokens) == (2, 1, 2)


def test_long_prompts_are_computed_in_chunks_beside_decoding() -> None:
    core = EngineCore(CoreLimits(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=2000), CLOCK, ACCEPTANCE, 2)
    core.submit(EngineRequest("short", "chat", 8, 100), 0.0)
    outcomes = []
    for outcome in drain(core, 0.0, [(0.01, EngineRequest("long", "chat", 1000, 3))]):
        outcomes.append(outcome)
    chunks = [o.plan.prefill_tokens for o in outcomes if o.plan.prefill_tokens]
    assert max(chunks) <= 64
    assert sum(chunks) == 1008
    during = [o for o in outcomes[1:] if o.plan.prefill_tokens]
    assert len(during) >= 16
    assert sum(o.plan.decoding for o in during) > 0


def test_when_blocks_run_out_the_last_admitted_starts_over() -> None:
    sizes = CoreLimits(max_num_seqs=4, max_num_batched_tokens=512, max_model_len=160, kv_blocks=10, block_tokens=16)
    core = EngineCore(sizes, CLOCK, ACCEPTANCE)
    arrivals = [(0.0, EngineRequest(f"r{i}", "chat", 40, 100, seed=i)) for i in range(3)]
    finished = [e.finished for o in drain(core, 0.0, arrivals) for e in o.events if e.finished is not None]
    assert [account.request.request_id for account in finished] == ["r0", "r1", "r2"]
    assert finished[0].preemptions == 0
    assert core.preemptions == sum(account.preemptions for account in finished) > 0


def test_answers_end_by_themselves_or_at_the_limit() -> None:
    core = EngineCore(CoreLimits(), CLOCK, ACCEPTANCE, 3)
    arrivals = [
        (0.0, EngineRequest("stops", "chat", 4, 50, stop_after=7)),
        (0.0, EngineRequest("runs", "chat", 4, 5, stop_after=7)),
    ]
    ends = {
        e.request_id: (e.finished.reason, e.finished.generated)
        for o in drain(core, 0.0, arrivals)
        for e in o.events
        if e.finished is not None
    }
    assert ends == {"stops": ("stop", 7), "runs": ("length", 5)}


class Table:
    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float:
        tax = 1.1 if speculative and gamma == 0 else 1.0
        return tax * (0.02 + 0.0001 * batch * (gamma + 1)) + 1e-7 * (context_tokens or 0)

    def prefill_seconds(self, tokens: int) -> float:
        return 0.0001 * tokens


def test_the_policy_clock_asks_the_policy() -> None:
    spec, plain = PolicyStepClock(Table(), speculative=True), PolicyStepClock(Table(), speculative=False)
    assert spec.seconds(4, 3, 1000.5, 0) == Table().step_seconds(4, 3, 1000.5)
    assert spec.seconds(4, 0, 0.0, 0) == pytest.approx(1.1 * plain.seconds(4, 0, 0.0, 0))
    assert plain.seconds(4, 0, 0.0, 500) - plain.seconds(4, 0, 0.0, 0) == pytest.approx(0.05)
    assert spec.seconds(0, 0, 0.0, 500) == plain.seconds(1, 0, 0.0, 500)


def test_wrong_values_are_refused() -> None:
    core = EngineCore(CoreLimits(max_model_len=100), CLOCK, ACCEPTANCE)
    core.submit(EngineRequest("a", "chat", 10, 10), 0.0)
    with pytest.raises(ValueError, match="already here"):
        core.submit(EngineRequest("a", "chat", 10, 10), 0.0)
    with pytest.raises(ValueError, match="max_model_len"):
        core.submit(EngineRequest("b", "chat", 90, 11), 0.0)
    with pytest.raises(RuntimeError, match="begin"):
        core.finish_step(0.0)
    assert core.begin_step(0.0) is not None
    with pytest.raises(RuntimeError, match="under way"):
        core.begin_step(0.0)
    for rates in ({}, {"chat": ()}, {"chat": (1.2,)}):
        with pytest.raises(ValueError, match=r"rate|class"):
            ScriptedAcceptance(rates)
    with pytest.raises(ValueError, match="max_num_seqs"):
        CoreLimits(max_num_seqs=64, max_num_batched_tokens=32)
    with pytest.raises(ValueError, match="at least one sequence"):
        CoreLimits(kv_blocks=2)
