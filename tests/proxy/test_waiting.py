"""The waiting room by itself."""

from __future__ import annotations

import asyncio

import pytest

from adaptive_gamma.proxy.waiting import WaitingRoom
from tests.support.gated_engine import until


class Request:
    def __init__(self, log: list[str], name: str, room: bool = False) -> None:
        self.log, self.name, self.room = log, name, room
        self.waits_for: object = name

    def on_fault(self) -> None:
        self.log.append(f"{self.name} failed")

    def try_again(self) -> bool:
        if self.room:
            self.log.append(self.name)
        return self.room

    def waited_too_long(self) -> None:
        self.log.append(f"{self.name} too long")


async def test_places() -> None:
    room = WaitingRoom(lambda: 2, lambda: 60.0)
    requests = [Request([], str(number)) for number in range(3)]
    assert [room.enter(request) for request in requests] == [True, True, False]
    room.leave(requests[0])
    room.leave(requests[0])
    assert room.enter(requests[2])
    assert len(room) == 2


async def test_nobody_waits_by_default() -> None:
    room = WaitingRoom(lambda: 0, lambda: 60.0)
    assert not room.enter(Request([], "a"))


async def test_each_that_can_go_goes_in_order() -> None:
    log: list[str] = []
    room = WaitingRoom(lambda: 9, lambda: 60.0)
    for name, free in (("stuck", False), ("first", True), ("second", True)):
        assert room.enter(Request(log, name, free))
    room.room_made()
    assert log == ["first", "second"]
    assert len(room) == 1


async def test_of_those_alike_none_is_tried_behind_one_that_found_no_room() -> None:
    log: list[str] = []
    room = WaitingRoom(lambda: 900, lambda: 60.0)
    tried: list[str] = []

    class Alike(Request):
        def try_again(self) -> bool:
            tried.append(self.name)
            return super().try_again()

    for number in range(200):
        request = Alike(log, f"a{number}")
        request.waits_for = "model a"
        assert room.enter(request)
    other = Alike(log, "b", room=True)
    assert room.enter(other)
    room.room_made()
    assert (tried, log) == (["a0", "b"], ["b"])


async def test_a_fault_of_one_reaches_no_other() -> None:
    log: list[str] = []
    room = WaitingRoom(lambda: 9, lambda: 60.0)

    class Faulty(Request):
        def try_again(self) -> bool:
            raise ZeroDivisionError

    for request in (Faulty(log, "a"), Request(log, "b", room=True)):
        assert room.enter(request)
    room.room_made()
    assert log == ["a failed", "b"]
    assert len(room) == 0


async def test_one_that_ends_as_it_is_tried_is_not_tried_again() -> None:
    log: list[str] = []
    room = WaitingRoom(lambda: 9, lambda: 60.0)

    class EndsAtOnce(Request):
        def try_again(self) -> bool:
            super().try_again()
            room.leave(self)
            room.room_made()
            return True

    for name in ("a", "b", "c"):
        assert room.enter(EndsAtOnce(log, name, room=True))
    room.room_made()
    assert log == ["a", "b", "c"]
    assert len(room) == 0


async def test_waiting_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_gamma.proxy.waiting._LOOK_AGAIN_S", 0.01)
    log: list[str] = []
    room = WaitingRoom(lambda: 9, lambda: 0.0)
    assert room.enter(Request(log, "a"))
    await until(lambda: log == ["a too long"], "it waited too long")
    assert len(room) == 0


async def test_room_that_nobody_tells_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_gamma.proxy.waiting._LOOK_AGAIN_S", 0.01)
    log: list[str] = []
    room = WaitingRoom(lambda: 9, lambda: 60.0)
    requests = [Request(log, name) for name in "abc"]
    for request in requests:
        assert room.enter(request)
    await asyncio.sleep(0)
    for request in requests:
        request.room = True
    await until(lambda: log == ["a", "b", "c"], "all of them went")


async def test_whatever_one_meets_those_who_wait_are_looked_at_again() -> None:
    log: list[str] = []
    longest_s = 0.0
    room = WaitingRoom(lambda: 9, lambda: longest_s)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    class Faulty(Request):
        def waited_too_long(self) -> None:
            raise ValueError("one")

        def on_fault(self) -> None:
            raise ValueError("two")

    assert room.enter(Faulty(log, "faulty"))
    longest_s = 60.0
    other = Request(log, "other")
    assert room.enter(other)
    await until(lambda: bool(told), "the fault is told")
    other.room = True
    await until(lambda: log == ["other"], "the other one is sent")
    assert [str(error) for error in told] == ["two"]
