"""What the commands that stay have in common: signals, replicas that are found, files that are read again."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from adaptive_gamma._version import __version__
from adaptive_gamma.cli.discovered import Body, DiscoveredReplicas, first_replicas
from adaptive_gamma.cli.log_lines import OneLineFormatter
from adaptive_gamma.cli.reload import Configuration, Reloader, watch_files
from adaptive_gamma.config import Settings
from adaptive_gamma.discovery import Discovery
from adaptive_gamma.errors import AddressError

__all__ = ["Keeper", "calm_collector", "configure_logging", "keeping", "log_start"]

_log = logging.getLogger("adaptive_gamma.reload")

_FIRST_LOOK_S = 5.0
"""How long the start waits for discovery: a fleet made of what is there needs no slow start of its replicas. After
that it is gone on without, and not ready before something is found."""


class Keeper:
    """Keeps what serves up to date, until the process is told to stop.

    Args:
        configuration: what is read again.
        configured: what it gave at the start.
        discovery: has begun to look.
    """

    def __init__(self, configuration: Configuration, configured: Settings, discovery: Discovery) -> None:
        self.settings = first_replicas(configured, discovery)
        """As configured, with the replicas that were found by the start."""
        self._configuration = configuration
        self._configured = configured
        self._discovery = discovery
        self._stop = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []

    def keep(self, body: Body, *, hurry: Callable[[], None] = lambda: None) -> None:
        """Hand it what is found, and what is read at SIGHUP and where files change.

        ``hurry`` is called when the process is told to stop for the second time.
        """
        loop = asyncio.get_running_loop()

        def told_to_stop() -> None:
            if self._stop.is_set():
                hurry()
            self._stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told_to_stop)
        found = DiscoveredReplicas(self._configured, self._discovery, body)
        reloader = Reloader(self._configuration, found)
        loop.add_signal_handler(signal.SIGHUP, reloader.wanted)
        self._watch = loop.create_task(watch_files(self._configuration, reloader), name="watch files")
        self._watch.add_done_callback(_report_end)

    async def until_stopped(self, **loops: Coroutine[Any, Any, None]) -> bool:
        """Run ``loops`` until the process is told to stop, which is True, or one of them ends.

        A loop that ends did so by a fault of ours, and there is nothing to go on with. Those left run on until
        ``keeping`` ends, which raises what a loop raised.
        """
        create = asyncio.get_running_loop().create_task
        self._loops = [create(each, name=name) for name, each in loops.items()]
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({stopped, *self._loops}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return self._stop.is_set()

    async def end(self) -> BaseException | None:
        """End the loops; what one of them raised."""
        watch = [] if self._watch is None else [self._watch]
        for task in (*watch, *self._loops):
            task.cancel()
        await asyncio.gather(*watch, return_exceptions=True)
        results = await asyncio.gather(*self._loops, return_exceptions=True)
        return next((each for each in results if isinstance(each, Exception)), None)


def _report_end(task: asyncio.Task[None]) -> None:
    """What serves goes on without: files are then read again at SIGHUP only."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("the loop %r ended", task.get_name(), exc_info=task.exception())


@asynccontextmanager
async def keeping(configuration: Configuration, configured: Settings) -> AsyncIterator[Keeper]:
    """Look for replicas from here to the end of the block; their first answers are waited for, though not for long.

    Raises ConfigurationError where the section ``discovery`` cannot be used here, what a loop of the keeper raised, and
    an AddressError of the block with the name of what gave the address.
    """
    discovery = Discovery(configured.discovery, origin=configuration.origin)
    try:
        await discovery.start(_FIRST_LOOK_S)
        keeper = Keeper(configuration, configured, discovery)
        try:
            yield keeper
        except AddressError as error:
            raise error.given_by(configuration.origin(error.key)) from error
        finally:
            fault = await keeper.end()
    finally:
        await discovery.stop()
    if fault is not None:
        raise fault


def log_start(log: logging.Logger, does: str, admin: str, policy: str, settings: Settings) -> None:
    """Say that the process has begun, what it ``does``, and where its admin port is."""
    log.info(
        "adaptive-gamma %s %s, admin on %s, policy %s, mode %s, replicas %s",
        __version__,
        does,
        admin,
        policy,
        settings.mode,
        ", ".join(f"{replica.name}={replica.url}" for replica in settings.replicas) or "none yet",
    )


def calm_collector() -> None:
    """Everything made by now stays; the collector need not walk it while streams flow.

    Requests leave no cycles, scrapes and reloads some: what piles up between two collections is a few megabytes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def configure_logging(level: str) -> None:
    """Log to standard error, without a line for each call of the libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
