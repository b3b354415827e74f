"""Learning from a fleet: drift, the table that follows, what survives a restart."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.config.settings import (
    CostCheckSettings,
    HealthSettings,
    LearnSettings,
    LoadSettings,
    ReplicaSettings,
    ScrapeSettings,
)
from adaptive_gamma.engines import RequestAcceptance
from adaptive_gamma.fleet import DraftCounts, FleetLearning, FleetOptions, FleetReplica
from adaptive_gamma.fleet.families import family_prior
from adaptive_gamma.policy import Policy, build_policy, load_policy
from tests.fleet.scene import Clock
from tests.support.gated_engine import until

POLICY = load_policy("h200-llama3-70b-fp8")


def replica(name: str = "a", gamma: int = 4, **more: Any) -> FleetReplica:
    options = FleetOptions(ScrapeSettings(), HealthSettings(), LoadSettings(), None, CostCheckSettings())
    settings = ReplicaSettings(name=name, url="http://127.0.0.1:1", gamma=gamma, **more)
    return FleetReplica(settings, options, clock=Clock(), cache_lost=lambda name: None)


def report(rate: float, drafts: int = 1000, gamma: int = 4) -> RequestAcceptance:
    """Every position accepted at this rate, given the one before."""
    left, histogram = drafts, []
    for _ in range(gamma):
        on = round(left * rate)
        histogram.append(left - on)
        left = on
    histogram.append(left)
    accepted = sum(j * steps for j, steps in enumerate(histogram))
    return RequestAcceptance(drafts, drafts * gamma, accepted, tuple(histogram), gamma)


def counted(drafts: float, per_position: list[float]) -> DraftCounts:
    """What a scrape brings of full drafts of the class chat."""
    return DraftCounts(drafts, drafts * len(per_position), sum(per_position), per_position, {"chat": drafts}, drafts)


class Learning:
    """A FleetLearning with the policies it put in force, on a clock that a test moves."""

    def __init__(self, policy: Policy = POLICY, **settings: Any) -> None:
        self.clock = Clock()
        self.swapped: list[Policy] = []
        self.it = FleetLearning(
            LearnSettings(**{"rebuild_s": 1.0, **settings}), policy, swap=self.swapped.append, clock=self.clock
        )

    async def hear(
        self, rate: float, request_class: str = "chat", seconds: int = 10, by: FleetReplica | None = None
    ) -> None:
        """Ten requests a second for some seconds, looked at once a second."""
        by = by or replica()
        for _ in range(seconds):
            for _ in range(10):
                self.it.note_acceptance(by, request_class, report(rate, drafts=50))
            self.clock.now += 1.0
            await self.it.review()
            await self.it.rebuilt()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "adaptive_gamma.learning"):
        yield caplog


async def test_the_table_follows_what_was_learned_and_comes_back(log: pytest.LogCaptureFixture) -> None:
    learning = Learning()
    believed = POLICY.curves["chat"].conditional_at(1)
    await learning.hear(believed)
    assert learning.swapped == []
    await learning.hear(0.40, seconds=40)
    assert learning.it.rebuilds == len(learning.swapped) >= 1
    table = learning.swapped[-1]
    assert table is learning.it.in_force
    assert table.curves["chat"].expected_tokens(4) == pytest.approx(1 + 0.4 + 0.16 + 0.064 + 0.0256, rel=0.05)
    assert table.best_gamma("chat", 1) < POLICY.best_gamma("chat", 1)
    assert table.best_gamma("structured", 1) == POLICY.best_gamma("structured", 1)
    assert "class chat with drafter eagle3 has left" in log.text
    built = learning.it.rebuilds
    await learning.hear(0.40, seconds=30)
    assert learning.it.rebuilds == built, "a table that is right is not built again"
    for _ in range(2):
        await learning.hear(believed, seconds=60)
    assert learning.swapped[-1] is POLICY is learning.it.in_force
    assert "table of the policy file is in force again" in log.text
    print(f"{built} tables built on the way from {believed} to 0.40; the file's own again after the way back")


async def test_a_drifted_class_that_moves_on_is_followed() -> None:
    learning = Learning()
    await learning.hear(0.40, seconds=30)
    await learning.hear(0.20, seconds=60)
    assert learning.swapped[-1].curves["chat"].conditional_at(1) == pytest.approx(0.20, abs=0.05)


async def test_another_drafter_is_learned_apart_and_makes_no_table() -> None:
    learning, other = Learning(), replica("b", drafter="ngram")
    await learning.hear(0.05, by=other, seconds=30)
    assert learning.swapped == []
    assert learning.it.families == ("eagle3", "ngram")
    learned = learning.it.known("ngram")["chat"]
    assert learned.curve.conditional_at(1) == pytest.approx(0.05, abs=0.03)
    assert learned.prior == family_prior(POLICY, "ngram").curves["chat"] != POLICY.curves["chat"]
    assert learning.it.known("eagle3")["chat"].trials == ()


async def test_classes_are_the_policy_s() -> None:
    learning = Learning()
    for name in ("code", "math"):
        learning.it.note_acceptance(replica(), name, report(0.5))
    learning.it.note_acceptance(replica(), "verse", report(0.5))
    known = learning.it.curves()
    assert known["structured"].trials
    assert known[POLICY.default_class].trials
    assert known["chat"].trials == ()


async def test_counters_of_a_replica_that_reports_are_left_alone() -> None:
    learning, reporting, silent = Learning(), replica("a"), replica("b")
    learning.it.note_acceptance(reporting, "chat", report(0.6))
    counts = DraftCounts(
        drafts=1000, draft_tokens=4000, accepted=800, per_position=[500, 200, 80, 20], by_class={"chat": 9.0}
    )
    learning.it.note_drafts(reporting, counts, learning.clock.now)
    assert not learning.it.curves()["chat"].inferred
    assert learning.it.curves()["chat"].curve.conditional_at(1) == pytest.approx(0.6, abs=0.06)
    learning.it.note_drafts(silent, counts, learning.clock.now)
    learning.it.note_drafts(silent, counts, learning.clock.now)
    assert learning.it.curves()["chat"].inferred
    unknown = DraftCounts(drafts=1e6, draft_tokens=4e6, per_position=[0, 0, 0, 0], by_class={None: 1e6})
    before = learning.it.curves()["chat"]
    learning.it.note_drafts(silent, unknown, learning.clock.now)
    assert learning.it.curves()["chat"] == before, "whose drafts they were is not known"


async def test_nothing_is_kept_of_a_replica_that_is_gone() -> None:
    """Another engine under its name is heard as one that nobody knows: pods come and go under many names."""
    learning = Learning()
    learning.it.note_acceptance(replica("a"), "chat", report(0.6))
    learning.it.note_gamma_change(replica("a"))
    learning.it.forget("a")
    learning.it.note_drafts(replica("a"), counted(1000.0, [500.0, 250.0, 125.0, 60.0]), learning.clock.now)
    assert learning.it.curves()["chat"].inferred
    learning.it.forget("never heard of")


async def test_totals_of_requests_tell_whose_the_counted_drafts_were() -> None:
    """As llama.cpp has it: totals with each answer, positions only in the counters, both when a request ends."""
    learning, engine = Learning(), replica("a", engine="llamacpp")
    for second in range(120):
        name, first, plateau = ("chat", 0.5, 0.8) if second % 2 else ("structured", 0.9, 0.6)
        survival = [first * plateau**i for i in range(4)]
        accepted = round(200 * sum(survival))
        learning.it.note_acceptance(engine, name, RequestAcceptance(None, 800, accepted, None, None, most_drafts=201))
        counts = DraftCounts(
            drafts=200, draft_tokens=800, accepted=accepted, per_position=[200 * u for u in survival],
            by_class={"chat": 100.0, "structured": 100.0}, weight=200,
        )  # fmt: skip
        learning.clock.now += 1.0
        learning.it.note_drafts(engine, counts, learning.clock.now)
        await learning.it.review()
    for name, first, plateau in (("chat", 0.5, 0.8), ("structured", 0.9, 0.6)):
        learned = learning.it.curves()[name]
        found = [round(learned.curve.conditional_at(i + 1), 3) for i in range(4)]
        print(f"{name}: {found} for {[first, plateau, plateau, plateau]}")
        assert found == pytest.approx([first, plateau, plateau, plateau], abs=0.05)


async def test_replicas_left_out_are_not_listened_to() -> None:
    learning = Learning(exclude=["a"])
    learning.it.note_acceptance(replica("a"), "chat", report(0.1))
    learning.it.note_drafts(
        replica("a"), DraftCounts(drafts=10, draft_tokens=40, per_position=[1], by_class={"chat": 1.0}), 0.0
    )
    assert learning.it.curves()["chat"].trials == ()


async def test_a_replica_is_not_believed_until_its_gamma_has_settled() -> None:
    learning, engine = Learning(settle_s=5.0), replica("a", gamma=2)
    counts = DraftCounts(drafts=100, draft_tokens=200, accepted=10, per_position=[10, 0], by_class={"chat": 1.0})
    learning.it.note_drafts(
        engine, DraftCounts(drafts=1, draft_tokens=2, per_position=[1, 1], by_class={"chat": 1.0}), learning.clock.now
    )
    engine.state.gamma = 4
    for _ in range(5):
        learning.it.note_drafts(engine, counts, learning.clock.now)
        learning.it.note_acceptance(engine, "chat", report(0.0))
        learning.clock.now += 0.9
    assert learning.it.curves()["chat"].curve.conditional_at(1) > 0.7
    learning.it.note_gamma_change(engine)
    learning.clock.now += 4.9
    learning.it.note_acceptance(engine, "chat", report(0.0))
    assert learning.it.curves()["chat"].curve.conditional_at(1) > 0.7


# -- what survives ----------------------------------------------------------------------------------------------------


async def learned_to(path: Path) -> Learning:
    learning = Learning(state_file=str(path))
    learning.it.start()
    await learning.hear(0.40, seconds=12)
    await learning.hear(0.30, by=replica("b", drafter="ngram"), seconds=2)
    await learning.it.stop()
    return learning


async def test_what_was_learned_survives_a_restart(tmp_path: Path) -> None:
    before = await learned_to(tmp_path / "s.json")
    again = Learning(state_file=str(tmp_path / "s.json"))
    again.clock.now = 5.0  # another boot, another clock
    again.it.start()
    for family in ("eagle3", "ngram"):
        was, now = before.it.curves(family)["chat"], again.it.curves(family)["chat"]
        assert now.trials == pytest.approx(was.trials, rel=1e-6)
        assert now.curve.expected_tokens(6) == pytest.approx(was.curve.expected_tokens(6))
    await again.it.review()
    await again.it.rebuilt()
    assert again.swapped[-1].curves["chat"].conditional_at(1) == pytest.approx(0.40, abs=0.05)
    await again.it.stop()
    assert again.it.state_failures == 0
    size = (tmp_path / "s.json").stat().st_size
    print(f"the state file has {size} bytes for 2 drafters of 3 classes")
    assert size < 20_000


async def test_a_family_not_seen_after_a_restart_is_kept_for_the_next_one(tmp_path: Path) -> None:
    await learned_to(tmp_path / "s.json")
    middle = Learning(state_file=str(tmp_path / "s.json"))
    middle.it.start()
    await middle.hear(0.40, seconds=1)
    await middle.it.stop()
    last = Learning(state_file=str(tmp_path / "s.json"))
    last.it.start()
    assert last.it.curves("ngram")["chat"].trials
    await last.it.stop()


def other_policy(change: str) -> Policy:
    inputs = POLICY.inputs
    if change == "drafter":
        inputs = inputs.model_copy(update={"drafter": inputs.drafter.model_copy(update={"family": "eagle3-other"})})
    elif change == "classes":
        chat = inputs.classes["chat"].model_copy(update={"pseudo_drafts": 31.0})
        inputs = inputs.model_copy(update={"classes": {**inputs.classes, "chat": chat}})
    elif change == "hardware":
        hardware = inputs.hardware
        assert hardware is not None
        inputs = inputs.model_copy(update={"hardware": hardware.model_copy(update={"name": "another"})})
    return build_policy(inputs, name="other" if change == "name" else POLICY.name)


@pytest.mark.parametrize(
    ("change", "kept"), [("drafter", False), ("classes", False), ("name", False), ("hardware", True)]
)
async def test_state_of_another_drafter_or_policy_is_refused(
    tmp_path: Path, change: str, kept: bool, log: pytest.LogCaptureFixture
) -> None:
    await learned_to(tmp_path / "s.json")
    before = (tmp_path / "s.json").read_bytes()
    again = Learning(other_policy(change), state_file=str(tmp_path / "s.json"))
    again.it.start()
    assert bool(again.it.curves()["chat"].trials) == kept
    assert again.it.state_failures == (0 if kept else 1)
    said = [record.levelname for record in log.records if "another policy or drafter" in record.message]
    assert said == ([] if kept else ["INFO"])
    await again.hear(0.40, seconds=10)
    await again.it.stop()
    refused = tmp_path / "s.json.refused"
    assert refused.exists() != kept
    assert kept or refused.read_bytes() == before, "what was learned under another policy is not lost"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: {**state, "format": "adaptive-gamma/learned/v0"},
        lambda state: {**state, "families": []},
        lambda state: {**state, "families": {"eagle3": {"prior": "x"}}},
        lambda state: {**state, "families": {"eagle3": {**state["families"]["eagle3"], "learned": {"classes": {}}}}},
        lambda state: {**state, "families": {"eagle3": 3}},
        lambda state: [],
    ],
)
async def test_a_state_that_is_none_is_refused_and_learning_goes_on(tmp_path: Path, spoil: Any) -> None:
    path = tmp_path / "s.json"
    await learned_to(path)
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    again = Learning(state_file=str(path))
    again.it.start()
    assert again.it.curves()["chat"].trials == ()
    assert again.it.state_failures == 1
    await again.hear(0.40, seconds=10)
    await again.it.stop()
    assert json.loads(path.read_text())["format"] == "adaptive-gamma/learned/v1"


async def test_a_reload_with_another_policy_leaves_what_was_learned_in_reach(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    await learned_to(path)
    learning = Learning(state_file=str(path))
    learning.it.start()
    before = path.read_bytes()
    learning.it.reconfigure(LearnSettings(state_file=str(path)), other_policy("name"))
    await learning.hear(0.40, seconds=10)
    await learning.it.stop()
    assert path.with_name("s.json.refused").read_bytes() == before
    assert path.read_bytes() != before


async def test_the_file_is_written_at_most_so_often(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    learning = Learning(state_file=str(path), save_s=5.0)
    written = []
    for _ in range(20):
        await learning.hear(0.5, seconds=1)
        written.append(path.read_bytes())
    assert len(set(written)) == 4
    await learning.it.review()
    assert path.read_bytes() == written[-1], "nothing was heard, nothing is written"


async def test_a_file_that_cannot_be_written_is_told_and_harms_nothing(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    learning = Learning(state_file=str(tmp_path / "none" / "s.json"))
    await learning.hear(0.40, seconds=20)
    assert learning.it.state_failures > 0
    assert "cannot be written" in log.text
    assert learning.swapped


async def test_what_could_not_be_written_is_written_at_the_end(tmp_path: Path) -> None:
    """The folder comes back after the last request: nothing more is heard, and nothing is lost."""
    path = tmp_path / "none" / "s.json"
    learning = Learning(state_file=str(path), save_s=5.0)
    await learning.hear(0.40, seconds=5)
    learning.clock.now += 5.0
    before = learning.it.state_failures
    await learning.it.review()
    assert learning.it.state_failures == before + 1
    path.parent.mkdir()
    await learning.it.stop()
    again = Learning(state_file=str(path))
    again.it.start()
    assert again.it.curves()["chat"].trials[0] > 100
    await again.it.stop()


async def test_another_policy_file_starts_anew_and_a_table_in_the_making_is_dropped(
    log: pytest.LogCaptureFixture,
) -> None:
    learning = Learning()
    await learning.hear(0.40, seconds=5)
    learned = learning.it.curves()["chat"]
    learning.it.reconfigure(LearnSettings(half_life_s=100.0), other_policy("hardware"))
    assert learning.it.curves()["chat"].trials == pytest.approx(learned.trials), "the same drafter and classes"
    assert "learning begins anew" not in log.text
    swapped = len(learning.swapped)
    for _ in range(30):
        learning.it.note_acceptance(replica(), "chat", report(0.1, drafts=50))
    learning.clock.now += 1.0
    await learning.it.review()
    learning.it.reconfigure(LearnSettings(), other := other_policy("classes"))
    await asyncio.sleep(0.2)
    assert len(learning.swapped) == swapped
    assert learning.it.in_force is other
    assert learning.it.curves()["chat"].trials == ()
    [told] = [record for record in log.records if "learning begins anew" in record.message]
    assert told.levelname == "INFO", "a new policy was asked for"


async def test_nothing_is_said_of_what_was_learned_where_nothing_was(log: pytest.LogCaptureFixture) -> None:
    learning = Learning()
    learning.it.reconfigure(LearnSettings(), other_policy("classes"))
    assert not log.records


async def test_the_loop_looks_by_itself() -> None:
    learning = Learning()
    learning.it.start()
    for _ in range(100):
        learning.it.note_acceptance(replica(), "chat", report(0.3, drafts=50))
    learning.clock.now += 10.0
    await until(lambda: bool(learning.swapped), "a table from the loop")
    await learning.it.stop()
