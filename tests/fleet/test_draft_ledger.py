"""Reports of requests and counters of their replica tell of the same drafts, not always at the same moment."""

from __future__ import annotations

from adaptive_gamma.fleet.draft_ledger import DraftLedger
from adaptive_gamma.fleet.window import DraftCounts


def counts(tokens: float, **by_class: float) -> DraftCounts:
    return DraftCounts(tokens / 4, tokens, tokens / 2, [tokens / 8], dict(by_class.items()), tokens / 4)


def test_without_reports_the_time_requests_were_open_tells() -> None:
    ledger = DraftLedger()
    one = counts(400, chat=60.0, code=40.0)
    assert ledger.count(one) == (one, {"chat": 60.0, "code": 40.0})


def test_reports_that_add_up_tell_exactly() -> None:
    ledger = DraftLedger()
    ledger.report("chat", 100)
    ledger.report("code", 200)
    ledger.report("chat", 101)
    told = ledger.count(counts(400, chat=1.0, code=99.0))
    assert told is not None
    assert told[1] == {"chat": 201, "code": 200}


def test_a_scrape_between_counters_and_report_waits_for_the_report() -> None:
    ledger = DraftLedger()
    ledger.report("chat", 100)
    assert ledger.count(counts(300, chat=50.0, code=25.0)) is None
    ledger.report("code", 200)
    ledger.report("code", 80)
    told = ledger.count(counts(80, code=20.0))
    assert told is not None
    assert told[0].draft_tokens == 380
    assert told[0].per_position == [380 / 8]
    assert told[1] == {"chat": 100, "code": 280}
    after = counts(40, chat=10.0)
    assert ledger.count(after) == (after, {"chat": 10.0}), "nothing is carried over"


def test_reports_that_never_add_up_are_given_up() -> None:
    """Somebody else uses the engine too."""
    ledger = DraftLedger()
    answers = []
    for _ in range(5):
        ledger.report("chat", 10)
        answers.append(ledger.count(counts(400, chat=30.0, code=70.0)))
    assert answers[:4] == [None] * 4
    last = answers[4]
    assert last is not None
    assert last[0].draft_tokens == 2000
    assert last[1] == {"chat": 150.0, "code": 350.0}
