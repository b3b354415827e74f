"""The configuration of the proxy under test, and changing it while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from adaptive_gamma.config import HealthSettings, Settings
from adaptive_gamma.policy import find_policy
from adaptive_gamma.proxy import DataPlane
from tests.soak.scenarios import UPLOAD_LIMIT
from tests.soak.watch import RELOAD_FAILURES, Watch, total

__all__ = [
    "AFFINITY_ENTRIES",
    "FIRST_BYTE_S",
    "IDLE_S",
    "WHOLE_RELOAD",
    "Reloads",
    "Removal",
    "Serve",
    "proxy_settings",
    "running_serve",
]

WHOLE_RELOAD = hasattr(DataPlane, "apply")
"""Whether SIGHUP reads the whole configuration, or the policy only."""
FIRST_BYTE_S = 10.0
IDLE_S = 8.0
AFFINITY_ENTRIES = 256
POLICIES = ("h200-llama3-70b-fp8", "h100-llama3-8b-eagle3")
_RELOAD_S = 20.0
_START_S = 120.0
_STOP_S = 60.0
_LISTENING = re.compile(r"listening on http://\S+:(\d+), admin on http://\S+:(\d+),")


def proxy_settings(
    folder: Path, replicas: list[dict[str, Any]], streams: int, *, silence: bool = True
) -> dict[str, Any]:
    """Limits short enough to be met in a run (where there is ``silence`` to meet them), caps that are reached when
    engines are missing."""
    policy = folder / "policy.yaml"
    policy.write_bytes(Path(find_policy(POLICIES[0])).read_bytes())
    health: dict[str, Any] = {"interval_s": 1.0, "timeout_s": 1.0}
    settings: dict[str, Any] = {
        "policy": str(policy),
        "replicas": replicas,
        "scrape": {"interval_s": 1.0, "timeout_s": 0.5},
        "health": health,
        "limits": {
            "body_bytes": UPLOAD_LIMIT,
            "connect_timeout_s": 5,
            "first_byte_timeout_s": FIRST_BYTE_S if silence else 600,
            "idle_timeout_s": IDLE_S if silence else 300,
        },
        "drain": {"grace_s": 30},
    }
    if "ramp_s" in HealthSettings.model_fields:
        health["ramp_s"] = 3.0
    if "load" in Settings.model_fields:
        cap = max(streams * 2 // 5, 1)
        settings["load"] = {"max_in_flight": cap, "queue": streams, "queue_timeout_s": 60}
    if "affinity" in Settings.model_fields:
        settings["affinity"] = {"entries": AFFINITY_ENTRIES, "max_age_s": 60}
    return settings


@dataclass
class Serve:
    """A running ``adaptive-gamma serve``."""

    process: asyncio.subprocess.Process
    config: Path
    log: Path
    port: int = 0
    admin_port: int = 0

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"


@contextlib.asynccontextmanager
async def running_serve(folder: Path, settings: dict[str, Any]) -> AsyncIterator[Serve]:
    """The command as a process on free ports, from its first ready answer on."""
    config, log = folder / "serve.yaml", folder / "serve.log"
    config.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", **settings}))
    command = [sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config)]
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(*command, stdout=sink, stderr=sink)
    serve = Serve(process, config, log)
    try:
        async with asyncio.timeout(_START_S):
            await _ready(serve)
        yield serve
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(serve: Serve) -> None:
    while (found := _LISTENING.search(serve.log.read_text(errors="replace"))) is None:
        if serve.process.returncode is not None:
            raise RuntimeError(f"serve did not start: {serve.log.read_text(errors='replace')[-2000:]}")
        await asyncio.sleep(0.05)
    serve.port, serve.admin_port = int(found[1]), int(found[2])
    async with httpx.AsyncClient(base_url=serve.admin_url, timeout=_START_S, trust_env=False) as admin:
        while (await admin.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.05)


@dataclass
class Removal:
    """A time in which a replica was out of the configuration; a request begun in it must not reach its engine."""

    replica: str
    asked: float
    """When the signal was sent."""
    confirmed: float | None = None
    """When /status showed it."""
    back: float | None = None
    """When the signal was sent to have it again."""
    again: float | None = None
    """When /status showed that."""

    def hides(self, engine: int | None, ended: float) -> bool:
        """Whether a request that ended then may be counted in a series that nobody read before it vanished.

        ``engine`` None: it is not known which replica it was counted for.
        """
        concerned = engine is None or self.replica == f"e{engine}"
        return concerned and self.asked <= ended and (self.again is None or ended < self.again)


@dataclass
class Reloads:
    """Changes the files and sends SIGHUP, and waits until the admin pages show it."""

    serve: Serve
    watch: Watch
    settings: dict[str, Any]
    removals: list[Removal] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    broken: int = 0
    """Reloads that had to be refused."""
    seconds: list[float] = field(default_factory=list)
    """From the signal to the page that shows it."""
    _policy: int = 0

    @property
    def cap(self) -> int | None:
        """Most requests that the proxy may have open on one replica."""
        cap: int | None = self.settings.get("load", {}).get("max_in_flight")
        return cap

    async def remove(self, name: str) -> None:
        """Take a replica out."""
        self.watch.removed.add(name)
        await self.watch.look_at_metrics()
        removal = Removal(name, time.monotonic())
        self.removals.append(removal)
        self._write([r for r in self.settings["replicas"] if r["name"] != name])
        await self._signal("replica removed", lambda: self._serves(name, False))
        removal.confirmed = time.monotonic()

    async def put_back(self, name: str) -> None:
        """Have all replicas again."""
        await self.watch.look_at_metrics()
        removal = next(r for r in reversed(self.removals) if r.replica == name)
        removal.back = time.monotonic()
        self._write(self.settings["replicas"])
        await self._signal("replica put back", lambda: self._serves(name, True))
        removal.again = time.monotonic()

    async def change_policy(self) -> None:
        """Serve by the other policy."""
        self._policy = 1 - self._policy
        name = self._write_policy(POLICIES[self._policy])

        async def shown() -> bool:
            page = await self.watch.look_at_status()
            return bool(page["policy"].get("name") == name)

        await self._signal("policy changed", shown)

    async def break_files(self, config: bool) -> None:
        """Ask for a reload of files that are wrong; the state before must stay."""
        path = self.serve.config if config else Path(self.settings["policy"])
        right = path.read_bytes()
        path.write_text("replicas: []\n" if config else "schema: something else\n")
        self.broken += 1

        async def refused() -> bool:
            counts = await self.watch.look_at_metrics()
            return (total(counts, RELOAD_FAILURES) or 0) >= self.broken

        await self._signal("wrong files refused", refused)
        path.write_bytes(right)

    def _write(self, replicas: list[dict[str, Any]]) -> None:
        settings = yaml.safe_load(self.serve.config.read_text()) | {"replicas": replicas}
        self.serve.config.write_text(yaml.safe_dump(settings))

    def _write_policy(self, name: str) -> str:
        """Put a policy in place of the one served; its name."""
        text = Path(find_policy(name)).read_text()
        Path(self.settings["policy"]).write_text(text)
        return str(yaml.safe_load(text)["name"])

    async def _serves(self, name: str, wanted: bool) -> bool:
        page = await self.watch.look_at_status()
        taking = any(r["name"] == name and not r["draining"] for r in page["replicas"])
        return bool(page["replicas"]) and taking is wanted

    async def _signal(self, what: str, shown: Callable[[], Awaitable[bool]]) -> None:
        began = time.monotonic()
        self.serve.process.send_signal(signal.SIGHUP)
        while not await shown():
            if time.monotonic() - began > _RELOAD_S:
                self.watch.problems.append(f"SIGHUP: {what}: not shown within {_RELOAD_S:g} s")
                return
            await asyncio.sleep(0.05)
        self.seconds.append(time.monotonic() - began)
        self.done[what] = self.done.get(what, 0) + 1
