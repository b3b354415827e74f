"""Gammas that change while a replica runs: held ones, and those chosen from what steps accepted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.simulation.control import histogram_of
from adaptive_gamma.simulation.replay import AcceptanceDraws, Workload
from adaptive_gamma.simulation.replay.gamma_choice import ConstantGamma, GammaChoice, HeldGamma
from adaptive_gamma.simulation.replay.pricing import StepPrices
from adaptive_gamma.simulation.replay.replica import DraftRun, Replica, RunLog
from tests.replay.standin import BASE_S, DRAFT_S, PER_SEQUENCE_S, HandPolicy
from tests.replay.worlds import workload_of

POLICY = HandPolicy()
ROWS = [(0.02 * i, 40 + 13 * i % 200, 20 + 17 * i % 90) for i in range(40)]


class Watcher:
    """Gamma by the number of the step: a new one every ``patience`` steps."""

    def __init__(self, patience: int, gammas: Sequence[int]) -> None:
        self.every = patience
        self.gammas = gammas
        self.seen: list[float] = []
        self.chosen: list[tuple[int, int]] = []

    @property
    def patience(self) -> int:
        return self.every - len(self.seen) % self.every

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int:
        gamma = self.gammas[len(self.seen) // self.every % len(self.gammas)]
        self.chosen.append((len(self.seen), gamma))
        return gamma

    def saw(self, accepted: npt.NDArray[np.float64]) -> bool:
        assert len(accepted) <= self.patience
        self.seen += accepted.tolist()
        return len(self.seen) % self.every == 0


def draws_of(workload: Workload, seed: int = 0) -> AcceptanceDraws:
    return AcceptanceDraws(workload, {name: POLICY.survival(name) for name in POLICY.classes}, seed)


def replica_of(
    workload: Workload, draws: AcceptanceDraws, choice: GammaChoice, reports: dict[int, tuple[DraftRun, ...]]
) -> tuple[Replica, RunLog]:
    log = RunLog.empty(len(workload))

    def report(request: int, runs: Sequence[DraftRun], at: float) -> None:
        assert request not in reports
        assert at == log.finished_s[request] or np.isnan(log.finished_s[request])
        reports[request] = tuple(runs)

    prices = StepPrices(POLICY, True, 2048)
    return Replica("r", choice, 8, workload, draws, prices, POLICY, log, report), log


def check_reports(
    workload: Workload, draws: AcceptanceDraws, log: RunLog, reports: dict[int, tuple[DraftRun, ...]]
) -> None:
    """Each request's runs are all its steps in a row, and give its tokens."""
    for request, tokens in enumerate(workload.output_tokens):
        runs = reports[request]
        assert sum(run.steps for run in runs) == log.decode_steps[request]
        position = draws.start[request]
        for run in runs:
            assert run.first == position
            position += run.steps
        histogram = histogram_of(draws, runs)
        given_tokens = sum(histogram) + sum(j * steps for j, steps in enumerate(histogram))
        last = runs[-1].gamma
        assert tokens - 1 <= given_tokens <= tokens - 1 + last


@settings(max_examples=40, deadline=None)
@given(
    patience=st.integers(1, 9),
    gammas=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    looks=st.lists(st.floats(0.0, 3.0), max_size=8),
    seed=st.integers(0, 3),
)
def test_a_watching_choice_sees_every_step_and_gets_its_gammas(
    patience: int, gammas: list[int], looks: list[float], seed: int
) -> None:
    workload = workload_of(POLICY, ROWS)
    draws = draws_of(workload, seed)
    watcher = Watcher(patience, gammas)
    reports: dict[int, tuple[DraftRun, ...]] = {}
    replica, log = replica_of(workload, draws, watcher, reports)
    times = sorted([*workload.arrival_s, *looks])
    sent = 0
    for now in times:
        replica.advance(now)
        while sent < len(workload) and workload.arrival_s[sent] <= now:
            replica.enqueue(sent, now)
            sent += 1
    replica.advance(float("inf"))
    check_reports(workload, draws, log, reports)
    # Steps before the first decoding sequence have nothing to accept.
    assert len(watcher.seen) <= replica.totals.steps
    assert replica.totals.drafted == sum(run.gamma * run.steps for runs in reports.values() for run in runs)
    asked = dict(watcher.chosen)
    for step in range(patience, len(watcher.seen), patience):
        assert asked[step] == gammas[step // patience % len(gammas)]


@settings(max_examples=40, deadline=None)
@given(
    changes=st.lists(st.tuples(st.floats(0.0, 6.0), st.integers(0, 8)), max_size=6).map(sorted),
    seed=st.integers(0, 3),
)
def test_a_held_gamma_is_in_force_from_the_step_after_its_change(changes: list[tuple[float, int]], seed: int) -> None:
    workload = workload_of(POLICY, ROWS)
    draws = draws_of(workload, seed)
    held = HeldGamma(4)
    reports: dict[int, tuple[DraftRun, ...]] = {}
    replica, log = replica_of(workload, draws, held, reports)
    events: list[tuple[float, int, int]] = [(t, 0, i) for i, t in enumerate(workload.arrival_s)]
    events += [(t, 1, gamma) for t, gamma in changes]
    for now, kind, value in sorted(events):
        replica.advance(now)
        if kind == 0:
            replica.enqueue(value, now)
        else:
            held.setting = value
            replica.review()
    replica.advance(float("inf"))
    assert not any(np.isnan(log.finished_s))
    drafted = {run.gamma for runs in reports.values() for run in runs}
    assert drafted <= {4, *(gamma for _, gamma in changes if gamma)}
    if all(gamma for _, gamma in changes):
        check_reports(workload, draws, log, reports)


def test_a_held_gamma_that_stays_is_a_constant_one() -> None:
    workload = workload_of(POLICY, ROWS)
    draws = draws_of(workload)
    finished = []
    for choice in (HeldGamma(5), ConstantGamma(5)):
        replica, log = replica_of(workload, draws, choice, {})
        for request, now in enumerate(workload.arrival_s):
            replica.advance(now)
            if isinstance(choice, HeldGamma):
                replica.review()
            replica.enqueue(request, now)
        replica.advance(float("inf"))
        finished.append(log.finished_s)
    assert finished[0] == pytest.approx(finished[1], rel=1e-12)


def test_output_tokens_so_far_are_those_of_finished_and_unfinished_requests() -> None:
    policy = HandPolicy({"only": (1.0,)})
    workload = workload_of(policy, [(0.0, 100, 10), (0.0, 100, 1)])
    draws = AcceptanceDraws(workload, {"only": [1.0] * 8}, 0)
    log = RunLog.empty(2)
    replica = Replica("r", ConstantGamma(2), 8, workload, draws, StepPrices(policy, True, 2048), policy, log)
    replica.enqueue(0, 0.0)
    replica.enqueue(1, 0.0)
    assert replica.output_tokens() == 0
    replica.advance(0.1)
    steps = int((0.1 - log.first_token_s[0]) / (BASE_S + PER_SEQUENCE_S + 2 * DRAFT_S))
    assert steps == 2
    assert replica.output_tokens() == 2 + 3 * steps
    replica.advance(float("inf"))
    assert replica.output_tokens() == 11


def test_populations_have_their_own_luck() -> None:
    workload = workload_of(POLICY, [(0.0, 1, 400)] * 20)
    populations = ["good" if i % 2 else "bad" for i in range(20)]
    survival = {"good": [0.9], "bad": [0.1]}
    draws = AcceptanceDraws(workload, survival, 0, populations)
    rates = [float(np.mean(draws.runs[start : start + 399])) for start in draws.start]
    assert all(rate > 0.8 for rate in rates[1::2])
    assert all(rate < 0.2 for rate in rates[0::2])
