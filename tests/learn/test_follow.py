"""When a table follows what was learned."""

from __future__ import annotations

from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn import LearnedCurve, table_change

FILE = {"code": AcceptanceCurve.independent(0.8), "chat": AcceptanceCurve.independent(0.6)}
NOBODY: frozenset[str] = frozenset()


def learned(name: str, rate: float, *, drifted: bool, seen: bool = True, error: float = 0.01) -> LearnedCurve:
    positions = 4 if seen else 0
    return LearnedCurve(
        AcceptanceCurve.independent(rate), (1000.0,) * positions, (0.01,) * positions, error, FILE[name],
        ((0.0, 1.0),) * positions, inferred=False, drifted=drifted,
    )  # fmt: skip


def test_no_table_while_nothing_has_drifted() -> None:
    seen = {"code": learned("code", 0.7, drifted=False), "chat": learned("chat", 0.6, drifted=False)}
    assert table_change(seen, FILE, NOBODY) is None


def test_a_drifted_class_brings_a_table_of_all_that_is_known() -> None:
    code, chat = learned("code", 0.5, drifted=True), learned("chat", 0.62, drifted=False)
    change = table_change({"code": code, "chat": chat}, FILE, NOBODY)
    assert change is not None
    assert change.drifted == {"code"}
    assert change.curves == {"code": code.curve, "chat": chat.curve}
    unseen = {"code": code, "chat": learned("chat", 0.6, drifted=False, seen=False)}
    only = table_change(unseen, FILE, NOBODY)
    assert only is not None
    assert only.curves == {"code": code.curve}


def test_one_in_force_is_kept_until_its_class_has_moved_on_beyond_doubt() -> None:
    in_force = {**FILE, "code": AcceptanceCurve.independent(0.5)}
    drifted = frozenset({"code"})
    chat = learned("chat", 0.6, drifted=False)
    near, far = learned("code", 0.505, drifted=True), learned("code", 0.4, drifted=True)
    assert table_change({"code": near, "chat": chat}, in_force, drifted) is None
    assert table_change({"code": far, "chat": chat}, in_force, drifted) is not None
    doubtful = learned("code", 0.4, drifted=True, error=1.0)
    assert table_change({"code": doubtful, "chat": chat}, in_force, drifted) is None


def test_the_file_comes_back_when_nothing_is_off_any_more() -> None:
    back = {"code": learned("code", 0.79, drifted=False), "chat": learned("chat", 0.6, drifted=False)}
    change = table_change(back, {**FILE, "code": AcceptanceCurve.independent(0.5)}, frozenset({"code"}))
    assert change is not None
    assert change.curves is None
    assert change.drifted == NOBODY
