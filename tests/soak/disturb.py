"""What befalls the engines and the proxy's configuration during a run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.soak.engine_fleet import Engines
from tests.soak.proxy import WHOLE_RELOAD, Reloads

__all__ = ["disturb"]


async def disturb(engines: Engines, reloads: Reloads, rng: random.Random, gap_s: float) -> None:
    """Go on until cancelled; what is under way is then finished, so that all engines and replicas are there again.

    One engine is away at a time, beside at most one replica that is out of the configuration: of four, two are left.
    ``gap_s`` is the mean pause between two events of a kind.
    """
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_repeat(lambda: _trouble(engines, rng), rng, gap_s))
        tasks.create_task(_repeat(lambda: _reload(engines, reloads, rng, gap_s), rng, gap_s))


async def _repeat(event: Callable[[], Awaitable[None]], rng: random.Random, gap_s: float) -> None:
    while True:
        await asyncio.sleep(gap_s * rng.uniform(0.5, 1.5))
        await _whole(event())


async def _whole(event: Awaitable[None]) -> None:
    """Finish an event although this task is cancelled in it."""
    task = asyncio.ensure_future(event)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _trouble(engines: Engines, rng: random.Random) -> None:
    index = rng.randrange(len(engines))
    kind = rng.choices(("kill", "term", "freeze"), (4, 3, 2))[0]
    if kind == "freeze":
        await engines.freeze(index, rng.uniform(0.5, 4.0))
    elif kind == "kill":
        await engines.restart(index, "kill", rng.uniform(0.0, 4.0))
    else:
        await engines.restart(index, "term", rng.uniform(0.0, 4.0))


async def _reload(engines: Engines, reloads: Reloads, rng: random.Random, gap_s: float) -> None:
    draw = rng.random()
    if WHOLE_RELOAD and draw < 0.5:
        name = rng.choice(engines.processes).name
        await reloads.remove(name)
        await asyncio.sleep(gap_s * rng.uniform(0.3, 1.0))
        await reloads.put_back(name)
    elif draw < 0.8:
        await reloads.change_policy()
    else:
        await reloads.break_files(config=WHOLE_RELOAD and rng.random() < 0.5)
