"""The fleet as the live page shows it: rows, curves and the policy's map, against what the decision itself says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adaptive_gamma.config.settings import HealthSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.engines import EngineReading
from adaptive_gamma.engines.reading import LatencySum
from adaptive_gamma.fleet import Fleet, FleetReplica
from adaptive_gamma.fleet.live import (
    curves_page,
    gains_row,
    live_row,
    observed_row,
    policy_page,
    sampled_batches,
    setting_key,
)
from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import GammaSchedule, PriceBook, ReplicaState

POLICY = load_policy("h200-llama3-70b-fp8")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def fleet_of(*gammas: object) -> tuple[Fleet, Clock]:
    clock = Clock()
    replicas = [
        ReplicaSettings.model_validate({"name": f"r{i}", "url": f"http://127.0.0.1:{9 + i}", "gamma": g})
        for i, g in enumerate(gammas)
    ]
    return Fleet(replicas, scrape=ScrapeSettings(), health=HealthSettings(), clock=clock, policy=POLICY), clock


def read(replica: FleetReplica, clock: Clock, running: int = 3, **more: Any) -> None:
    reading = EngineReading(running=running, waiting=0, kv_usage=0.25, **more)
    replica.took_reading(reading, started_at=clock.now, in_flight_at_start=0, prior=POLICY)


def test_a_row_before_anything_was_read() -> None:
    fleet, clock = fleet_of("auto")
    row = live_row(fleet.replicas[0], POLICY, PriceBook(), clock.now)
    unknown = {
        "pool",
        "gamma",
        "setting",
        "running",
        "waiting",
        "batch",
        "kv_usage",
        "age_s",
        "acceptance",
        "tau_s",
        "step",
    }
    assert {key for key in unknown if row[key] is not None} == set()
    assert row["in_flight"] == 0
    json.dumps(row, allow_nan=False)


def test_a_row_says_what_the_decision_would() -> None:
    fleet, clock = fleet_of(4)
    replica = fleet.replicas[0]
    read(replica, clock, running=7)
    replica.state.acceptance_ratio, replica.state.step_time_ratio = 0.8, 1.5
    prices = PriceBook()
    row = live_row(replica, POLICY, prices, clock.now)
    for name in POLICY.classes:
        assert row["tau_s"][name] == pytest.approx(prices.pricing(POLICY, name, None).tpot(replica.state, 7), abs=1e-6)
    # The page's own sum of a curve's figures comes to the same.
    page = curves_page([replica.state], POLICY, POLICY.max_batch)
    curve, at = page["curves"]["4"], page["batches"].index(8)
    replica.state.running = 8
    now = live_row(replica, POLICY, prices, clock.now)["tau_s"]["chat"]
    drawn = curve["step_s"][at] * 1.5 / (1 + (curve["tokens"]["chat"] - 1) * 0.8)
    assert drawn == pytest.approx(now, rel=1e-4)


def test_a_row_that_has_gone_stale() -> None:
    fleet, clock = fleet_of(4)
    read(fleet.replicas[0], clock)
    clock.now += 60
    row = live_row(fleet.replicas[0], POLICY, PriceBook(), clock.now)
    assert (row["running"], row["batch"], row["kv_usage"], row["tau_s"], row["fresh"]) == (
        None,
        None,
        None,
        None,
        False,
    )
    assert (row["age_s"], row["gamma"]) == (60.0, 4)


def test_predicted_against_observed() -> None:
    fleet, clock = fleet_of(0)
    replica = fleet.replicas[0]
    assert observed_row(fleet.replicas) is None
    predicted = POLICY.step_seconds(10, 0, None, False)
    seconds = steps = 0.0
    for _ in range(20):
        steps += 10 / predicted / 2
        seconds += 10.0
        read(replica, clock, inter_token_latency=LatencySum(seconds, steps), generation_tokens=steps)
        clock.now += 1.0
    step = live_row(replica, POLICY, PriceBook(), clock.now - 1)["step"]
    assert step["batch"] == pytest.approx(10, abs=0.1)
    assert step["observed_s"] == pytest.approx(2 * predicted, rel=0.01)
    assert step["predicted_s"] == pytest.approx(predicted, rel=0.01)
    assert step["gain_over_plain"] is None, "it is plain"
    observed = observed_row(fleet.replicas)
    assert observed is not None
    assert observed["ratio"] == pytest.approx(0.5, abs=0.01)
    assert observed["replicas"] == 1


def test_gains_as_data() -> None:
    fleet, clock = fleet_of(4, 0)
    assert gains_row(fleet.replicas, POLICY, clock.now) is None
    for replica in fleet.replicas:
        read(replica, clock)
    row = gains_row(fleet.replicas, POLICY, clock.now)
    assert row is not None
    assert (row["sequences"], row["replicas"], row["plain_observed"]) == (6, 2, True)
    json.dumps(row, allow_nan=False)


def test_names_of_settings() -> None:
    assert setting_key(None, 3) is None
    assert setting_key(False, 0) == "plain"
    assert setting_key(True, None) is None
    assert setting_key(True, 0) == "0"
    assert setting_key(True, GammaSchedule([(1, 4, 5), (5, 9, 0)])) == "1-4:5,5-9:0"


def test_curves_are_the_policys() -> None:
    schedule = GammaSchedule([(1, 4, 5), (5, 4096, 2)])
    states = [
        ReplicaState("a", True, 3),
        ReplicaState("b", True, schedule),
        ReplicaState("c"),
        ReplicaState("d", True, 3),
    ]
    page = curves_page(states, POLICY, POLICY.max_batch)
    assert set(page["curves"]) == {"plain", "3", "1-4:5,5-4096:2"}
    for i, batch in enumerate(page["batches"]):
        assert page["curves"]["3"]["step_s"][i] == pytest.approx(POLICY.step_seconds(batch, 3), abs=1e-6)
        assert page["curves"]["plain"]["step_s"][i] == pytest.approx(
            POLICY.step_seconds(batch, 0, None, False), abs=1e-6
        )
        scheduled = page["curves"]["1-4:5,5-4096:2"]
        assert scheduled["step_s"][i] == pytest.approx(POLICY.step_seconds(batch, schedule.at(batch)), abs=1e-6)
        assert scheduled["tokens"]["chat"][i] == pytest.approx(
            POLICY.expected_tokens("chat", schedule.at(batch)), abs=1e-6
        )


def test_there_are_only_so_many_curves() -> None:
    states = [ReplicaState(str(i), True, GammaSchedule([(1, i + 1, 5), (i + 2, 4096, 2)])) for i in range(1000)]
    assert len(curves_page(states, POLICY, 8)["curves"]) <= 256


@pytest.mark.parametrize("largest", [1, 2, 7, 33, 34, 100, 512, 8192])
def test_sampled_batches(largest: int) -> None:
    batches = sampled_batches(largest)
    assert batches == sorted(set(batches))
    assert (batches[0], batches[-1]) == (1, largest)
    assert len(batches) <= 45


def test_the_map_is_the_table() -> None:
    page = policy_page(POLICY)
    assert sorted(page["contexts"]) == list(POLICY.context_buckets)
    assert page["contexts"][0] == POLICY.context_buckets[POLICY.context_bucket(None)]
    for name in POLICY.classes:
        for context, cell in zip(page["contexts"], page["map"][name], strict=True):
            for first, last, gamma in cell["ranges"]:
                assert POLICY.best_gamma(name, first, context) == POLICY.best_gamma(name, last, context) == gamma
            assert cell["plain_wins_from"] == POLICY.plain_wins_from(name, context)


def test_a_policy_that_is_no_file_has_a_map_too() -> None:
    class Served:
        """What serving asks of a policy, and no more."""

        def __getattr__(self, name: str) -> Any:
            if name in ("table", "context_buckets"):
                raise AttributeError(name)
            return getattr(POLICY, name)

    page = policy_page(Served())
    assert page["contexts"] == [None]
    assert page["map"]["chat"][0]["ranges"] == policy_page(POLICY)["map"]["chat"][0]["ranges"]
