"""Work that a person may end with Ctrl-C or SIGTERM, and that then still tells what it has."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

__all__ = ["until_signal"]


async def until_signal(work: Coroutine[Any, Any, object]) -> int | None:
    """Run to the end or to SIGINT or SIGTERM, whose number it gives; the work is then cancelled."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    seen: list[int] = []

    def stop(number: int) -> None:
        seen.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not seen:
            raise
    return seen[0] if seen else None
