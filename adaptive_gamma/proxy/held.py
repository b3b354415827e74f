"""An answer kept open while another replica is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from adaptive_gamma.errors import UpstreamError
from adaptive_gamma.fleet.choice import Choice
from adaptive_gamma.proxy.decision_log import DecisionRecord
from adaptive_gamma.proxy.engine_connection import AnswerSink
from adaptive_gamma.proxy.headers import Pairs
from adaptive_gamma.routing import Pool

if TYPE_CHECKING:
    from adaptive_gamma.proxy.upstream import UpstreamCall

__all__ = ["HeldAnswer"]


class _Passes(AnswerSink, Protocol):
    def pass_head(self, status: int, headers: Pairs, *, more: bool) -> None:
        """As ``on_head``, without asking whether another replica should be tried."""


class HeldAnswer:
    """Takes an answer's place as sink. What came with the head is kept, the rest is left at the engine."""

    __slots__ = ("_ended", "_failure", "_headers", "_pieces", "_status", "call", "choice", "pool", "record", "replica")

    def __init__(
        self,
        call: UpstreamCall,
        status: int,
        headers: Pairs,
        replica: str,
        pool: Pool,
        record: DecisionRecord | None,
        choice: Choice | None,
    ) -> None:
        self.call = call
        self.replica = replica
        self.pool: Pool = pool
        self.record = record
        self.choice = choice
        self._status = status
        self._headers = headers
        self._pieces: list[bytes] = []
        self._ended = False
        self._failure: UpstreamError | None = None
        call.sink = self
        call.pause()

    def drop(self) -> None:
        """The answer is not wanted any more."""
        self.call.cancel()

    def pass_to(self, sink: _Passes) -> None:
        """Give back the answer, from its head."""
        self.call.sink = sink
        sink.pass_head(self._status, self._headers, more=bool(self._pieces) or self._ended)
        if self._pieces:
            sink.on_body(self._pieces, more=self._ended)
        if self._failure is not None:
            sink.on_failure(self._failure)
        elif self._ended:
            sink.on_end()
        else:
            self.call.resume()

    def on_head(self, status: int, headers: Pairs, *, more: bool) -> None:
        raise AssertionError("an answer has one head")

    def on_body(self, pieces: list[bytes], *, more: bool) -> None:
        self._pieces += pieces

    def on_end(self) -> None:
        self._ended = True

    def on_failure(self, error: UpstreamError) -> None:
        self._failure = error

    def on_fault(self) -> None:
        raise AssertionError("what is kept here cannot fail")
