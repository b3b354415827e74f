"""``adaptive-gamma serve``: the reverse proxy as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path

import click
import uvloop

from adaptive_gamma._version import __version__
from adaptive_gamma.cli.discovered import DiscoveredReplicas, first_replicas
from adaptive_gamma.cli.reload import Configuration, Reloader, watch_files
from adaptive_gamma.config import Settings
from adaptive_gamma.discovery import Discovery
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy
from adaptive_gamma.proxy import DataPlane, ProxyServer

__all__ = ["command", "configure_logging"]

_log = logging.getLogger("adaptive_gamma.serve")
_FIRST_LOOK_S = 5.0
"""How long the start waits for discovery: a fleet made of what is there needs no slow start of its replicas. After
that it is served without, and not ready before something is found."""


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
    once. SIGHUP reads configuration and policy again, and so does a change of the files where reload.watch_s is set;
    where a file is wrong, everything stays as it is.
    """
    if workers > 1:
        raise ConfigurationError("--workers", "", _one_process(workers))
    configuration = Configuration(config, {"listen": listen, "admin": admin, "policy": policy})
    settings, loaded = configuration.load()
    configure_logging(log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(configuration, settings, loaded))


async def _serve(configuration: Configuration, configured: Settings, policy: Policy) -> None:
    discovery = Discovery(configured.discovery, origin=configuration.origin)
    await discovery.start(_FIRST_LOOK_S)
    settings = first_replicas(configured, discovery)
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
    found = DiscoveredReplicas(configured, discovery, plane)
    reloader = Reloader(configuration, plane, found)
    loop.add_signal_handler(signal.SIGHUP, reloader.wanted)
    await server.start()
    watch = loop.create_task(watch_files(configuration, reloader, plane), name="watch files")
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
    watch.cancel()
    await server.drain()
    await discovery.stop()
    _log.info("stopped")


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


def configure_logging(level: str) -> None:
    """Log to standard error, without a line for each call of the libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
