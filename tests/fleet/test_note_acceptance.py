from __future__ import annotations

from adaptive_gamma.config.settings import ReplicaSettings
from adaptive_gamma.engines import RequestAcceptance
from tests.engines import pages
from tests.fleet.scene import a_fleet, watched
from tests.support.acceptance_recorder import AcceptanceRecorder
from tests.support.scripted_engine import ScriptedEngine

SEEN = RequestAcceptance(drafts=5, draft_tokens=15, accepted_tokens=4, histogram=(2, 2, 1, 0), gamma=3)
TOTALS = RequestAcceptance(drafts=5, draft_tokens=15, accepted_tokens=4, histogram=None, gamma=None)


async def test_it_is_handed_to_who_learns_with_the_replica_and_the_class() -> None:
    fleet = a_fleet(ReplicaSettings(name="r", url="http://127.0.0.1:9"))
    fleet.note_acceptance("r", "chat", SEEN)  # nobody learns
    fleet.learning = recorder = AcceptanceRecorder()
    fleet.note_acceptance("r", "chat", SEEN)
    fleet.note_acceptance("gone", "chat", SEEN)
    assert recorder.notes == [("r", "chat", SEEN)]
    await fleet.stop()


async def test_positions_are_believed_where_the_page_names_the_same_gamma() -> None:
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        fleet.learning = recorder = AcceptanceRecorder()
        engine.page("/metrics", pages.VLLM_0_33)
        await fleet.scrape_once()
        assert fleet.states[0].gamma == 3
        fleet.note_acceptance("r", "chat", SEEN)
        five = RequestAcceptance(drafts=5, draft_tokens=25, accepted_tokens=4, histogram=(2, 2, 1, 0, 0, 0), gamma=5)
        fleet.note_acceptance("r", "chat", five)
        fleet.note_acceptance("r", "chat", TOTALS)
        assert [note[2] for note in recorder.notes] == [SEEN, five.without_positions(), TOTALS]
        assert five.without_positions().drafts == 5
