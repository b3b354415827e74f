"""The live page in front of a feed that a test writes by hand: any state, at any time, and gone when it is told so."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from adaptive_gamma.fleet.live import curves_page, policy_page
from adaptive_gamma.page import Feed
from adaptive_gamma.page.event_stream import event
from adaptive_gamma.policy import load_policy
from adaptive_gamma.proxy.live_page import add_live_page
from adaptive_gamma.routing import ReplicaState

__all__ = ["ScriptedPage", "replica_row", "scripted_page", "state_of"]

POLICY = load_policy("h200-llama3-70b-fp8")


def replica_row(name: str, **more: Any) -> dict[str, Any]:
    """A replica of which everything is known."""
    row = {
        "name": name, "url": "http://127.0.0.1:1", "engine": "vllm", "pool": "speculative", "healthy": True,
        "draining": False, "leaving": False, "ramping": False, "asleep": False, "gamma": 4, "setting": "4",
        "running": 3, "waiting": 1, "in_flight": 4, "max_in_flight": None, "batch": 3, "kv_usage": 0.3, "age_s": 0.4,
        "fresh": True, "error": None, "acceptance": [0.8, 0.75, 0.7, 0.7], "acceptance_ratio": 1.02,
        "step_time_ratio": None, "tau_s": {"structured": 0.01, "chat": 0.014, "unsure": 0.012}, "set_gamma": None,
        "step": {"observed_s": 0.031, "predicted_s": 0.03, "batch": 3.1, "tokens": 2.6, "predicted_tokens": 2.7,
                 "gain_over_plain": 0.9, "flagged": False, "causes": []},
        "restarts": 0, "notes": [],
    }  # fmt: skip
    return {**row, **more}


def unread_row(name: str) -> dict[str, Any]:
    """A replica of which nothing is known."""
    unknown = dict.fromkeys(
        ("pool", "gamma", "setting", "running", "waiting", "batch", "kv_usage", "age_s", "acceptance",
         "acceptance_ratio", "tau_s", "step")
    )  # fmt: skip
    return replica_row(name, **unknown, fresh=False, in_flight=0)


def state_of(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The section ``state``."""
    state = {
        "time": round(time.time(), 1), "version": "0", "mode": "act", "ready": True, "not_ready_because": None,
        "draining": False, "queued": 0, "flag_above": 0.25, "kv_usage_limit": 0.95, "gains": None, "observed": None,
        "observations": None, "decisions": [], "outcomes": {}, "discovery": [], "replicas": rows,
    }  # fmt: skip
    return {**state, **more}


class ScriptedPage:
    """What the page is told; change it at any time."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = [
            replica_row("spec-0"),
            replica_row("plain-0", pool="plain", gamma=0, setting="plain"),
        ]
        self.state: dict[str, Any] = {}
        self.decisions: list[dict[str, Any]] = []
        self.learned: dict[str, Any] | None = None
        self.policy = policy_page(POLICY)
        states = [ReplicaState("a", True, gamma) for gamma in (0, 3, 4, 5)]
        self.curves = curves_page(states, POLICY, POLICY.max_batch)
        self.port = 0
        self.each_tick: Callable[[], object] = lambda: None
        """Called before each tick."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/ui"

    async def sections(self) -> dict[str, bytes]:
        self.each_tick()
        pages: dict[str, dict[str, Any]] = {
            "policy": self.policy,
            "curves": self.curves,
            "learned": {"learned": self.learned},
            "decisions": {"decisions": self.decisions},
            "state": state_of(self.rows, **self.state),
        }
        return {name: event(name, json.dumps(page, separators=(",", ":")).encode()) for name, page in pages.items()}

    @contextmanager
    def serving(self, port: int = 0, *, interval_s: float = 0.25, most: int = 16) -> Iterator[None]:
        """Serve in a thread of its own; leaving ends every stream and closes the port."""
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        self.port = bound.getsockname()[1]
        feed = Feed(self.sections, interval_s=interval_s, most=most)
        app = FastAPI()
        add_live_page(app, feed, None)
        server = uvicorn.Server(
            uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        )
        loops: list[asyncio.AbstractEventLoop] = []

        async def run() -> None:
            loops.append(asyncio.get_running_loop())
            await server.serve(sockets=[bound])

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield
        finally:
            loops[0].call_soon_threadsafe(feed.close)
            server.should_exit = True
            thread.join()
            bound.close()


@contextmanager
def scripted_page(**options: Any) -> Iterator[ScriptedPage]:
    """A page that is served."""
    page = ScriptedPage()
    with page.serving(**options):
        yield page
