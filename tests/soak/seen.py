"""What a client saw of one request, and the check of every byte it got."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from tests.soak.plan import DONE, ENGINE_HEADER, RECEIVED_HEADER, Plan, body_pieces, received_mark
from tests.soak.scenarios import Case

__all__ = ["BodyCheck", "Ended", "Seen", "Source"]

Ended = Literal[
    "clean",  # the answer ended as its framing says
    "cut",  # the connection broke before that
    "left",  # the client closed the connection
    "late",  # not over in a time that is longer than every limit together
    "refused",  # no connection to the proxy
]
Source = tuple[int, int, int]
"""Engine, boot and exchange that wrote an answer."""

_KEPT = 2000


class BodyCheck:
    """Compares a body with what its plan says, as it comes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._expected = b""
        self.length = 0
        self.crc = 0
        self.wrong: str | None = None
        """The first difference, in words."""

    @classmethod
    def of(cls, plan: Plan, request_id: str) -> BodyCheck:
        pieces = body_pieces(plan, request_id)
        return cls(pieces if plan.ends_cleanly or plan.ending == "short" else islice(pieces, plan.at))

    def feed(self, data: bytes) -> None:
        self.crc = zlib.crc32(data, self.crc)
        if self.wrong is None:
            self._compare(data)
        self.length += len(data)

    def _compare(self, data: bytes) -> None:
        expected = self._expected
        while len(expected) < len(data):
            piece = next(self._pieces, None)
            if piece is None:
                break
            expected += piece
        if expected[: len(data)] == data:
            self._expected = expected[len(data) :]
            return
        same = next((n for n, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), len(expected))
        self.wrong = (
            f"byte {self.length + same} of the body: got {data[same : same + 60]!r}, "
            f"the engine writes {expected[same : same + 60]!r}"
        )

    @property
    def at_end(self) -> bool:
        """Whether everything the plan writes has come."""
        if not self._expected:
            self._expected = next(self._pieces, b"")
        return not self._expected


@dataclass
class Seen:
    """One request from the client's side; times are monotonic seconds."""

    case: Case
    began: float = 0.0
    sent: bool = False
    """Whether the whole request was written."""
    head_at: float | None = None
    left_at: float | None = None
    ended_at: float = 0.0
    ended: Ended = "cut"
    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    source: Source | None = None
    replica: str | None = None
    length: int = 0
    crc: int = 0
    done: bool = False
    """Whether [DONE] came, wherever it came from."""
    wrong: list[str] = field(default_factory=list)
    """What must not be, whatever happened."""
    own_body: bytes = b""
    """The beginning of an answer that no engine wrote."""
    reused: bool = False
    sent_mark: str = ""
    """The request's body as ``received_mark`` writes it."""
    _check: BodyCheck | None = None
    _tail: bytes = b""

    def took_head(self, status: int, headers: list[tuple[str, str]], at: float) -> None:
        self.status, self.head_at = status, at
        self.headers = headers
        case = self.case
        self.replica = self._one("x-adaptive-gamma-replica", required=False)
        for name in ("date", "server", "x-request-id"):
            self._one(name, required=name == "x-request-id")
        if self._one("x-request-id", required=False) != case.request_id:
            self.wrong.append(f"x-request-id is {self._one('x-request-id', required=False)!r}")
        mark = self._one(ENGINE_HEADER, required=False)
        if mark is None:
            return
        engine, boot, number = (int(part) for part in mark.split("."))
        self.source = (engine, boot, number)
        plan = case.plan
        if plan is None:
            self.wrong.append("an engine answered a request that is not for engines")
            return
        if [value for name, value in headers if name == "x-soak"] != ["1", "2"]:
            self.wrong.append("repeated response headers changed")
        if engine in plan.reject_on:
            plan = plan.rejection
        if status != plan.status:
            self.wrong.append(f"status {status}, the engine wrote {plan.status}")
        self._check = BodyCheck.of(plan, case.request_id)

    def took_body(self, data: bytes) -> None:
        tail = self._tail + data
        if DONE in tail:
            self.done = True
        self._tail = tail[-len(DONE) + 1 :]
        if self._check is not None:
            self._check.feed(data)
            self.length = self._check.length
        else:
            self.length += len(data)
            self.own_body += data[: _KEPT - len(self.own_body)]

    @property
    def all_came(self) -> bool:
        """Whether the engine, by its plan, has nothing more to write."""
        return self._check is not None and self._check.at_end

    def finish(self, ended: Ended, at: float) -> None:
        self.ended, self.ended_at = ended, at
        if self._check is not None:
            self.crc = self._check.crc
            if self._check.wrong is not None:
                self.wrong.append(self._check.wrong)
        self._check = None
        self._tail = b""
        case = self.case
        self.sent_mark = received_mark(len(case.body), zlib.crc32(case.body))
        self.case = replace(case, body=b"", headers=())  # a run makes a gigabyte of bodies

    @property
    def received_mark(self) -> str:
        """What the engine says it received as the request's body."""
        return self._one(RECEIVED_HEADER, required=False) or ""

    def _one(self, name: str, *, required: bool) -> str | None:
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1 or (required and not values):
            note = f"{len(values)} {name} headers"
            if note not in self.wrong:
                self.wrong.append(note)
        return values[0] if values else None
