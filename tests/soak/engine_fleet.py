"""The engine processes and what befalls them: kills, restarts, freezes, each on record with its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from tests.soak.engine_pages import GAMMA, STATE_PATH

__all__ = ["EngineProcess", "Engines", "Outage", "running_engines"]

_START_S = 120.0
_STOP_S = 60.0


@dataclass
class Outage:
    """A time in which an engine was not there, from the signal to its first answer after it."""

    engine: int
    kind: Literal["kill", "term", "freeze"]
    began: float
    over: float | None = None

    def overlaps(self, start: float, end: float) -> bool:
        return self.began <= end and (self.over is None or self.over >= start)


@dataclass
class EngineProcess:
    """One engine: its address stays, its process does not."""

    index: int
    port: int
    journal: Path
    log: Path
    boots: int = 0
    process: asyncio.subprocess.Process | None = None
    unasked_exits: list[str] = field(default_factory=list)
    """Exits that nobody asked for: a fault of the soak itself."""

    @property
    def name(self) -> str:
        return f"e{self.index}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def speculative(self) -> bool:
        """Half of them draft."""
        return self.index % 2 == 0

    @property
    def settings(self) -> dict[str, Any]:
        """The replica's entry in the proxy's configuration."""
        return {"name": self.name, "url": self.url, "gamma": GAMMA if self.speculative else 0}

    async def start(self) -> None:
        """Start a process and wait for its first answer."""
        self.boots += 1
        command = [sys.executable, "-m", "tests.soak.engine", "--index", str(self.index), "--port", str(self.port)]
        command += ["--boot", str(self.boots), "--journal", str(self.journal)]
        if self.speculative:
            command.append("--speculative")
        with self.log.open("ab") as sink:
            self.process = await asyncio.create_subprocess_exec(*command, stdout=sink, stderr=sink)
        async with asyncio.timeout(_START_S):
            while not await self._answers():
                if self.process.returncode is not None:
                    raise RuntimeError(f"engine {self.index} did not start: {self.log.read_text()[-500:]}")
                await asyncio.sleep(0.02)

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        else:
            self.unasked_exits.append(f"engine {self.index} had exited with {self.process.returncode}")

    async def stop(self, number: signal.Signals) -> None:
        self.send(number)
        assert self.process is not None
        try:
            async with asyncio.timeout(_STOP_S):
                await self.process.wait()
        except TimeoutError:
            self.unasked_exits.append(f"engine {self.index} did not stop on {number.name}")
            self.process.kill()
            await self.process.wait()

    async def state(self) -> dict[str, Any] | None:
        """What it has open; None while it does not answer."""
        try:
            async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
                page: dict[str, Any] = json.loads((await client.get(self.url + STATE_PATH)).content)
                return page
        except httpx.HTTPError:
            return None


class Engines:
    """All engines and their outages."""

    def __init__(self, processes: list[EngineProcess]) -> None:
        self.processes = processes
        self.outages: list[Outage] = []

    def __len__(self) -> int:
        return len(self.processes)

    @property
    def settings(self) -> list[dict[str, Any]]:
        return [process.settings for process in self.processes]

    @property
    def journals(self) -> list[Path]:
        return [process.journal for process in self.processes]

    async def restart(self, index: int, kind: Literal["kill", "term"], pause_s: float) -> None:
        """Stop an engine and start it again after a pause."""
        engine = self.processes[index]
        outage = Outage(index, kind, time.monotonic())
        self.outages.append(outage)
        await engine.stop(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        await asyncio.sleep(pause_s)
        await engine.start()
        outage.over = time.monotonic()

    async def freeze(self, index: int, seconds: float) -> None:
        """Let an engine do nothing for a while: its connections stay, nothing moves on them."""
        engine = self.processes[index]
        outage = Outage(index, "freeze", time.monotonic())
        self.outages.append(outage)
        engine.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            engine.send(signal.SIGCONT)
        outage.over = time.monotonic()


def _free_ports(count: int, rng: random.Random) -> list[int]:
    """Below the range from which connections get their own ports: those could take an engine's while it is down."""
    ports: list[int] = []
    while len(ports) < count:
        port = rng.randrange(18_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


@contextlib.asynccontextmanager
async def running_engines(folder: Path, count: int) -> AsyncIterator[Engines]:
    """Engines on ports of their own, stopped at the end."""
    ports = _free_ports(count, random.Random())
    engines = Engines(
        [
            EngineProcess(index, port, folder / f"engine-{index}.jsonl", folder / f"engine-{index}.log")
            for index, port in enumerate(ports)
        ]
    )
    try:
        await asyncio.gather(*(engine.start() for engine in engines.processes))
        yield engines
    finally:
        for engine in engines.processes:
            process = engine.process
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                try:
                    async with asyncio.timeout(_STOP_S):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
