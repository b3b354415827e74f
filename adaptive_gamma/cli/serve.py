"""``adaptive-gamma serve``: the reverse proxy as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import uvloop

from adaptive_gamma._version import __version__
from adaptive_gamma.config import Settings, check_class_names, load_settings, variable_of
from adaptive_gamma.errors import ConfigurationError, PolicyError
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import CLASS_ALIASES, Policy, find_policy, load_policy
from adaptive_gamma.proxy import DataPlane, ProxyServer
from adaptive_gamma.routing import CLASSES

__all__ = ["command"]

_log = logging.getLogger("adaptive_gamma.serve")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file; without it everything comes from ADAPTIVE_GAMMA_* variables, which win over the file.",
)
@click.option("--listen", help="host:port of the data port, in place of the configured one; port 0 picks a free one.")
@click.option("--admin", help="host:port of the admin port, in place of the configured one.")
@click.option("--policy", help="Policy file, in place of the configured one.")
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes; more than 1 is refused."
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Nothing is logged per request at info.",
)
def command(
    config: Path | None, listen: str | None, admin: str | None, policy: str | None, workers: int, log_level: str
) -> None:
    """Run the reverse proxy in front of inference replicas.

    SIGTERM and SIGINT drain: open streams finish for drain.grace_s, then the rest is cut; a second signal cuts at
    once. SIGHUP reads configuration and policy again; where a file is wrong, everything stays as it is.
    """
    if workers > 1:
        raise ConfigurationError("--workers", "", _one_process(workers))
    configuration = _Configuration(config, {"listen": listen, "admin": admin, "policy": policy})
    settings, loaded = configuration.load()
    _configure_logging(log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(configuration, settings, loaded))


class _Configuration:
    """Where settings and policy come from: one file, the environment and the command line."""

    def __init__(self, path: Path | None, overrides: Mapping[str, str | None]) -> None:
        self._path = path
        self._overrides = overrides

    def load(self) -> tuple[Settings, Policy]:
        """Read and check everything, at the start as at each reload.

        Raises ConfigurationError, or PolicyError for a policy file that cannot be used.
        """
        settings = load_settings(self._path, overrides=self._overrides)
        policy = _named_policy(settings, self.origin("policy"))
        check_class_names(settings, {*CLASSES, *CLASS_ALIASES, *policy.classes}, self.origin)
        return settings, policy

    def origin(self, key: str) -> str:
        """The option, variable or file that gave a dotted key."""
        if self._overrides.get(key) is not None:
            return f"--{key}"
        return variable_of(key) or ("environment" if self._path is None else str(self._path))


def _named_policy(settings: Settings, source: str) -> Policy:
    """The policy the settings name; ``source`` is where they name it."""
    try:
        find_policy(settings.policy)
    except PolicyError as error:
        name = settings.policy
        shown = repr(name if len(name) <= 60 else name[:57] + "...")
        raise ConfigurationError(source, "policy", f"{shown}: {error.problem}", error.suggestion) from error
    return load_policy(settings.policy)


async def _serve(configuration: _Configuration, settings: Settings, policy: Policy) -> None:
    fleet = Fleet(
        settings.replicas,
        scrape=settings.scrape,
        health=settings.health,
        load=settings.load,
        cost_check=settings.cost_check,
        capability=settings.capability,
        api_key=settings.engine_api_key,
        policy=policy,
    )
    plane = DataPlane(settings, fleet, policy)
    server = ProxyServer(plane)
    stop = asyncio.Event()

    def told_to_stop() -> None:
        if stop.is_set():
            server.hurry()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    reloader = _Reloader(configuration, plane)
    loop.add_signal_handler(signal.SIGHUP, reloader.wanted)
    await server.start()
    _log.info(
        "adaptive-gamma %s listening on %s, admin on %s, policy %s, mode %s, replicas %s",
        __version__,
        server.data.url,
        server.admin.url,
        policy.name,
        settings.mode,
        ", ".join(f"{replica.name}={replica.url}" for replica in settings.replicas),
    )
    _calm_collector()
    await stop.wait()
    await server.drain()
    _log.info("stopped")


class _Reloader:
    """Applies the configuration again when asked to, one reload at a time; the last request is never lost."""

    def __init__(self, configuration: _Configuration, plane: DataPlane) -> None:
        self._configuration = configuration
        self._plane = plane
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def wanted(self) -> None:
        """Reload now, or once more after the reload under way."""
        self._again = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="reload")
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        while self._again:
            self._again = False
            try:
                # In a thread, as a large fleet's file takes a fifth of a second to read.
                settings, policy = await asyncio.to_thread(self._configuration.load)
            except ConfigurationError as error:
                self._plane.metrics.reload_failed()
                _log.error("the configuration stays as it is: %s", error)
                continue
            if self._plane.draining:
                return
            try:
                self._plane.apply(settings, policy, self._configuration.origin)
            except ConfigurationError as error:
                _log.error("the configuration stays as it is: %s", error)
                continue
            replicas = ", ".join(f"{replica.name}={replica.url}" for replica in settings.replicas)
            _log.info(
                "configuration loaded again: policy %s, mode %s, replicas %s", policy.name, settings.mode, replicas
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._plane.metrics.reload_failed()
            _log.error("a reload met a fault of ours", exc_info=task.exception())
        if self._again and not task.cancelled():
            self.wanted()


def _one_process(workers: int) -> str:
    """Why there are no more, and the way on."""
    return (
        f"expected 1, not {workers}: open requests, session affinity and the decision are kept in the process, so that "
        f"each of {workers} would act on a part of the truth. Past one core put Envoy in front, or run several "
        "sidecars, each with replicas of its own"
    )


def _calm_collector() -> None:
    """Everything made by now stays; the collector need not walk it while streams flow.

    Requests leave no cycles, scrapes and reloads some: what piles up between two collections is a few megabytes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _configure_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
