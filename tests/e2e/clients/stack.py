"""What the clients are pointed at: the proxy as a process of its own, and the engines behind it."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.cli.demo.llama_server import LlamaServer

__all__ = ["ENDLESS", "Stack", "until"]

_CANCELLED = "cancel task, id_task"
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ENDLESS = 7000
"""Tokens that take the tiny model seconds, far longer than a client that leaves at once."""


def _get(url: str) -> str:
    with _opener.open(url, timeout=10.0) as answer:
        text: str = answer.read().decode()
    return text


def until(condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    """Wait for a condition; the time is for a busy machine and no measure of anything."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.02)


@dataclass(frozen=True)
class Stack:
    """Everything runs; the addresses and what can be seen from outside."""

    url: str
    admin: str
    speculative: LlamaServer
    plain: LlamaServer
    embedding_url: str

    def engine(self, replica: str) -> str:
        """The url of the engine behind a replica that has it for itself."""
        return {
            "spec-only": self.speculative.url,
            "plain-only": self.plain.url,
            "embed-0": self.embedding_url,
        }[replica]

    # -- what can be seen --------------------------------------------------------------------------------------------

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the proxy's series ``name`` that carry the labels."""
        total = 0.0
        for line in _get(f"{self.admin}/metrics").splitlines():
            found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def decision(self, request_id: str) -> dict[str, Any]:
        """The proxy's record of a request."""
        rows = json.loads(_get(f"{self.admin}/decisions"))["decisions"]
        row: dict[str, Any] = next(row for row in rows if row["request_id"] == request_id)
        return row

    def in_flight(self) -> float:
        return self.metric("adaptive_gamma_in_flight")

    def left(self) -> float:
        """Requests counted as left by their client."""
        return self.metric("adaptive_gamma_requests_total", outcome="client_closed")

    def busy_slots(self) -> int:
        """Sequences the engines work on."""
        busy = 0
        for engine in (self.speculative, self.plain):
            slots = json.loads(_get(f"{engine.url}/slots"))
            busy += sum(bool(slot["is_processing"]) for slot in slots)
        return busy

    def cancelled_tasks(self) -> int:
        """How often the engines said in their logs that they gave a task up."""
        return sum(engine.log().count(_CANCELLED) for engine in (self.speculative, self.plain))

    def wait_left(self, count: float) -> None:
        """So many requests, no more and no less, have been left."""
        until(lambda: self.left() >= count, f"{count:g} requests counted as left by the client")
        assert self.left() == count

    def wait_busy(self) -> None:
        until(lambda: self.busy_slots() > 0, "an engine works")

    def wait_idle(self) -> None:
        """No request is open at the proxy, and no engine works."""
        until(lambda: self.in_flight() == 0, "the in-flight gauge back at 0")
        until(lambda: self.busy_slots() == 0, "all slots free")
