from __future__ import annotations

from math import ceil, inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.replay.gamma_choice import BestGamma, ConstantGamma, GammaChoice, ScheduledGamma
from adaptive_gamma.simulation.replay.pricing import PLAIN, StepPrices
from adaptive_gamma.simulation.replay.replica import Replica, RunLog
from adaptive_gamma.simulation.replay.workload import AcceptanceDraws, ClassedTrace, Workload, merge
from tests.replay.reference import run_reference
from tests.replay.standin import BASE_S, DRAFT_S, FREE_TOKENS, PER_SEQUENCE_S, PER_TOKEN_S, ZERO_GAMMA_TAX, HandPolicy
from tests.replay.worlds import close, trace_of, workload_of

POLICY = HandPolicy()


def run(
    workload: Workload, choice: GammaChoice, policy: HandPolicy = POLICY, seqs: int = 256, budget: int = 2048
) -> RunLog:
    prices = StepPrices(policy, True, budget)
    draws = AcceptanceDraws(workload, {c: policy.survival(c) for c in policy.classes}, 0)
    log = RunLog.empty(len(workload))
    replica = Replica("r", choice, seqs, workload, draws, prices, policy, log)
    for request, now in enumerate(workload.arrival_s):
        replica.advance(now)
        replica.enqueue(request, now)
    replica.advance(inf)
    assert replica.open == 0
    return log


PROMPT_STEP_S = (BASE_S + PER_SEQUENCE_S) * ZERO_GAMMA_TAX + 100 * 0.0001


@pytest.mark.parametrize(
    ("rate", "gamma", "steps"),
    [(1.0, 4, 2), (1.0, 8, 1), (1.0, 1, 5), (0.0, 4, 9), (0.0, 8, 9), (0.0, 1, 9)],
)
def test_a_lone_request_takes_the_steps_and_seconds_of_a_hand_computation(rate: float, gamma: int, steps: int) -> None:
    policy = HandPolicy({"only": (rate,)})
    log = run(workload_of(policy, [(0.0, 100, 10)]), ConstantGamma(gamma), policy)
    assert log.decode_steps == [steps]
    assert log.first_token_s[0] == pytest.approx(PROMPT_STEP_S, rel=1e-12)
    step_s = BASE_S + PER_SEQUENCE_S + gamma * DRAFT_S
    assert log.finished_s[0] == pytest.approx(PROMPT_STEP_S + steps * step_s, rel=1e-12)


def test_a_plain_replica_pays_no_tax_and_a_speculative_one_at_gamma_zero_does() -> None:
    workload = workload_of(POLICY, [(0.0, 1, 11)])
    plain, zero = run(workload, ConstantGamma(PLAIN)), run(workload, ConstantGamma(0))
    assert plain.decode_steps == zero.decode_steps == [10]
    plain_s = plain.finished_s[0] - plain.first_token_s[0]
    assert plain_s == pytest.approx(10 * (BASE_S + PER_SEQUENCE_S))
    assert zero.finished_s[0] - zero.first_token_s[0] == pytest.approx(plain_s * ZERO_GAMMA_TAX)


def test_a_long_prompt_is_read_in_chunks() -> None:
    log = run(workload_of(POLICY, [(0.0, 5000, 1)]), ConstantGamma(PLAIN), budget=2048)
    assert log.first_token_s[0] == pytest.approx(3 * (BASE_S + PER_SEQUENCE_S) + 5000 * 0.0001)
    assert log.finished_s == log.first_token_s


def test_a_request_that_arrives_within_a_step_enters_at_its_end() -> None:
    policy = HandPolicy(prefill_s=0.0)
    step = BASE_S + PER_SEQUENCE_S
    log = run(workload_of(policy, [(0.0, 1, 100), (1.5 * step, 1, 1)]), ConstantGamma(PLAIN), policy)
    assert log.first_token_s[1] == pytest.approx(3 * step)


def test_plain_throughput_at_saturation_is_batch_over_step_time() -> None:
    batch, tokens, waves = 32, 400, 5
    policy = HandPolicy(prefill_s=0.0)
    log = run(workload_of(policy, [(0.0, 1, tokens)] * (batch * waves)), ConstantGamma(PLAIN), policy, seqs=batch)
    step = BASE_S + PER_SEQUENCE_S * batch + PER_TOKEN_S * max(batch - FREE_TOKENS, 0)
    span = max(log.finished_s)
    assert span == pytest.approx(waves * ((tokens - 1) * step + BASE_S + PER_SEQUENCE_S))
    assert batch * waves * tokens / span == pytest.approx(batch / step, rel=0.01)


def test_zero_output_tokens_end_with_the_prompt() -> None:
    log = run(workload_of(POLICY, [(0.0, 0, 0), (0.0, 10, 2)]), ConstantGamma(3))
    assert log.finished_s[0] == log.first_token_s[0]
    assert log.finished_s[1] > log.first_token_s[1]


requests = st.lists(
    st.tuples(
        st.floats(0.0, 0.3),
        st.integers(0, 400),
        st.integers(0, 60),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=30,
)
schedules = st.lists(st.integers(0, 8), min_size=1, max_size=8).map(
    lambda gammas: GammaSchedule([(1 + 2 * i, 2 + 2 * i, g) for i, g in enumerate(gammas)])
)


def build(rows: list[tuple[float, int, int, int]]) -> Workload:
    clock = 0.0
    traces: list[list[tuple[float, int, int]]] = [[], []]
    for gap, prompt, output, which in rows:
        clock += gap
        traces[which].append((clock, prompt, output))
    return merge(
        [ClassedTrace(trace_of(t), name) for t, name in zip(traces, POLICY.classes, strict=True)], POLICY.classes
    )


@settings(max_examples=150, deadline=None)
@given(
    rows=requests,
    choice=st.one_of(
        st.integers(-1, 8).map(ConstantGamma),
        schedules.map(ScheduledGamma),
        st.just(None),  # None: the oracle
    ),
    seqs=st.sampled_from([1, 2, 5, 256]),
    budget=st.sampled_from([16, 100, 2048]),
    looks=st.lists(st.floats(0.0, 5.0), max_size=10),
    seed=st.integers(0, 5),
)
def test_skipping_steps_gives_what_taking_each_one_gives(
    rows: list[tuple[float, int, int, int]],
    choice: GammaChoice | None,
    seqs: int,
    budget: int,
    looks: list[float],
    seed: int,
) -> None:
    workload = build(rows)
    prices = StepPrices(POLICY, True, budget)
    draws = AcceptanceDraws(workload, {c: POLICY.survival(c) for c in POLICY.classes}, seed)
    if choice is None:
        choice = BestGamma(prices, [[POLICY.expected_tokens(c, g) for g in range(9)] for c in POLICY.classes])
    log = RunLog.empty(len(workload))
    replica = Replica("r", choice, seqs, workload, draws, prices, POLICY, log)
    events = [(t, i) for i, t in enumerate(workload.arrival_s)] + [(t, -1) for t in looks]
    for now, request in sorted(events):
        replica.advance(now)
        replica.accepted()
        if request >= 0:
            replica.enqueue(request, now)
        unfinished = sum(
            not log.finished_s[i] <= now for i in range(len(workload)) if (workload.arrival_s[i], i) <= (now, request)
        )
        assert request < 0 or replica.open == unfinished
    replica.advance(inf)

    expected, tokens = run_reference(workload, draws, prices, choice, seqs, POLICY.max_gamma)
    assert log.decode_steps == expected.decode_steps
    assert all(close(a, b) for a, b in zip(log.finished_s, expected.finished_s, strict=True))
    assert all(close(a, b) for a, b in zip(log.first_token_s, expected.first_token_s, strict=True))
    assert tokens == workload.generated_tokens == replica.totals.output_tokens


@settings(max_examples=80, deadline=None)
@given(rows=requests, gamma=st.integers(-1, 8), seqs=st.sampled_from([1, 3, 256]))
def test_latency_has_a_lower_bound_and_first_tokens_keep_the_order_of_arrival(
    rows: list[tuple[float, int, int, int]], gamma: int, seqs: int
) -> None:
    workload = build(rows)
    log = run(workload, ConstantGamma(gamma), seqs=seqs)
    alone = POLICY.step_seconds(1, max(gamma, 0), None, gamma != PLAIN)
    prompt_s = POLICY.step_seconds(1, 0, None, gamma != PLAIN)
    for i in range(len(workload)):
        steps = ceil(max(workload.output_tokens[i] - 1, 0) / (max(gamma, 0) + 1))
        least = min(prompt_s, alone) + POLICY.prefill_seconds(workload.prompt_tokens[i]) + steps * alone
        assert log.finished_s[i] - workload.arrival_s[i] >= least * (1 - 1e-9)
        assert log.decode_steps[i] >= steps
    assert log.first_token_s == sorted(log.first_token_s)


def test_accepted_tokens_count_those_of_unfinished_requests() -> None:
    policy = HandPolicy({"only": (1.0,)}, prefill_s=0.0)
    workload = workload_of(policy, [(0.0, 1, 1000)])
    prices = StepPrices(policy, True, 2048)
    draws = AcceptanceDraws(workload, {"only": policy.survival("only")}, 0)
    replica = Replica("r", ConstantGamma(3), 8, workload, draws, prices, policy, RunLog.empty(1))
    replica.enqueue(0, 0.0)
    replica.advance(1.0)
    assert replica.totals.sequence_steps > 10
    assert replica.accepted() == 3 * replica.totals.sequence_steps == replica.totals.drafted
    assert replica.totals.predicted_accepted == pytest.approx(replica.accepted())
