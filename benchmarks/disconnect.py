"""How long after its client has gone a proxy closes the engine's connection."""

from __future__ import annotations

import math
import socket
import time

from .contestants import plain_request
from .load_tools import MockEngine
from .processes import BenchmarkError

__all__ = ["PHASES", "disconnect_ms"]

_GIVE_UP_S = 2.0
_EVENTS_FIRST = 3
# The phase in which a proxy most often never closes comes last: what it leaves behind could end in a later phase.
_STEERING = {
    "tokens flow": (),
    "engine silent": (f"x-mock-hold: {_EVENTS_FIRST}",),
    "before the head": ("x-mock-hold: 0",),
}
PHASES = tuple(_STEERING)


def disconnect_ms(port: int, engine: MockEngine, phase: str, tries: int) -> list[float]:
    """Milliseconds from the client's close until the engine saw its connection close, of each try.

    Infinite, and the last, where that took more than two seconds.

    Raises:
        BenchmarkError: the proxy itself ended a stream.
    """
    taken: list[float] = []
    while len(taken) < tries and math.inf not in taken:
        taken.append(_once(port, engine, phase))
    return taken


def _once(port: int, engine: MockEngine, phase: str) -> float:
    before = engine.stats()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(plain_request(*_STEERING[phase], stream=True, max_tokens=100_000))
        deadline = time.monotonic() + 10
        while engine.stats()["running"] <= before["running"] and time.monotonic() < deadline:
            time.sleep(0.002)
        seen = b""
        while phase != "before the head" and seen.count(b"@seq:") < _EVENTS_FIRST:
            piece = client.recv(65_536)
            if not piece:
                raise BenchmarkError("a stream ended before it was left")
            seen += piece
        if phase != "tokens flow":
            time.sleep(0.1)
        left = time.monotonic_ns()  # the clock the engine reads too
    while (now := engine.stats())["aborted"] <= before["aborted"]:
        if time.monotonic_ns() - left > _GIVE_UP_S * 1e9:
            return math.inf
        time.sleep(0.002)
    return (now["last_abort_ns"] - left) / 1e6
