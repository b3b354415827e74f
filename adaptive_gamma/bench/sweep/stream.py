"""What a streamed answer showed, event by event: when its tokens came, how many they were, how it ended.

Definitions, the same for every engine:

* The first token is the first event that carries text. The event that only opens a chat answer (a role, no text) is not
  one.
* The last token is the later of the last event with text and the one that gives the finish reason: a token may have no
  text of its own, an ending never lacks its event.
* Time per output token (TPOT) is the time from the first token to the last over the tokens in between them, as counted
  by the engine itself: with speculation an event holds several, so events cannot be counted instead.
* Inter-token latency (ITL) is the time between two arrivals of text. What is read from the socket at once is one
  arrival. On a speculating engine it is the time of a step, not of a token; where the engine sends an event a token all
  the same (llama.cpp), gaps of a step lie between the tiny ones of a burst, so their median tells little.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from adaptive_gamma.bench.sweep.words import fit_to_show
from adaptive_gamma.errors import ProtocolError

__all__ = ["EngineFault", "EventLines", "StreamTiming"]

_LONGEST_EVENT = 8 * 1024 * 1024
_MOST_TOKENS = 10**9
_TEXTS = ("content", "reasoning_content", "reasoning", "text")


class EngineFault(ProtocolError):
    """The engine ended a stream with an error of its own."""


class EventLines:
    """Cuts a body into the payloads of its server-sent events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are whole now. Comments and other fields are left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_EVENT:
            raise ProtocolError(f"an event of over {_LONGEST_EVENT} bytes")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


class StreamTiming:
    """Takes in the pieces of one streamed answer."""

    __slots__ = (
        "_lines", "arrivals", "closing", "done", "finish_reason", "first_at", "last_at", "output_tokens",
        "prompt_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self._lines = EventLines()
        self.first_at: float | None = None
        """When the first token came."""
        self.last_at: float | None = None
        """When the last one came."""
        self.arrivals: list[float] = []
        """When text came, once for each read."""
        self.output_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None
        self.done = False
        """Whether ``[DONE]`` came."""
        self.closing: list[Mapping[str, Any]] = []
        """The events that close the answer, where engines put their own figures."""

    def feed(self, piece: bytes, at: float) -> None:
        """Take in what was read at ``at``.

        Raises:
            EngineFault: the engine reports an error in the stream.
            ProtocolError: an event that is not a JSON object.
        """
        for payload in self._lines.feed(piece):
            if payload == b"[DONE]":
                self.done = True
            elif payload:
                self._event(_json_object(payload), at)

    def _event(self, event: Mapping[str, Any], at: float) -> None:
        if event.get("error") is not None:
            raise EngineFault(_message(event["error"]))
        usage = event.get("usage")
        if isinstance(usage, Mapping):
            self.output_tokens = _count(usage.get("completion_tokens"), self.output_tokens)
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else None
        if choice is None:
            self.closing.append(event)
            return
        if _has_text(choice):
            if self.first_at is None:
                self.first_at = at
            if not self.arrivals or self.arrivals[-1] != at:
                self.arrivals.append(at)
            self.last_at = at
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self.finish_reason = reason
            self.last_at = at
            self.closing.append(event)


def _has_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    place = delta if isinstance(delta, Mapping) else choice
    return any(isinstance(place.get(name), str) and place[name] for name in _TEXTS)


def _json_object(payload: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an event is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise ProtocolError("an event is not a JSON object")
    return event


def _message(error: object) -> str:
    text = error.get("message") if isinstance(error, Mapping) else error
    return fit_to_show(str(text))


def _count(value: object, before: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else before
