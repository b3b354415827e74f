"""The plugin inside of a vLLM as those outside see it: a route on a real socket, or two real files. No engine behind.

It does what is written down of the two faces, and what goes wrong where a test says so.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["FileFace", "HttpFace", "SchedulePlugin"]

ROUTE = "/plugins/adaptive-gamma/schedule"


class SchedulePlugin:
    """The state behind both faces, and the engine's steps.

    Args:
        clock: Unix seconds of the engine's machine.
    """

    def __init__(self, clock: Callable[[], float], *, max_gamma: int = 5, max_batch: int = 64) -> None:
        self.clock = clock
        self.max_gamma, self.max_batch = max_gamma, max_batch
        self.startup = [[1, max_batch, max_gamma]]
        self.captured: list[int] | None = None
        self.problem: str | None = None
        """Refuses to work, for this reason."""
        self.disobeys: int | None = None
        """Every step drafts this, whatever is set."""
        self.refuses: str | None = None
        """Takes no schedule, for this reason."""
        self.deaf = False
        """Takes no schedule, and says nothing of it."""
        self.hangs = False
        """Writes its state no more."""
        self.drafts = 0
        self.drafted = [0] * max_gamma
        self.accepted = [0.0] * max_gamma
        self.generated = 0.0
        self.taken: list[tuple[list[list[int]], str | None]] = []
        """Schedules that came into force, with their revisions."""
        self._written_at = clock()
        self.restart()

    def restart(self) -> None:
        """The engine begins anew."""
        self.started_at = self.clock()
        self.schedule: list[list[int]] = self.startup
        self.revision: str | None = None
        self.refused: dict[str, Any] | None = None
        self.steps = self.steps_in_force = 0
        self.last_gamma: int | None = None
        self.last_batch: int | None = None
        self.drafts, self.drafted, self.accepted = 0, [0] * self.max_gamma, [0.0] * self.max_gamma
        self.generated = 0.0

    def wrong(self, schedule: Any) -> str | None:
        """What is against a schedule, by vLLM's rules and the plugin's."""
        if not isinstance(schedule, list) or not schedule:
            return "a schedule is a list of [first batch, last batch, gamma]"
        last = 0
        for part in schedule:
            if not isinstance(part, list) or len(part) != 3 or any(type(number) is not int for number in part):
                return "a range is three whole numbers"
            first, end, gamma = part
            if not last < first <= end:
                return "ranges overlap or are empty"
            if not 0 <= gamma <= self.max_gamma:
                return f"gamma {gamma} is not within 0 to {self.max_gamma}"
            if self.captured is not None and gamma not in self.captured:
                return f"no CUDA graphs were captured for gamma {gamma}"
            last = end
        return None if schedule[0][0] == 1 else "the first range must start at batch 1"

    def take(self, schedule: Any, revision: str | None) -> str | None:
        """A schedule is asked for, None: the start-up's. Why it is refused, or None."""
        reason = self.refuses or (None if schedule is None else self.wrong(schedule))
        if reason is not None:
            self.refused = {"revision": revision, "reason": reason}
            return reason
        if not self.deaf:
            self.schedule, self.revision = self.startup if schedule is None else schedule, revision
            self.refused, self.steps_in_force = None, 0
            self.taken.append((self.schedule, revision))
        return None

    def gamma_at(self, batch: int) -> int:
        gamma = self.schedule[0][2]
        for first, _, held in self.schedule:
            if first <= batch:
                gamma = held
        return gamma

    def step(self, batch: int, *, rate: float = 0.7, count: int = 1) -> None:
        """The engine makes steps with so many requests in each, accepting at a rate at each position."""
        gamma = self.gamma_at(batch) if self.disobeys is None else self.disobeys
        self.steps += count
        self.steps_in_force += count
        self.last_gamma, self.last_batch = gamma, batch
        if gamma:
            self.drafts += batch * count
        survived = 1.0
        for position in range(gamma):
            survived *= rate
            self.drafted[position] += batch * count
            self.accepted[position] += batch * count * survived
            self.generated += batch * count * survived
        self.generated += batch * count

    def state(self) -> dict[str, Any]:
        if not self.hangs:
            self._written_at = self.clock()
        times = {"started_at": self.started_at, "written_at": self._written_at}
        if self.problem is not None:
            return {"format": 1, "status": "refused", "problem": self.problem, **times}
        return {
            "format": 1,
            "engine_version": "0.32.0",
            "status": "ready",
            "problem": None,
            "max_gamma": self.max_gamma,
            "max_batch": self.max_batch,
            "captured_gammas": self.captured,
            "startup_schedule": self.startup,
            "schedule": self.schedule,
            "revision": self.revision,
            "refused": self.refused,
            "steps": self.steps,
            "steps_in_force": self.steps_in_force,
            "last_gamma": self.last_gamma,
            "last_batch": self.last_batch,
            **times,
        }

    def metrics(self, running: int) -> str:
        """The engine's page, with the plugin's series."""
        labels = 'engine="0",model_name="m"'
        spec = "vllm:spec_decode_num_"
        lines = [
            f"vllm:cache_config_info{{{labels}}} 1.0",
            f"vllm:num_requests_running{{{labels}}} {running}.0",
            f"vllm:num_requests_waiting{{{labels}}} 0.0",
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.5",
            f"vllm:generation_tokens_total{{{labels}}} {self.generated}",
            f"{spec}drafts_total{{{labels}}} {self.drafts}",
            f"{spec}draft_tokens_total{{{labels}}} {sum(self.drafted)}",
            f"{spec}accepted_tokens_total{{{labels}}} {sum(self.accepted)}",
        ]
        for position in range(self.max_gamma):
            at = f'{labels},position="{position}"'
            lines.append(f"{spec}accepted_tokens_per_pos_total{{{at}}} {self.accepted[position]}")
            lines.append(f"adaptive_gamma_draft_tokens_per_position_total{{{at}}} {self.drafted[position]}")
        if self.last_gamma is not None:
            lines.append(f"adaptive_gamma_scheduled_gamma{{{labels}}} {self.last_gamma}.0")
        return "\n".join(lines) + "\n"


class FileFace:
    """The two files. The plugin looks and writes when ``tick`` is called."""

    def __init__(self, plugin: SchedulePlugin, path: Path) -> None:
        self.plugin = plugin
        self.path = path
        self.state_path = path.with_name(f"{path.stem}.state.json")
        self._seen: tuple[int, int] | None = None

    def tick(self) -> None:
        """Take what lies there, and tell."""
        if self.path.exists():
            found = self.path.stat()
            if (found.st_ino, found.st_mtime_ns) != self._seen:
                self._seen = (found.st_ino, found.st_mtime_ns)
                asked = json.loads(self.path.read_text())
                assert asked["format"] == 1
                self.plugin.take(asked["schedule"], asked["revision"])
        beside = self.path.with_name(".state.new")
        beside.write_text(json.dumps(self.plugin.state()))
        os.replace(beside, self.state_path)

    def write_as_another(self, schedule: list[list[int]], revision: str) -> None:
        """Somebody else sets a schedule."""
        self.path.write_text(json.dumps({"format": 1, "revision": revision, "schedule": schedule}))


class HttpFace:
    """``async with HttpFace(plugin, token) as face``: the engine's port, with ``/metrics`` and the route."""

    def __init__(self, plugin: SchedulePlugin, token: str) -> None:
        self.plugin = plugin
        self.token = token
        self.fault: str | None = None
        """``absent``, ``unavailable``, ``silent``, ``redirect``, ``huge``, ``garbage``, ``forbidden``, ``echo``."""
        self.running = 0
        self.requests: list[tuple[str, str, Any]] = []
        """(method, path, body) of what came to the route."""
        self.url = ""
        self.release = asyncio.Event()
        """Streams end when it is set."""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> HttpFace:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen, at the same port as before where there was one."""
        port = int(self.url.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Go away, connections included."""
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *fields = head.split("\r\n")
                method, path, _ = line.split(" ")
                headers = {k.lower(): v for k, v in (item.split(": ", 1) for item in fields if item)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if path == "/v1/chat/completions":
                    await self._stream(writer)
                    continue
                status, content, more = await self._answer(method, path, headers, body)
                head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(content)}\r\n{more}\r\n"
                writer.write(head.encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is done, or the test is
        finally:
            self._connections.discard(task)
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in (b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', b"data: [DONE]\n\n"):
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await self.release.wait()
        writer.write(b"0\r\n\r\n")

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        if path == "/metrics":
            return 200, self.plugin.metrics(self.running).encode(), ""
        if path == "/health":
            return 200, b"", ""
        if path == "/v1/models":
            return 200, b'{"object": "list", "data": [{"id": "m", "object": "model"}]}', ""
        if path != ROUTE or self.fault == "absent":
            return 404, b'{"detail":"Not Found"}', ""
        asked: dict[str, Any] = json.loads(body) if body else {}
        self.requests.append((method, path, asked))
        if self.fault == "silent":
            await asyncio.Event().wait()
        if self.fault == "redirect":
            return 307, b"", f"location: {self.url}/elsewhere\r\n"
        if self.fault == "huge":
            return 200, b" " * (1 << 21), ""
        if self.fault == "garbage":
            return 200, b"[1, 2", ""
        if self.fault == "echo":
            return 403, _error(headers["authorization"], "forbidden", 403), ""
        if headers.get("authorization") != f"Bearer {self.token}":
            return 401, _error("the token is wrong", "unauthorized", 401), ""
        if self.fault == "forbidden":
            return 403, _error("only clients of this machine may ask", "forbidden", 403), ""
        if self.fault == "unavailable":
            return 503, _error("the engine has told nothing yet", "unavailable", 503), ""
        if method != "GET":
            schedule, revision = (asked["schedule"], asked["revision"]) if method == "PUT" else (None, "route-1")
            reason = self.plugin.take(schedule, revision)
            if reason is not None:
                return 409, _error(reason, "refused", 409), ""
            if self.plugin.deaf:
                return 503, _error("the engine did not take it within 1 s", "unavailable", 503), ""
        return 200, json.dumps(self.plugin.state()).encode(), ""


def _error(message: str, kind: str, code: int) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()
