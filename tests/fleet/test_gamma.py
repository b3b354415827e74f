from __future__ import annotations

import pytest
from pydantic import ValidationError

from adaptive_gamma.config.settings import ReplicaSettings
from adaptive_gamma.engines._bounds import LARGEST_GAMMA
from adaptive_gamma.fleet.gamma import EngineEvidence, GammaFinding, GammaMismatch, configured_gamma, find_gamma
from adaptive_gamma.routing import GammaSchedule, replica

SCHEDULE = GammaSchedule([(1, 4, 5), (5, 512, 1)])


@pytest.mark.parametrize(
    ("configured", "seen", "finding"),
    [
        # nothing known but the configuration
        (None, EngineEvidence(), GammaFinding(None, None, None)),
        (0, EngineEvidence(), GammaFinding(False, 0, None)),
        (3, EngineEvidence(), GammaFinding(True, 3, None)),
        (SCHEDULE, EngineEvidence(), GammaFinding(True, SCHEDULE, None)),
        # the engine is asked
        (None, EngineEvidence(True, 5), GammaFinding(True, 5, None)),
        (None, EngineEvidence(True), GammaFinding(True, None, None)),
        (None, EngineEvidence(True, None, 4), GammaFinding(True, 4, None)),
        (None, EngineEvidence(True, 5, 4), GammaFinding(True, 5, None)),
        (None, EngineEvidence(False), GammaFinding(False, 0, None)),
        # the engine agrees
        (5, EngineEvidence(True, 5), GammaFinding(True, 5, None)),
        (0, EngineEvidence(False), GammaFinding(False, 0, None)),
        (SCHEDULE, EngineEvidence(True, 5), GammaFinding(True, SCHEDULE, None)),
        # the engine knows better
        (3, EngineEvidence(True, 5), GammaFinding(True, 5, GammaMismatch(3, 5))),
        (3, EngineEvidence(False), GammaFinding(False, 0, GammaMismatch(3, 0))),
        (0, EngineEvidence(True, 5), GammaFinding(True, 5, GammaMismatch(0, 5))),
        (0, EngineEvidence(True), GammaFinding(True, None, GammaMismatch(0, None))),
        (SCHEDULE, EngineEvidence(True, 3), GammaFinding(True, SCHEDULE, GammaMismatch(5, 3))),
        (SCHEDULE, EngineEvidence(False), GammaFinding(False, 0, GammaMismatch(5, 0))),
        # a response bounds gamma from below
        (8, EngineEvidence(True, None, 2), GammaFinding(True, 8, None)),
        (3, EngineEvidence(True, None, 4), GammaFinding(True, 4, GammaMismatch(3, 4))),
        (SCHEDULE, EngineEvidence(True, None, 4), GammaFinding(True, SCHEDULE, None)),
    ],
)
def test_finding(configured: int | GammaSchedule | None, seen: EngineEvidence, finding: GammaFinding) -> None:
    assert find_gamma(configured, seen) == finding


def test_configured() -> None:
    assert configured_gamma("auto") is None
    assert configured_gamma(0) == 0
    assert configured_gamma([(1, 4, 5), (5, 512, 1)]) == SCHEDULE
    with pytest.raises(ValueError, match="start at 1"):
        configured_gamma([(2, 4, 5)])


def test_one_limit_of_gamma_everywhere() -> None:
    assert replica.LARGEST_GAMMA == LARGEST_GAMMA
    assert ReplicaSettings(name="r", url="http://127.0.0.1:1", gamma=LARGEST_GAMMA).gamma == LARGEST_GAMMA
    with pytest.raises(ValidationError):
        ReplicaSettings(name="r", url="http://127.0.0.1:1", gamma=LARGEST_GAMMA + 1)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([(1, 4, 65)], "above 64"),
        ([(1, 4, 10**5000)], "above 64"),
        ([(1, 1_000_001, 3)], "beyond batch 1000000"),
        ([(1, 10**5000, 3)], "beyond batch 1000000"),
        ([(1, 4, 3), (1_000_001, 2**31 - 1, 1)], "beyond batch 1000000"),
    ],
    ids=["gamma", "huge gamma", "last", "huge last", "first"],
)
def test_schedules_beyond_any_engine(ranges: list[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GammaSchedule(ranges)


def test_the_largest_schedule_and_one_without_end() -> None:
    assert GammaSchedule([(1, 999_999, 64), (1_000_000, 1_000_000, 0)]).largest == 64
    assert GammaSchedule([(1, 8, 3), (9, 2**31 - 1, 1)]).at(10**7) == 1


def test_evidence_outlives_a_page_that_does_not_tell() -> None:
    seen = EngineEvidence()
    seen.page(True, 4)
    seen.page(None, None)
    assert (seen.speculative, seen.labels) == (True, 4)
    seen.page(False, None)
    assert (seen.speculative, seen.labels) == (False, None)


def test_evidence_of_responses() -> None:
    seen = EngineEvidence()
    for gamma in (3, 4, 2):
        seen.answer(gamma)
    assert (seen.speculative, seen.response) == (True, 4)
    seen.restarted()
    assert seen.response is None
