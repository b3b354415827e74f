from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adaptive_gamma.routing.affinity import BLOCK_CHARACTERS, LARGEST_PREFIX, AffinityIndex

BLOCK = BLOCK_CHARACTERS


def send(
    index: AffinityIndex,
    replica: str,
    *,
    session: str | None = None,
    prefix: str = "",
    tokens: int = 100,
    now: float = 0,
) -> None:
    index.record(index.look_up(session, prefix, now), replica, tokens, now)


def cached(index: AffinityIndex, session: str | None = None, prefix: str = "", now: float = 0.0) -> dict[str, int]:
    return dict(index.look_up(session, prefix, now).cached)


def text(blocks: float, mark: str = "a") -> str:
    return (mark * 8)[:8] * int(blocks * BLOCK / 8)


def test_a_session_remembers_its_last_replica_and_prompt() -> None:
    index = AffinityIndex(100, 60.0)
    assert cached(index, "s") == {}
    send(index, "a", session="s", tokens=70)
    assert cached(index, "s") == {"a": 70}
    send(index, "b", session="s", tokens=90)
    assert cached(index, "s") == {"b": 90}
    assert cached(index, "t") == {}
    assert len(index) == 1


def test_a_prefix_is_known_block_by_block_on_every_replica_that_had_it() -> None:
    index = AffinityIndex(100, 60.0)
    send(index, "a", prefix=text(5))
    send(index, "b", prefix=text(2) + text(3, "z"))
    assert cached(index, prefix=text(5)) == {"a": 4 * BLOCK // 4, "b": 2 * BLOCK // 4}
    assert cached(index, prefix=text(3)) == {"a": 3 * BLOCK // 4, "b": 2 * BLOCK // 4}
    assert cached(index, prefix=text(2) + text(3, "z")) == {"a": 2 * BLOCK // 4, "b": BLOCK}
    assert cached(index, prefix=text(2, "z") + text(3, "z")) == {}, "a block stands for all before it"
    assert cached(index, prefix="b" + text(5)) == {}


def test_session_and_prefix_together_take_the_longer() -> None:
    index = AffinityIndex(100, 60.0)
    send(index, "a", session="s", prefix=text(2), tokens=5000)
    assert cached(index, "s", text(2)) == {"a": 5000}
    send(index, "b", session="s", prefix=text(2), tokens=10)
    assert cached(index, "s", text(2)) == {"a": 512, "b": 512}


def test_short_prompts_without_a_session_leave_nothing() -> None:
    index = AffinityIndex(100, 60.0)
    short = "x" * (BLOCK - 1)
    assert index.look_up(None, short, 0.0) is index.look_up(None, "", 5.0)
    send(index, "a", prefix=short)
    assert len(index) == 0


def test_text_beyond_the_largest_prefix_is_not_looked_at() -> None:
    index = AffinityIndex(100, 60.0)
    send(index, "a", prefix="p" * (LARGEST_PREFIX + 7 * BLOCK))
    assert len(index) == 12
    assert cached(index, prefix="p" * LARGEST_PREFIX) == {"a": LARGEST_PREFIX // 4}


def test_what_is_old_is_not_believed_and_goes() -> None:
    index = AffinityIndex(1000, 60.0)
    for i in range(40):
        send(index, "a", session=f"s{i}", now=0.0)
    send(index, "a", prefix=text(1), now=0.0)
    send(index, "b", prefix=text(1), now=50.0)
    assert cached(index, prefix=text(1), now=60.0) == {"a": 256, "b": 256}
    assert cached(index, prefix=text(1), now=60.5) == {"b": 256}
    assert cached(index, "s3", now=60.5) == {}
    assert len(index) == 41
    for i in range(3):
        send(index, "b", session="new", now=61.0 + i)
    assert len(index) == 2


def test_the_longest_unused_goes_first_and_a_prompt_loses_its_end_first() -> None:
    index = AffinityIndex(6, 60.0)
    send(index, "a", prefix=text(4))
    for i in range(4):
        send(index, "b", session=f"s{i}")
    assert cached(index, prefix=text(4)) == {"a": 512}
    send(index, "a", prefix=text(1))
    send(index, "b", session="s4")
    send(index, "b", session="s5")
    assert cached(index, prefix=text(4)) == {"a": 256}


def test_a_common_beginning_is_remembered_for_a_whole_fleet() -> None:
    index = AffinityIndex(100, 60.0)
    for i in range(20):
        send(index, f"r{i}", prefix=text(1))
    assert cached(index, prefix=text(1)) == {f"r{i}": 256 for i in range(4, 20)}


def test_ten_thousand_sessions_and_prompts_stay_within_the_cap() -> None:
    index = AffinityIndex(512, 600.0)
    for i in range(12_000):
        send(index, f"r{i % 5}", session=f"user-{i}", prefix=f"{i:08}" + text(3), now=i * 0.001)
        assert len(index) <= 512
    assert len(index) == 512
    for i in range(5):
        index.forget(f"r{i}")
    assert len(index) == 0


@pytest.mark.parametrize("replicas", [1, 2, 16])
def test_memory_is_bounded_in_bytes(replicas: int) -> None:
    """The docstring's figure. Keys come from real look-ups, as many replicas per prompt as there are."""
    entries = 5500  # just beyond a doubling of the table: the worst case
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = AffinityIndex(entries, 600.0)
        now = 0.0
        for i in range(2 * entries // max(replicas // 4, 1)):
            prefix = f"{i:08}" + "x" * (BLOCK - 8)
            for r in range(replicas):
                now += 0.001
                send(index, _NAMES[r], prefix=prefix, now=now)
            del prefix
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0 < len(index) <= entries
    assert used <= 500 * entries, used / entries


_NAMES = [f"replica-{i}" for i in range(16)]


def test_nothing_a_client_sent_is_kept() -> None:
    index = AffinityIndex(100, 60.0)
    send(index, "a", session="alice@example.org", prefix="secret " * 1000)
    kept = repr([getattr(index, name) for name in AffinityIndex.__slots__])
    assert "alice" not in kept
    assert "secret" not in kept
    assert "secret" not in repr(index.look_up("alice@example.org", "secret " * 1000, 1.0))


def test_an_index_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        AffinityIndex(0, 60.0)


@given(st.text(max_size=3000), st.text(max_size=20))
def test_any_text_can_be_looked_up(prefix: str, session: str) -> None:
    index = AffinityIndex(10, 60.0)
    send(index, "a", session=session, prefix=prefix * 3)
    assert cached(index, session, prefix * 3)["a"] > 0


def shared(one: str, other: str) -> int:
    """Characters of the whole blocks that two texts of whole blocks begin with."""
    size = 0
    while one[size : size + BLOCK] == other[size : size + BLOCK] != "":
        size += BLOCK
    return size


class Against(RuleBasedStateMachine):
    """The index beside a plain memory of every request ever sent."""

    ENTRIES = 12
    AGE = 30.0

    def __init__(self) -> None:
        super().__init__()
        self.index = AffinityIndex(self.ENTRIES, self.AGE)
        self.now = 0.0
        self.sent: list[tuple[str, str | None, str, int, float]] = []

    @rule(
        replica=st.sampled_from("abc"),
        session=st.none() | st.sampled_from(["s", "t", "u"]),
        prefix=st.sampled_from(["", *(text(n, mark) for n in (1, 2, 4) for mark in "xy"), text(1) + text(2, "x")]),
        tokens=st.integers(1, 5000),
    )
    def request(self, replica: str, session: str | None, prefix: str, tokens: int) -> None:
        found = self.index.look_up(session, prefix, self.now)
        for name, believed in found.cached.items():
            assert believed <= self.true_tokens(name, session, prefix)
        self.index.record(found, replica, tokens, self.now)
        self.sent.append((replica, session, prefix, tokens, self.now))
        again = self.index.look_up(session, prefix, self.now).cached
        assert (replica in again) == (session is not None or prefix != "")

    def true_tokens(self, replica: str, session: str | None, prefix: str) -> int:
        best = 0
        for name, its_session, its_prefix, tokens, when in self.sent:
            if name == replica and when >= self.now - self.AGE:
                if its_session is not None and its_session == session:
                    best = max(best, tokens)
                best = max(best, shared(prefix, its_prefix) // 4)
        return best

    @rule(seconds=st.sampled_from([0.5, 10.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        replica = data.draw(st.sampled_from("abc"))
        self.index.forget(replica)
        sent, self.sent = self.sent, [s for s in self.sent if s[0] != replica]
        for _, session, prefix, _, _ in sent:
            assert replica not in self.index.look_up(session, prefix, self.now).cached
        assert all(holder[0] != replica for holders in self.index._held.values() for holder in holders)

    @invariant()
    def within_its_cap(self) -> None:
        held = self.index._held
        assert len(self.index) == len(held) <= self.ENTRIES
        assert self.index._holders == sum(map(len, held.values())) <= 2 * self.ENTRIES
        assert all(held.values())


Against.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAgainst = Against.TestCase
