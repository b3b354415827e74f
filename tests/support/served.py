"""``adaptive-gamma serve`` as a process in front of scripted engines: its log, its pages, its signals, its memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.gated_engine import DEADLINE_S, GatedEngine, until
from tests.support.metrics_page import MetricsPage
from tests.support.raw_client import RawClient
from tests.support.time_machine import TimeMachine

__all__ = ["Served", "serve"]

_LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+), admin on http://127\.0\.0\.1:(\d+)")


@dataclass
class Served:
    """A running command."""

    process: asyncio.subprocess.Process
    clock: TimeMachine | None = None
    lines: list[str] = field(default_factory=list)
    port: int = 0
    admin: int = 0

    def client(self, **options: Any) -> RawClient:
        return RawClient(self.port, **options)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def logged(self, text: str) -> None:
        await until(lambda: any(text in line for line in self.lines), f"log line with {text!r} in {self.lines}")

    async def exit(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a page of the admin port."""
        async with RawClient(self.admin) as client:
            answer = await client.ask(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode(), "GET")
            return answer.status, answer.body

    async def status(self) -> dict[str, Any]:
        page: dict[str, Any] = json.loads((await self.get("/status"))[1])
        return page

    async def metrics(self) -> MetricsPage:
        return MetricsPage((await self.get("/metrics"))[1].decode())

    async def ready(self) -> None:
        """Wait until every replica has been looked at."""
        async with asyncio.timeout(DEADLINE_S):
            while (await self.get("/readyz"))[0] != 200:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.02)

    async def counted(self, outcome: str, count: int = 1, *, since: MetricsPage | None = None) -> MetricsPage:
        """Wait until so many requests ended so (``since`` a page) and nothing is in flight; the page that says it."""
        wanted = count + (since.requests(outcome) if since else 0)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                page = await self.metrics()
                if page.requests(outcome) == wanted and not any(page.in_flight):
                    return page
                await asyncio.sleep(0.02)

    async def advance(self, seconds: float) -> None:
        """Move the process's clock on when it has done what it was at, and let it see the new time."""
        assert self.clock is not None
        await self.get("/livez")
        self.clock.advance(seconds)
        for _ in range(2):
            await self.get("/livez")

    # -- memory -------------------------------------------------------------------------------------------------------

    @property
    def resident(self) -> int:
        """Bytes of memory the process holds now."""
        return self._memory("VmRSS")

    def forget_peak(self) -> int:
        """From here on ``peak`` is of what comes; the memory held now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.resident

    @property
    def peak(self) -> int:
        """The most memory held since ``forget_peak``, in bytes."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{self.process.pid}/status").read_text(), re.M)
        assert found is not None
        return int(found[1]) * 1024


@asynccontextmanager
async def serve(
    tmp_path: Path,
    engines: Sequence[GatedEngine | str],
    *,
    clock: TimeMachine | None = None,
    environment: Mapping[str, str] | None = None,
    gamma: int | str = 0,
    write: bool = True,
    **settings: Any,
) -> AsyncIterator[Served]:
    """The command in front of ``engines`` (or urls) as r0, r1, ...; killed at the end where it still runs.

    With ``write`` False the configuration is the one that lies at ``tmp_path`` already.
    """
    config = tmp_path / "serve.yaml"
    urls = [engine if isinstance(engine, str) else engine.url for engine in engines]
    values = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:00",
        "policy": "h200-llama3-70b-fp8",
        "replicas": [{"name": f"r{n}", "url": url, "gamma": gamma} for n, url in enumerate(urls)],
        **settings,
    }
    if write:
        config.write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {}), **(clock.environment if clock else {})},
    )
    served = Served(process, clock)
    assert process.stderr is not None
    stderr = process.stderr

    async def read() -> None:
        async for line in stderr:
            served.lines.append(line.decode().rstrip())

    reader = asyncio.create_task(read())
    try:
        async with asyncio.timeout(60):
            while not (found := next(filter(None, map(_LISTENING.search, served.lines)), None)):
                assert process.returncode is None, served.lines
                await asyncio.sleep(0.01)
        served.port, served.admin = int(found[1]), int(found[2])
        yield served
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reader
    nothing = [line for line in served.lines if re.search(r"\bNone\b", line)]
    assert not nothing, f"a log line tells its reader of None: {nothing}"
