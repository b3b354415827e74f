from __future__ import annotations

import pytest

from adaptive_gamma.fleet.gamma import EngineEvidence, GammaFinding, GammaMismatch, configured_gamma, find_gamma
from adaptive_gamma.routing import GammaSchedule

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
