"""An actuator believes what it sees: engines that heed, ignore, refuse, forget, or tell nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.engines import ACTUATORS, ActuatorSite, Drafting, PerRequestActuator, actuator_for
from adaptive_gamma.engines.llamacpp import drafting_of
from adaptive_gamma.errors import ActuatorError, ConfigurationError

SITE = ActuatorSite(replica="r")


def answer(steps: int, per_step: float, accepted: int = 0) -> dict[str, Any]:
    """An answer's ``timings`` as llama.cpp writes them: no drafts, no draft fields."""
    timings = {"predicted_n": steps + accepted, "draft_n": round(steps * per_step), "draft_n_accepted": accepted}
    return {"timings": timings if timings["draft_n"] else {"predicted_n": steps}}


class Engine:
    """Answers requests with or without the field; ``heeds`` may change, as it may draft less than it is asked to."""

    def __init__(self, own: float = 8.0, *, heeds: bool = True, steps: int = 40) -> None:
        self.own, self.heeds, self.steps = own, heeds, steps

    def serve(self, actuator: PerRequestActuator, requests: int) -> None:
        for _ in range(requests):
            field = actuator.request_field()
            sent = None if field is None else field[1]
            drafted = self.own if sent is None or not self.heeds else min(sent, self.own)
            actuator.answered(sent, answer(self.steps, drafted))


async def verified(own: float = 8.0, gamma: int = 3) -> tuple[PerRequestActuator, Engine]:
    actuator, engine = PerRequestActuator("r"), Engine(own)
    engine.serve(actuator, 2)
    await actuator.change(gamma)
    engine.serve(actuator, 3)
    assert actuator.settled()
    return actuator, engine


async def test_an_engine_that_heeds_is_believed_after_three_answers() -> None:
    actuator, engine = PerRequestActuator("r"), Engine(8.0)
    assert (actuator.state, actuator.gamma, actuator.request_field()) == ("ready", None, None)
    assert actuator.waits_for == "0 of the 64 steps needed have told how much the engine drafts by itself"
    with pytest.raises(ActuatorError, match="not_yet"):
        await actuator.change(3)
    engine.serve(actuator, 2)
    assert actuator.waits_for is None
    assert actuator.own_drafts_per_step == 8.0
    await actuator.change(3)
    assert (actuator.state, actuator.gamma, actuator.request_field()) == ("verifying", None, ("speculative.n_max", 3))
    engine.serve(actuator, 2)
    assert not actuator.settled()
    engine.serve(actuator, 1)
    assert actuator.settled()
    assert (actuator.state, actuator.gamma, actuator.request_field()) == ("verified", 3, ("speculative.n_max", 3))
    await actuator.change(0)
    assert actuator.settled(), "an engine believed once is believed at once"
    assert (actuator.gamma, actuator.request_field()) == (0, ("speculative.n_max", 0))


@pytest.mark.parametrize(("own", "gamma", "sent"), [(8.0, 7, 4), (4.0, 4, 2), (4.0, 3, 3), (1.0, 1, 0), (0.3, 2, 0)])
async def test_a_gamma_near_the_engines_own_is_proved_by_a_lower_one(own: float, gamma: int, sent: int) -> None:
    actuator, engine = PerRequestActuator("r"), Engine(own)
    engine.serve(actuator, 2)
    await actuator.change(gamma)
    assert actuator.request_field() == ("speculative.n_max", sent)
    engine.serve(actuator, 3)
    assert actuator.request_field() == ("speculative.n_max", gamma)
    assert actuator.gamma == gamma


@pytest.mark.parametrize("own", [1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("gamma", [0, 1, 2, 4, 8])
async def test_an_engine_that_ignores_the_field_is_found_out_and_left_alone(
    own: float, gamma: int, caplog: pytest.LogCaptureFixture
) -> None:
    actuator, engine = PerRequestActuator("r"), Engine(own, heeds=False)
    engine.serve(actuator, 2)
    await actuator.change(gamma)
    engine.serve(actuator, 3)
    with pytest.raises(ActuatorError, match=r"ignored: the engine ignores speculative\.n_max"):
        actuator.settled()
    assert (actuator.state, actuator.gamma, actuator.request_field()) == ("stopped", None, None)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    print(said)
    assert "replica r: gamma cannot be set: the engine ignores speculative.n_max" in said
    engine.serve(actuator, 50)
    with pytest.raises(ActuatorError, match="stopped"):
        await actuator.change(1)
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


async def test_an_engine_that_stops_heeding_is_found_out_later() -> None:
    actuator, engine = await verified()
    engine.serve(actuator, 1000)
    engine.heeds = False
    engine.serve(actuator, 2)
    engine.heeds = True
    engine.serve(actuator, 1)
    assert actuator.settled(), "two answers are no proof"
    engine.heeds = False
    engine.serve(actuator, 3)
    with pytest.raises(ActuatorError, match="ignored"):
        actuator.settled()


async def test_answers_sent_before_a_change_are_judged_by_what_they_carried() -> None:
    actuator, _ = await verified(gamma=3)
    await actuator.change(1)
    for _ in range(10):
        actuator.answered(3, answer(40, 3.0))
        actuator.answered(None, answer(40, 8.0))
    assert actuator.settled()
    assert actuator.state == "verified"


async def test_an_engine_whose_answers_do_not_tell_gets_no_field() -> None:
    actuator, engine = PerRequestActuator("r"), Engine(8.0)
    engine.serve(actuator, 2)
    await actuator.change(3)
    for _ in range(8):
        assert not actuator.settled()
        actuator.answered(3, {"choices": []})
    with pytest.raises(ActuatorError, match="not_told"):
        actuator.settled()
    assert actuator.request_field() is None


async def test_an_engine_that_refuses_gets_no_field() -> None:
    actuator, engine = PerRequestActuator("r"), Engine(8.0)
    engine.serve(actuator, 2)
    await actuator.change(3)
    for _ in range(5):
        actuator.refused(None, 400)
        actuator.refused(3, 400)
        actuator.refused(3, 422)
        actuator.answered(3, answer(40, 3.0) if actuator.state == "stopped" else {})
    assert not actuator.settled(), "clients make mistakes too"
    for _ in range(3):
        actuator.refused(3, 400)
    with pytest.raises(ActuatorError, match="refused: 3 requests in a row that carried"):
        actuator.settled()
    assert actuator.request_field() is None


async def test_short_answers_prove_nothing() -> None:
    actuator, engine = PerRequestActuator("r"), Engine(8.0)
    engine.serve(actuator, 2)
    await actuator.change(3)
    for _ in range(20):
        actuator.answered(3, answer(3, 2.0))
    assert not actuator.settled()
    for _ in range(3):
        actuator.answered(3, answer(8, 2.9))
    assert not actuator.settled()
    actuator.answered(3, answer(8, 2.9))
    assert actuator.settled()


async def test_a_plain_engine_cannot_be_set_and_says_why() -> None:
    actuator, engine = PerRequestActuator("r"), Engine(0.0)
    engine.serve(actuator, 10)
    assert actuator.waits_for == "the engine drafts nothing by itself, so that no effect could be seen"
    with pytest.raises(ActuatorError, match="not_yet"):
        await actuator.change(2)


async def test_a_new_start_of_the_engine_begins_anew() -> None:
    actuator, engine = PerRequestActuator("r"), Engine(8.0, heeds=False)
    engine.serve(actuator, 2)
    await actuator.change(3)
    engine.serve(actuator, 3)
    assert actuator.state == "stopped"
    actuator.restarted()
    assert (actuator.state, actuator.problem, actuator.request_field()) == ("ready", None, None)
    engine.heeds = True
    engine.serve(actuator, 2)
    await actuator.change(3)
    engine.serve(actuator, 3)
    assert actuator.gamma == 3


bodies = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["timings", "predicted_n", "draft_n", "draft_n_accepted", "choices"]), inner)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["timings", "choices", "x"]), bodies))
def test_no_answer_is_a_fault(body: dict[str, Any]) -> None:
    found = drafting_of(body)
    assert found is None or (found.steps > 0 and found.draft_tokens >= 0)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"timings": {"predicted_n": 40, "draft_n": 60, "draft_n_accepted": 24}}, Drafting(16, 60)),
        ({"timings": {"predicted_n": 40}}, Drafting(40, 0)),
        ({"timings": {"predicted_n": 40}, "choices": [1, 2]}, None),
        ({"timings": {"predicted_n": 0}}, None),
        ({"timings": {"predicted_n": 10, "draft_n": 4, "draft_n_accepted": 5}}, None),
        ({"timings": []}, None),
        ({}, None),
    ],
)
def test_drafting_of_an_answer(body: dict[str, Any], found: Drafting | None) -> None:
    assert drafting_of(body) == found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 9)), max_size=60))
async def test_an_engine_that_heeds_is_never_accused(requests: Iterable[tuple[int, int, int]]) -> None:
    """Whatever it drafts, as long as it is no more than it was asked to; an answer's last pass may add no token."""
    actuator, engine = PerRequestActuator("r"), Engine(9.0)
    engine.serve(actuator, 2)
    await actuator.change(2)
    for less, steps, wanted in requests:
        field = actuator.request_field()
        assert field is not None
        sent = field[1]
        passes = steps + 1
        actuator.answered(sent, {"timings": {"predicted_n": max(steps, 1), "draft_n": max(passes * sent - less, 0),
                                             "draft_n_accepted": 0}})  # fmt: skip
        if actuator.settled():
            await actuator.change(wanted)
    assert actuator.state != "stopped"


async def test_none_sets_nothing() -> None:
    actuator = actuator_for("none", SITE)
    assert (actuator.request_field(), actuator.gamma, actuator.state, actuator.problem) == (None, None, "ready", None)
    actuator.answered(None, {})
    actuator.refused(None, 400)
    actuator.restarted()
    await actuator.look()
    await actuator.close()
    assert actuator.settled()
    assert actuator.details() == {}
    with pytest.raises(ActuatorError, match="not_settable"):
        await actuator.change(3)


def test_actuators_by_name() -> None:
    assert set(ACTUATORS) == {"none", "per_request", "vllm_schedule"}
    assert actuator_for("per_request", SITE).name == "per_request"
    with pytest.raises(ConfigurationError, match="did you mean 'per_request'"):
        actuator_for("per-request", SITE)
