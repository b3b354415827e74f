"""Start what ships, as a user would: ``adaptive-gamma serve`` and llama.cpp servers, stopped by their own handle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import yaml

from adaptive_gamma.cli.demo.llama_server import available
from adaptive_gamma.cli.demo.tiny_model import DEMO_SHAPE, ModelPair, write_tiny_models

__all__ = ["Serve", "demo_models", "eventually", "needs_llama", "running_serve"]

T = TypeVar("T")


def needs_llama() -> None:
    """Skip, with the reason, where llama.cpp cannot run; in CI only a CPU without AVX2 is a reason."""
    reason = available()
    if reason is None:
        return
    if os.environ.get("CI") == "true" and "AVX2" not in reason:
        pytest.fail(f"CI must run llama.cpp: {reason}")
    pytest.skip(reason)


def demo_models(directory: Path) -> ModelPair:
    """The pair the demo's policy was written for."""
    needs_llama()
    return write_tiny_models(directory, DEMO_SHAPE)


async def eventually(
    condition: Callable[[], Awaitable[T | None]], *, within_s: float = 30.0, every_s: float = 0.05
) -> T:
    """The first truthy answer of ``condition``; fails with the last one when the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        last = await condition()
        if last:
            return last
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s} s; last answer {last!r}")
        await asyncio.sleep(every_s)


@dataclass
class Serve:
    """A running ``adaptive-gamma serve``."""

    process: subprocess.Popen[bytes]
    url: str
    admin: httpx.AsyncClient
    log: Path

    async def status(self) -> dict[str, Any]:
        data: dict[str, Any] = (await self.admin.get("/status")).json()
        return data

    async def replica(self, name: str) -> dict[str, Any]:
        row: dict[str, Any] = next(r for r in (await self.status())["replicas"] if r["name"] == name)
        return row

    async def decisions(self, limit: int = 1000) -> list[dict[str, Any]]:
        page = (await self.admin.get("/decisions", params={"limit": limit})).json()
        rows: list[dict[str, Any]] = page["decisions"] if isinstance(page, dict) else page
        return rows


@contextlib.contextmanager
def _process(config: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = config.with_suffix(".log")
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config)], stdout=sink, stderr=sink
        )
        try:
            yield process, log
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.asynccontextmanager
async def running_serve(folder: Path, **settings: Any) -> AsyncIterator[Serve]:
    """``serve`` with the settings given, on free ports, from its first ready answer to its end."""
    config = folder / "serve.yaml"
    config.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", **settings}))
    with _process(config) as (process, log):

        async def addresses() -> list[str] | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r"listening on (http://\S+), admin on (http://\S+),", log.read_text())
            return list(found.groups()) if found else None

        url, admin_url = await eventually(addresses)
        async with httpx.AsyncClient(base_url=admin_url, timeout=5.0, trust_env=False) as admin:

            async def ready() -> bool:
                assert process.poll() is None, log.read_text()
                return (await admin.get("/readyz")).status_code == 200

            await eventually(ready)
            yield Serve(process, url, admin, log)
