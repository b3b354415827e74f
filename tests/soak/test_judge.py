"""The judge finds what it is there to find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from tests.soak.downs import Down, read_downs
from tests.soak.engine_fleet import Outage
from tests.soak.journal import End, Exchange
from tests.soak.judge import Judge, Judgement
from tests.soak.plan import Plan
from tests.soak.proxy import Removal
from tests.soak.scenarios import Case, Leave
from tests.soak.seen import Ended, Seen
from tests.soak.tally import Tally, outcome_faults, tally

CASE = Case("c1-1", "stream", "POST", "/v1/completions", plan=Plan(events=10))
BROKE_OFF = b'{"error": {"message": "replica e0: broke off", "type": "server_error", "code": "engine_broke_off"}}'


def exchange(end: End = "complete", *, engine: int = 0, at: float = 10.1, nth: int = 1, **more: object) -> Exchange:
    made = Exchange(engine, 1, 7, "c1-1", nth, at, head_at=at, status=200, wrote=100, crc=5, done=True, end=end)
    made.end_at = at + 1
    return replace(made, **more)  # type: ignore[arg-type]  # fields of the class, by name


def saw(ended: Ended = "clean", case: Case = CASE, *, status: int | None = 200, engine: int | None = 0) -> Seen:
    seen = Seen(case, began=10.0, sent=True, ended=ended, ended_at=12.0, status=status, length=100, crc=5)
    seen.source = None if engine is None else (engine, 1, 7)
    if ended == "left":
        seen.left_at = 11.0
    return seen


def judged(
    seen: Seen, *exchanges: Exchange, outages: Iterable[Outage] = (), removals: Iterable[Removal] = ()
) -> Judgement:
    return Judge({"c1-1": list(exchanges)}, list(outages), list(removals), []).judge(seen)


def test_a_whole_answer() -> None:
    judgement = judged(saw(), exchange())
    assert (judgement.verdict, judgement.broken) == ("ok", [])
    assert judgement.outcomes == {"ok"}


def test_a_clean_end_of_a_dead_engine_is_broken() -> None:
    ends: list[End] = ["died", "killed", "terminated", "left"]
    for end in ends:
        assert "clean end" in judged(saw(), exchange(end)).broken[0]


def test_missing_bytes_are_broken() -> None:
    assert "were written" in judged(saw(), exchange(wrote=101)).broken[0]
    assert "were written" in judged(saw(), exchange(crc=6)).broken[0]


def test_a_done_that_was_not_written_is_broken() -> None:
    seen = saw("cut")
    seen.done = True
    assert any("[DONE]" in text for text in judged(seen, exchange("killed", done=False)).broken)


def test_a_cut_is_lost_unless_the_engine_died_under_it() -> None:
    seen = saw("cut")
    assert judged(seen, exchange("left")).verdict == "lost"
    assert judged(seen, exchange()).verdict == "lost"
    assert judged(seen, exchange("killed")).verdict == "excused"
    assert judged(seen, exchange(), outages=[Outage(0, "kill", 11.0, 13.0)]).verdict == "excused"
    assert judged(seen, exchange(), outages=[Outage(1, "kill", 11.0, 13.0)]).verdict == "lost"
    dying = replace(CASE, plan=Plan(events=10, ending="reset", at=5))
    assert judged(saw("cut", dying), exchange("died")).verdict == "planned"


def test_an_error_of_the_proxy_is_lost_unless_that_engine_was_out() -> None:
    seen = saw(status=502, engine=None)
    seen.own_body = BROKE_OFF
    assert judged(seen, exchange("left", head_at=None)).verdict == "lost"
    assert judged(seen, outages=[Outage(1, "kill", 9.0, 13.0)]).verdict == "lost"
    assert judged(seen, outages=[Outage(0, "kill", 9.0, 10.5)]).verdict == "excused"
    seen = saw(status=503, engine=None)
    seen.headers = [("retry-after", "1")]
    seen.own_body = BROKE_OFF
    one, other = Outage(0, "kill", 9.0, None), Outage(1, "term", 9.0, None)
    assert judged(seen, outages=[one]).verdict == "lost"
    assert judged(seen, outages=[one, other]).verdict == "excused"


def test_no_answer_and_no_end_are_lost() -> None:
    assert judged(saw("cut", status=None, engine=None)).verdict == "lost"
    assert judged(saw("late")).broken
    assert judged(saw("refused", status=None, engine=None)).verdict == "lost"


def test_sent_again_only_when_that_is_safe() -> None:
    last = exchange(engine=1, at=10.5)
    seen = saw(engine=1)
    assert judged(seen, exchange("died", head_at=None, nth=2), last).broken == []
    assert judged(seen, exchange("raced", head_at=None, nth=2), last).broken == []
    assert judged(seen, exchange("died", head_at=None, nth=1), last).broken
    assert judged(seen, exchange("died"), last).broken
    assert judged(seen, exchange("left", head_at=None, nth=2), last).broken
    rejecting = replace(CASE, plan=Plan(events=10, reject_on=(0,)))
    assert judged(saw(case=rejecting, engine=1), exchange(status=503, rejected=True), last).broken == []


def test_a_rejection_is_passed_on_only_after_a_second_try() -> None:
    rejecting = replace(CASE, plan=Plan(events=10, reject_on=(0, 1)))
    seen = saw(case=rejecting, status=503)
    seen.headers = [("retry-after", "7")]
    first = exchange(status=503, rejected=True)
    assert judged(seen, first).verdict == "lost"
    assert judged(seen, exchange(engine=1, status=503, rejected=True, at=10.0), first).verdict == "planned"


def test_a_cap_excuses_no_rejection_that_is_passed_on() -> None:
    """The request must wait for room instead."""
    rejecting = replace(CASE, plan=Plan(events=10, reject_on=(0,)))
    seen = saw(case=rejecting, status=503)
    seen.headers = [("retry-after", "7")]
    first = exchange(status=503, rejected=True)
    busy = {f"c2-{n}": [exchange(engine=1, at=9.0, end_at=15.0)] for n in range(10)}
    assert Judge({"c1-1": [first], **busy}, [], [], [], 2, 10).judge(seen).verdict == "lost"


def test_a_removed_replica_gets_nothing() -> None:
    removal = Removal("e0", asked=8.0, confirmed=9.0, back=20.0)
    assert judged(saw(), exchange(), removals=[removal]).broken
    assert not judged(saw(), exchange(), removals=[replace(removal, confirmed=10.05)]).broken


def test_a_client_that_leaves_is_noticed() -> None:
    leaving = replace(CASE, leave=Leave("flow"))
    judgement = judged(saw("left", leaving), exchange("left", end_at=11.25))
    assert (judgement.verdict, judgement.noticed_s) == ("left", [0.25])
    assert judgement.outcomes == {"client_closed"}
    assert judged(saw("left", leaving), exchange("left", end_at=10.5)).broken


def test_counts_that_cannot_be() -> None:
    sums: Tally = tally([saw()], Judge({"c1-1": [exchange()]}, [], [], []))
    assert outcome_faults(sums, {"ok": 1.0}) == []
    assert outcome_faults(sums, {"ok": 2.0})
    assert outcome_faults(sums, {"client_closed": 1.0})
    assert outcome_faults(sums, {})


def test_counts_may_vanish_with_a_removed_replica_only() -> None:
    removal = Removal("e0", asked=11.5, confirmed=11.6, back=20.0, again=21.0)
    for away, faults in (
        (removal, False),
        (replace(removal, replica="e1"), True),
        (replace(removal, asked=12.5), True),
    ):
        sums = tally([saw()], Judge({"c1-1": [exchange()]}, [], [away], []))
        assert bool(outcome_faults(sums, {})) is faults


LOG = """\
2026-11-30 10:00:01,000 WARNING adaptive_gamma.fleet: replica e1 is down: its answers fail
2026-11-30 10:00:02,500 INFO adaptive_gamma.proxy: request x: replica e2 is downright odd
2026-11-30 10:00:04,250 INFO adaptive_gamma.fleet: replica e1 is up
2026-11-30 10:00:05,000 WARNING adaptive_gamma.fleet: replica e0 is down: requests cannot connect
2026-11-30 10:00:09,000 WARNING adaptive_gamma.fleet: replica e2 is down: no answer
"""


def test_the_log_tells_when_a_replica_was_down() -> None:
    wall = datetime(2026, 11, 30, 10).timestamp() - 100.0
    assert read_downs(LOG, wall, 120.0, [("e0", 107.0), ("e1", 108.0)]) == [
        Down("e1", 101.0, 104.25),
        Down("e0", 105.0, 107.0),
        Down("e2", 109.0, 120.0),
    ]


def test_a_replica_that_was_down_need_not_be_tried() -> None:
    case = replace(CASE, plan=Plan(events=10, reject_on=(0,), reject_status=503))
    seen = replace(saw(case=case, status=503), headers=[("retry-after", "7")])
    rejected = exchange(status=503, rejected=True)

    def verdict(*downs: Down) -> str:
        return Judge({"c1-1": [rejected]}, [], [], list(downs), engines=2).judge(seen).verdict

    assert verdict() == "lost"
    assert verdict(Down("e1", 9.0, 9.8)) == "lost"
    assert verdict(Down("e1", 9.0, 10.2)) == "excused"
