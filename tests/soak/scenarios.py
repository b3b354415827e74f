"""What the clients do: a random mix of requests, answers to plan, and ways to leave."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.soak.engine_pages import MODEL
from tests.soak.plan import Ending, Plan

__all__ = ["Case", "Leave", "Scenarios"]

LeaveAt = Literal["upload", "head", "flow", "silence", "unread"]


@dataclass(frozen=True)
class Leave:
    """When a client closes its connection without a word."""

    at: LeaveAt
    """In its upload; before the answer's head; while events flow; while the engine is silent in the middle; while it
    does not read what has come."""
    after_s: float = 0.0
    """Seconds after the request was sent (``head``), or after the bytes below have come."""
    after_bytes: int = 0


@dataclass(frozen=True)
class Case:
    """One request as a client makes it."""

    request_id: str
    label: str
    """Which row of the table it belongs to."""
    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    plan: Plan | None = None
    """None: no engine should ever see it."""
    refusal: int | None = None
    """Status with which the proxy itself must answer, where ``plan`` is None."""
    leave: Leave | None = None
    read_bytes_s: float | None = None
    """Reads at most about so many bytes a second, with a small receive buffer."""
    parts: int = 1
    """The body is sent in so many parts, with pauses."""
    expect: bool = False
    """Sends ``Expect: 100-continue`` and waits for the word."""
    announced: int | None = None
    """Content-Length where it is not the body's."""
    old: bool = False
    """An HTTP/1.0 client."""
    owner: int | None = None
    """The only engine that has the object asked for."""


_TOPICS = (
    "def handler(request):\n    return ",
    "Explain why the sky is blue. ",
    "Solve 3x + 5 = 20. ",
    "Write a story. ",
)
_SHARED_PROMPTS = 48
_SHARED_BYTES = 6000
_TURNS = 6
UPLOAD_LIMIT = 8 * 1024 * 1024


class Scenarios:
    """Draws cases for one client.

    Args:
        rng: the client's own, so that a seed gives the same cases whatever the timing.
        client: the client's number, part of its request ids.
        engines: how many engines there are.
        silence: with engines that go silent under clients that wait, until the proxy's time limits.
        longest_s: about the longest time that a paced stream or a slow reader takes.
    """

    def __init__(
        self, rng: random.Random, client: int, engines: int, *, silence: bool = True, longest_s: float = 12.0
    ) -> None:
        self._rng = rng
        self._client = client
        self._engines = engines
        self._longest_s = longest_s
        self._count = 0
        self._session: list[dict[str, str]] = []
        self._session_id = ""
        self._makers = [maker for maker in _MIX if silence or maker not in _SILENCE]
        self._weights = [_MIX[maker] for maker in self._makers]

    def draw(self) -> Case:
        """The next case."""
        self._count += 1
        (maker,) = self._rng.choices(self._makers, self._weights)
        return maker(self)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _id(self) -> str:
        return f"c{self._client}-{self._count}"

    def _messages(self) -> tuple[list[dict[str, str]], tuple[tuple[str, str], ...]]:
        rng = self._rng
        draw = rng.random()
        if draw < 0.35:
            shared = rng.randrange(_SHARED_PROMPTS)
            system = f"Document {shared}. " + f"Paragraph {shared} of the shared context. " * (_SHARED_BYTES // 40)
            return [{"role": "system", "content": system}, {"role": "user", "content": rng.choice(_TOPICS)}], ()
        if draw < 0.7:
            if len(self._session) >= 2 * _TURNS or not self._session:
                self._session = []
                self._session_id = f"session-{self._client}-{self._count}"
            self._session.append({"role": "user", "content": rng.choice(_TOPICS) * rng.randint(1, 30)})
            messages = list(self._session)
            self._session.append({"role": "assistant", "content": "An answer. " * rng.randint(5, 40)})
            return messages, (("x-session-id", self._session_id),)
        return [{"role": "user", "content": rng.choice(_TOPICS) * rng.randint(1, 20)}], ()

    def _generate(self, label: str, plan: Plan, **more: object) -> Case:
        rng = self._rng
        body: dict[str, object] = {"model": MODEL, "stream": plan.stream, "max_tokens": rng.choice((16, 256, 2048))}
        headers: tuple[tuple[str, str], ...] = ()
        path = "/v1/chat/completions"
        draw = rng.random()
        if draw < 0.85:
            body["messages"], headers = self._messages()
        elif draw < 0.95:
            path, body["prompt"] = "/v1/completions", rng.choice(_TOPICS) * 10
            body["user"] = f"user-{self._client}"
        else:
            path, body["input"] = "/v1/responses", rng.choice(_TOPICS) * 3
        text = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode()
        case = Case(self._id(), label, "POST", path, text, headers, plan)
        return dataclasses.replace(case, **more)  # type: ignore[arg-type]  # fields of the class, by name

    def _flow(self) -> Plan:
        """A stream of random length and pace."""
        rng = self._rng
        pace_s = rng.choice((0.0, 0.005, 0.02, 0.04, 0.06, 0.1, 0.3))
        longest = 400 if pace_s == 0 else min(400, int(self._longest_s / pace_s))
        events = rng.randint(1, max(longest, 2))
        delay = rng.choice((0.0, 0.0, 0.05, 0.3, 1.0))
        return Plan(events=events, pace_s=pace_s, size=rng.choice((0, 0, 40, 200, 1000)), head_delay_s=delay)

    def _json(self, status: int = 200) -> Plan:
        rng = self._rng
        return Plan(
            stream=False,
            size=rng.choice((50, 200, 2000, 30_000, 200_000)),
            gzip=status == 200 and rng.random() < 0.2,
            chunked=rng.random() < 0.5,
            status=status,
            head_delay_s=rng.choice((0.0, 0.0, 0.02, 0.2)),
        )

    # -- clients that stay, engines that do their work -----------------------------------------------------------------

    def stream(self) -> Case:
        return self._generate("stream", self._flow())

    def short_json(self) -> Case:
        rng = self._rng
        if rng.random() < 0.6:
            return self._generate("json", self._json())
        path = rng.choice(("/v1/embeddings", "/tokenize", "/v1/rerank"))
        body = json.dumps({"model": MODEL, "input": "words " * rng.randint(1, 100)}).encode()
        return Case(self._id(), "json", "POST", path, body, (), self._json())

    def upload(self) -> Case:
        rng = self._rng
        size = rng.choice((16_000, 70_000, 300_000, 1_000_000, 3_000_000))
        case = self._upload(size)
        parts = rng.choice((1, 1, 4, 10))
        return dataclasses.replace(case, label="upload", parts=parts, expect=rng.random() < 0.2)

    def _upload(self, size: int) -> Case:
        body = self._rng.randbytes(4096) * (size // 4096) + b"end"
        kind = (("content-type", "multipart/form-data; boundary=soak"),)
        return Case(self._id(), "upload", "POST", "/v1/audio/transcriptions", body, kind, self._json())

    def old_client(self) -> Case:
        plan = self._flow() if self._rng.random() < 0.5 else self._json()
        return self._generate("HTTP/1.0", plan, old=True)

    def slow_reader(self) -> Case:
        rng = self._rng
        rate = rng.choice((400_000.0, 800_000.0))
        size = min(rng.randint(1_000_000, 4_000_000), int(rate * self._longest_s))
        if rng.random() < 0.5:
            plan = Plan(events=size // 8000, size=8000)
        else:
            plan = Plan(stream=False, size=size, chunked=rng.random() < 0.5)
        return self._generate("slow reader", plan, read_bytes_s=rate)

    def stored(self) -> Case:
        owner = self._rng.randrange(self._engines)
        others = tuple(index for index in range(self._engines) if index != owner)
        plan = dataclasses.replace(self._json(), reject_on=others, reject_status=404)
        path = f"/v1/responses/resp_{owner}_{self._count}"
        return Case(self._id(), "stored response", "GET", path, plan=plan, owner=owner)

    # -- engines with faults -------------------------------------------------------------------------------------------

    def breaks_off(self) -> Case:
        rng = self._rng
        plan = self._flow()
        at = rng.randint(0, plan.events + 1)
        endings: tuple[Ending, ...] = ("reset", "closed")
        return self._generate("engine dies", dataclasses.replace(plan, ending=rng.choice(endings), at=at))

    def short_length(self) -> Case:
        return self._generate("short length", dataclasses.replace(self._json(), ending="short", gzip=False))

    def no_head(self) -> Case:
        return self._generate("no answer", dataclasses.replace(self._json(), ending="no_head"))

    def silent(self) -> Case:
        plan = self._flow()
        plan = dataclasses.replace(plan, ending="silent", at=self._rng.randint(0, plan.events))
        return self._generate("silent for good", plan)

    def silent_head(self) -> Case:
        return self._generate("silent from the start", dataclasses.replace(self._json(), ending="silent_head"))

    def error_event(self) -> Case:
        return self._generate("error event", dataclasses.replace(self._flow(), ending="error_event"))

    def refused_by_engine(self) -> Case:
        plan = self._json(self._rng.choice((400, 404, 422)))
        return self._generate("engine 4xx", plan)

    def broken_engine(self) -> Case:
        return self._generate("engine 500", self._json(500))

    def rejected_somewhere(self) -> Case:
        rng = self._rng
        plan = self._flow() if rng.random() < 0.5 else self._json()
        where = tuple(rng.sample(range(self._engines), rng.randint(1, max(self._engines - 2, 1))))
        plan = dataclasses.replace(plan, reject_on=where, reject_status=rng.choice((429, 503)))
        return self._generate("rejected by some", plan)

    def rejected_everywhere(self) -> Case:
        rng = self._rng
        plan = dataclasses.replace(
            self._json(), reject_on=tuple(range(self._engines)), reject_status=rng.choice((429, 503))
        )
        return self._generate("rejected by all", plan)

    def early_answer(self) -> Case:
        case = self._upload(self._rng.choice((300_000, 2_000_000)))
        plan = dataclasses.replace(self._json(422), early=True)
        return dataclasses.replace(case, label="answered early", plan=plan)

    # -- clients that leave --------------------------------------------------------------------------------------------

    def leaves_before_head(self) -> Case:
        rng = self._rng
        plan = Plan(stream=rng.random() < 0.5, ending="silent_head")
        leave = Leave("head", after_s=rng.choice((0.0, 0.005, 0.05, 0.5, 2.0)))
        return self._generate("leaves before the head", plan, leave=leave)

    def leaves_in_flow(self) -> Case:
        rng = self._rng
        plan = dataclasses.replace(self._flow(), pace_s=0.03, events=400, size=40)
        leave = Leave("flow", after_bytes=rng.randint(1, 30_000))
        return self._generate("leaves in the stream", plan, leave=leave)

    def leaves_in_silence(self) -> Case:
        rng = self._rng
        plan = dataclasses.replace(self._flow(), ending="silent", at=rng.randint(1, 20), pace_s=0.01, size=0, events=30)
        leave = Leave("silence", after_s=rng.choice((0.01, 0.3, 1.5)), after_bytes=1)
        return self._generate("leaves in silence", plan, leave=leave)

    def leaves_unread(self) -> Case:
        rng = self._rng
        plan = Plan(events=20_000, size=8000)
        leave = Leave("unread", after_s=rng.choice((0.1, 0.5, 2.0)), after_bytes=rng.randint(1, 200_000))
        return self._generate("leaves without reading", plan, leave=leave, read_bytes_s=200_000.0)

    def leaves_in_upload(self) -> Case:
        case = self._upload(self._rng.choice((70_000, 1_000_000)))
        leave = Leave("upload", after_bytes=self._rng.randrange(len(case.body)))
        return dataclasses.replace(case, label="leaves in its upload", leave=leave, parts=6)

    # -- requests for the proxy itself ---------------------------------------------------------------------------------

    def refused(self) -> Case:
        rng = self._rng
        draw = rng.randrange(4)
        if draw == 0:
            return Case(self._id(), "refused", "POST", f"/v1/nothing-{rng.randrange(10**6)}", b"{}", refusal=404)
        if draw == 1:
            return Case(self._id(), "refused", "POST", "/v1/chat/completions", b'{"model": ', refusal=400)
        if draw == 2:
            body = json.dumps({"model": f"unknown-{rng.randrange(10**6)}", "prompt": "x"}).encode()
            return Case(self._id(), "refused", "POST", "/v1/completions", body, refusal=404)
        return Case(self._id(), "refused", "POST", "/v1/completions", b"", refusal=413, announced=UPLOAD_LIMIT + 1)

    def models(self) -> Case:
        return Case(self._id(), "model list", "GET", "/v1/models", refusal=200)


_MIX: dict[Callable[[Scenarios], Case], float] = {
    Scenarios.stream: 38,
    Scenarios.short_json: 18,
    Scenarios.upload: 5,
    Scenarios.old_client: 2,
    Scenarios.slow_reader: 2,
    Scenarios.stored: 2,
    Scenarios.breaks_off: 4,
    Scenarios.short_length: 1,
    Scenarios.no_head: 1,
    Scenarios.silent: 0.5,
    Scenarios.silent_head: 0.5,
    Scenarios.error_event: 2,
    Scenarios.refused_by_engine: 2,
    Scenarios.broken_engine: 1,
    Scenarios.rejected_somewhere: 3,
    Scenarios.rejected_everywhere: 1,
    Scenarios.early_answer: 1,
    Scenarios.leaves_before_head: 4,
    Scenarios.leaves_in_flow: 5,
    Scenarios.leaves_in_silence: 3,
    Scenarios.leaves_unread: 1,
    Scenarios.leaves_in_upload: 2,
    Scenarios.refused: 3,
    Scenarios.models: 1,
}
_SILENCE = (Scenarios.silent, Scenarios.silent_head)
