"""One streamed request: what is asked, and what came of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from adaptive_gamma.bench.sweep.dataset import Endpoint, Prompt
from adaptive_gamma.bench.sweep.http import Address, Clock, Connection
from adaptive_gamma.bench.sweep.stream import EngineFault, StreamTiming
from adaptive_gamma.bench.sweep.words import fit_to_show
from adaptive_gamma.errors import ConnectError, ProtocolError

__all__ = ["ABORTED", "CONNECT", "TIMEOUT", "Asked", "RequestForm", "RequestOutcome", "Slot", "refusal_text"]

CONNECT, TIMEOUT, ABORTED = "connect", "timeout", "aborted"
_PATHS: Mapping[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_ERROR_BODY = 64 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt and the line put before it, which no other request of the sweep has: nothing is served from a cache."""

    prompt: Prompt
    opening: str = ""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """What is the same for every request to an arm."""

    endpoint: Endpoint
    model: str
    output_tokens: int
    fixed_length: bool
    """Whether ``ignore_eos`` is sent, so that every answer has ``output_tokens`` tokens."""
    temperature: float = 0.0
    seed: int = 0

    @property
    def path(self) -> str:
        """Where it is sent."""
        return _PATHS[self.endpoint]

    def body(self, asked: Asked) -> bytes:
        """The request's body."""
        values: dict[str, Any] = {
            "model": self.model,
            **asked.prompt.fields(self.endpoint, asked.opening),
            "max_tokens": self.output_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.temperature > 0:
            values["seed"] = self.seed
        if self.fixed_length:
            values["ignore_eos"] = True
        return json.dumps(values).encode()


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How one request ended. Times in seconds; what was not seen is None."""

    failure: str | None = None
    """None when the answer is whole, else a short stable word: ``connect``, ``timeout``, ``aborted``, ``status_NNN``,
    ``engine_error``, ``protocol``, ``no_usage``, ``no_text``."""
    detail: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    duration_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    """None with fewer than two tokens, and where the whole answer came at once: then nothing was seen to stream."""
    gaps_s: tuple[float, ...] = ()
    """Between arrivals of text (ITL)."""
    finish_reason: str | None = None
    closing: tuple[Mapping[str, Any], ...] = ()
    """The events that closed the answer."""


class Slot:
    """One place for an open request: a connection that is kept, and made anew when the engine has closed it."""

    def __init__(self, address: Address, clock: Clock, timeout_s: float) -> None:
        self._address = address
        self._clock = clock
        self._timeout_s = timeout_s
        self._connection: Connection | None = None

    async def connect(self) -> None:
        """Have a connection, so that the first request need not make one. Raises ConnectError."""
        if self._connection is None or not self._connection.usable:
            self._connection = await Connection.open(self._address, self._clock, self._timeout_s)

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def ask(self, form: RequestForm, asked: Asked) -> RequestOutcome:
        """Send one request and read its stream to the end; ends within the time limit whatever the engine does."""
        request = self._address.request("POST", form.path, form.body(asked))
        started = self._clock()
        try:
            async with asyncio.timeout(self._timeout_s):
                outcome = await self._exchange(request)
                return replace(outcome, detail=self._address.without_key(outcome.detail)) if outcome.detail else outcome
        except TimeoutError:
            self.close()
            return RequestOutcome(TIMEOUT, f"no whole answer within {self._timeout_s:g} s",
                                  duration_s=self._clock() - started)  # fmt: skip
        except BaseException:
            self.close()
            raise

    async def _exchange(self, request: bytes) -> RequestOutcome:
        try:
            await self.connect()
            rested = self._connection is not None and self._connection.exchanges > 0
            try:
                return await self._stream(request)
            except ProtocolError as error:
                if not (rested and Connection.came_to_nothing(error)):
                    return _failed(error)
            # The engine closed a connection that rested as the request was on its way: no outcome of the engine's.
            await self.connect()
            return await self._stream(request)
        except ConnectError as error:
            return RequestOutcome(CONNECT, str(error))
        except ProtocolError as error:
            return _failed(error)

    async def _stream(self, request: bytes) -> RequestOutcome:
        connection = self._connection
        assert connection is not None, "connected before"
        timing = StreamTiming()
        refusal = bytearray()

        def take(status: int, piece: bytes, at: float) -> None:
            if status == 200:
                timing.feed(piece, at)
            elif len(refusal) < _ERROR_BODY:
                refusal.extend(piece)

        started = self._clock()
        answer = await connection.exchange(request, take)
        ended = self._clock()
        if answer.status != 200:
            return RequestOutcome(f"status_{answer.status}", refusal_text(bytes(refusal)), duration_s=ended - started)
        return _outcome(timing, started, ended)


def _failed(error: ProtocolError) -> RequestOutcome:
    return RequestOutcome("engine_error" if isinstance(error, EngineFault) else "protocol", str(error))


def _outcome(timing: StreamTiming, started: float, ended: float) -> RequestOutcome:
    failure, detail = None, ""
    tokens = timing.output_tokens
    if timing.finish_reason is None:
        failure, detail = "protocol", "the stream ended without a finish reason"
    elif timing.finish_reason == "abort":
        failure, detail = ABORTED, "the engine aborted the request"
    elif tokens is None:
        failure, detail = "no_usage", "the stream ended without a count of its tokens (usage)"
    elif timing.first_at is None:
        failure, detail = "no_text", f"the stream carried no text ({tokens} tokens)"
    ttft_s = None if timing.first_at is None else timing.first_at - started
    tpot_s = None
    if timing.first_at is not None and timing.last_at is not None and tokens is not None and tokens > 1:
        tpot_s = (timing.last_at - timing.first_at) / (tokens - 1) or None
    return RequestOutcome(
        failure=failure,
        detail=detail,
        prompt_tokens=timing.prompt_tokens,
        output_tokens=tokens,
        duration_s=ended - started,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        gaps_s=tuple(after - before for before, after in pairwise(timing.arrivals)),
        finish_reason=timing.finish_reason,
        closing=tuple(timing.closing[-2:]),
    )


def refusal_text(body: bytes) -> str:
    """What an engine's refusal says, fit to be shown."""
    text = body.decode("utf-8", errors="replace").strip()
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return fit_to_show(text)
    error = values.get("error", values.get("detail", values)) if isinstance(values, dict) else values
    message = error.get("message") if isinstance(error, dict) else error
    return fit_to_show(str(message if message is not None else error))
