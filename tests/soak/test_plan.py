"""The bytes that engines write and clients expect: numbered, summed, and compared to the last one."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace

import pytest

from tests.soak.plan import DONE, Plan, body_pieces
from tests.soak.seen import BodyCheck

STREAM = Plan(events=60, size=40)


def test_a_stream_can_be_checked_without_its_plan() -> None:
    body = b"".join(body_pieces(STREAM, "c1-1"))
    crc = number = 0
    events = body.replace(b"\r\n\r\n", b"\r\n\r\n\0").replace(b"\n\n", b"\n\n\0").split(b"\0")[:-1]
    pending = b""
    for event in events[:-1]:
        if event.startswith(b":"):
            pending = event
            continue
        data = json.loads(event.removeprefix(b"data: "))
        assert (data["id"], data["n"], data["crc"]) == ("c1-1", number, f"{crc:08x}")
        crc = zlib.crc32(pending + event, crc)
        pending = b""
        number += 1
    assert number == 60
    assert events[-1] == DONE


def test_plans_survive_the_header() -> None:
    for plan in (Plan(), STREAM, Plan(stream=False, gzip=True, ending="short", reject_on=(1, 2), reject_status=429)):
        assert Plan.decode(plan.encode()) == plan


def test_json_is_json() -> None:
    body = b"".join(body_pieces(Plan(stream=False, size=200_000, gzip=True), "c1-2"))
    assert json.loads(gzip.decompress(body))["id"] == "c1-2"
    assert "error" in json.loads(b"".join(body_pieces(Plan(stream=False, status=500), "c1-3")))


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_the_right_bytes_pass_in_any_pieces(size: int) -> None:
    check = BodyCheck.of(STREAM, "c1-1")
    body = b"".join(body_pieces(STREAM, "c1-1"))
    for start in range(0, len(body), size):
        assert check.wrong is None
        check.feed(body[start : start + size])
    assert check.wrong is None
    assert check.at_end
    assert (check.length, check.crc) == (len(body), zlib.crc32(body))


@pytest.mark.parametrize("fault", ["flipped", "missing", "twice", "more", "other request"])
def test_wrong_bytes_are_found(fault: str) -> None:
    pieces = list(body_pieces(STREAM, "c1-1"))
    if fault == "flipped":
        pieces[30] = pieces[30].replace(b"c1-1", b"c1-2")
    elif fault == "missing":
        del pieces[30]
    elif fault == "twice":
        pieces.insert(30, pieces[30])
    elif fault == "more":
        pieces.append(DONE)
    else:
        pieces = list(body_pieces(STREAM, "c2-1"))
    check = BodyCheck.of(STREAM, "c1-1")
    for piece in pieces:
        check.feed(piece)
    assert check.wrong is not None


def test_what_a_dying_engine_would_not_have_written_is_found() -> None:
    plan = replace(STREAM, ending="closed", at=10)
    check = BodyCheck.of(plan, "c1-1")
    check.feed(b"".join(list(body_pieces(plan, "c1-1"))[:10]))
    assert check.at_end
    assert check.wrong is None
    check.feed(DONE)
    assert check.wrong is not None
