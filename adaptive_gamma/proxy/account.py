"""What is told of one request when it has ended: to the access log, and to whoever collects traces."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from adaptive_gamma.proxy.answers import shortened

if TYPE_CHECKING:
    from adaptive_gamma.engines import RequestAcceptance
    from adaptive_gamma.proxy.intake import Intake
    from adaptive_gamma.proxy.telling import Telling

__all__ = ["RequestAccount"]

_TAIL = 16 * 1024
"""The end of an answer that is looked at for its count of tokens."""
# A quote inside a JSON string has a backslash before it, so that no text of an answer looks like these.
_PROMPT = re.compile(rb'"(?:prompt_tokens|input_tokens|tokens_evaluated)"\s*:\s*(\d{1,9})')
_OUTPUT = re.compile(rb'"(?:completion_tokens|output_tokens|tokens_predicted)"\s*:\s*(\d{1,9})')


class RequestAccount:
    """Filled in as the request goes on. What is not known is None. It never holds a query, a header or a text.

    Args:
        telling: is told when the request has ended, once.
        intake: the request's head.
    """

    __slots__ = (
        "_over", "_tail", "_telling", "acceptance", "began", "code", "ending", "first_body_at", "gamma", "intake",
        "model", "outcome", "pool", "ready_at", "reason", "replica", "request_class", "sent_at", "sent_bytes", "span",
        "status", "time_s", "tries",
    )  # fmt: skip

    def __init__(self, telling: Telling, intake: Intake) -> None:
        self._telling = telling
        self._over = False
        self._tail = bytearray()
        self.intake = intake
        self.time_s = time.time()
        """Unix seconds of the request's head."""
        self.began = self.ready_at = time.monotonic()
        self.sent_at: float | None = None
        self.first_body_at: float | None = None
        self.ending = False
        """The engine's answer is whole, and is still to be read."""
        self.sent_bytes = 0
        self.tries = 0
        self.model: str | None = None
        self.request_class: str | None = None
        self.replica: str | None = None
        self.pool: str | None = None
        self.gamma: int | None = None
        self.reason: str | None = None
        self.status: int | None = None
        self.outcome = ""
        self.code: str | None = None
        """Of an error of our own."""
        self.acceptance: RequestAcceptance | None = None
        self.span: Any = None
        """For the collector of traces."""

    def body_came(self) -> None:
        """The request is whole; from here on it may wait for a replica."""
        self.ready_at = time.monotonic()

    def sent(self) -> None:
        """It is sent to an engine, the first or another."""
        self.tries += 1
        if self.sent_at is None:
            self.sent_at = time.monotonic()

    def heard(self, pieces: list[bytes]) -> None:
        """Parts of the answer's body, as the engine sent them."""
        if self.first_body_at is None:
            self.first_body_at = time.monotonic()
        tail = self._tail
        for piece in pieces:
            self.sent_bytes += len(piece)
            tail += piece
        if len(tail) > 2 * _TAIL:
            del tail[:-_TAIL]

    def ended(self, outcome: str, status: int | None) -> None:
        """It has ended so; the first word counts."""
        if not self._over:
            self._over = True
            self.outcome, self.status = outcome, status
            self._telling.ended(self)

    def fields(self) -> dict[str, Any]:
        """What a line says, in its order. Seconds, bytes, tokens."""
        now, tail, acceptance = time.monotonic(), self._tail, self.acceptance
        self._tail = bytearray()
        client, sent_at, first_at = self.intake.client, self.sent_at, self.first_body_at
        return {
            "request_id": client.request_id.decode("ascii"),
            "method": self.intake.method.decode("ascii", "replace"),
            "path": shortened(self.intake.path),
            "model": None if self.model is None else shortened(self.model),
            "class": self.request_class,
            "replica": self.replica,
            "pool": self.pool,
            "gamma": self.gamma,
            "reason": self.reason,
            "status": self.status,
            "outcome": self.outcome,
            "error": self.code,
            "tries": self.tries,
            "bytes": self.sent_bytes,
            "prompt_tokens": _last(_PROMPT, tail),
            "output_tokens": _last(_OUTPUT, tail),
            "draft_tokens": None if acceptance is None else acceptance.draft_tokens,
            "accepted_tokens": None if acceptance is None else acceptance.accepted_tokens,
            "queue_s": None if sent_at is None else round(max(sent_at - self.ready_at, 0.0), 6),
            "ttft_s": None if first_at is None else round(max(first_at - self.ready_at, 0.0), 6),
            "total_s": round(max(now - self.began, 0.0), 6),
        }


def _last(pattern: re.Pattern[bytes], tail: bytearray) -> int | None:
    counts = pattern.findall(tail)
    return int(counts[-1]) if counts else None
