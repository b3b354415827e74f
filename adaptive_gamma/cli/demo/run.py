"""Start engines and proxy, send the traffic, show it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live

from adaptive_gamma.cli.demo.display import live_view, summary
from adaptive_gamma.cli.demo.engines import SYNTHETIC_RATES, DemoEngines, free_port, running_engines
from adaptive_gamma.cli.demo.traffic import Admin, StepTally, keep_open
from adaptive_gamma.errors import AdaptiveGammaError

__all__ = ["run_demo"]

_START_TIMEOUT_S = 15.0
_FRAME_S = 0.25


def run_demo(levels: Sequence[int], seconds: float, *, simulated: bool, seed: int) -> int:
    """Run the whole demo; the exit code is 0 when no request failed."""
    console = Console(highlight=False)
    console.print("starting two engines ...")
    with running_engines(simulated=simulated) as engines, tempfile.TemporaryDirectory() as folder:
        console.print(f"engines: {engines.described}", markup=False)
        return asyncio.run(_play(console, engines, Path(folder), levels, seconds, seed))


async def _play(
    console: Console, engines: DemoEngines, folder: Path, levels: Sequence[int], seconds: float, seed: int
) -> int:
    steps: list[StepTally] = []
    async with _proxy(engines, folder) as (base_url, admin):
        status: Mapping[str, Any] = await admin.status()
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            for level in levels:
                tally = StepTally(level)
                steps.append(tally)
                traffic = asyncio.ensure_future(keep_open(base_url, tally, seconds, seed + level))
                try:
                    while not traffic.done():
                        await asyncio.wait([traffic], timeout=_FRAME_S)
                        status = await admin.status()
                        note = f"{engines.described}\nproxy at {base_url}, step {len(steps)} of {len(levels)}"
                        live.update(live_view(status, tally, note))
                    await traffic
                finally:
                    traffic.cancel()
    console.print(summary(steps, status, SYNTHETIC_RATES, engines.described))
    failed = sum(len(step.failures) for step in steps)
    answered = sum(len(step.latencies_s) for step in steps)
    console.print(f"{answered} requests answered, {failed} failed")
    return 0 if answered and not failed else 1


@contextlib.contextmanager
def _serving(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (config.parent / "serve.log").open("wb") as log:
        process = subprocess.Popen(  # nosec B603  # our own command, no shell
            [sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config)], stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


@contextlib.asynccontextmanager
async def _proxy(engines: DemoEngines, folder: Path) -> AsyncIterator[tuple[str, Admin]]:
    """``adaptive-gamma serve`` in front of the engines, until the block ends."""
    listen, admin_port = free_port(), free_port()
    config = folder / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "listen": f"127.0.0.1:{listen}",
                "admin": f"127.0.0.1:{admin_port}",
                "policy": engines.policy,
                "replicas": [
                    {"name": "spec-0", "url": engines.speculative_url, "engine": engines.kind, "gamma": "auto"},
                    {"name": "plain-0", "url": engines.plain_url, "engine": engines.kind, "gamma": 0},
                ],
            }
        )
    )
    admin = Admin(f"http://127.0.0.1:{admin_port}")
    with _serving(config) as process:
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while not await admin.ready():
                    if process.poll() is not None:
                        log = (folder / "serve.log").read_text()
                        raise AdaptiveGammaError(f"the proxy did not start:\n{log[-2000:]}")
                    await asyncio.sleep(0.05)
            yield f"http://127.0.0.1:{listen}", admin
        finally:
            await admin.aclose()
