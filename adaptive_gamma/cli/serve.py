"""``adaptive-gamma serve``: the reverse proxy as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
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
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Nothing is logged per request at info.",
)
def command(config: Path | None, listen: str | None, admin: str | None, policy: str | None, log_level: str) -> None:
    """Run the reverse proxy in front of inference replicas.

    SIGTERM and SIGINT drain: open streams finish for drain.grace_s, then the rest is cut; a second signal cuts at
    once. SIGHUP reads the policy file again.
    """
    settings = load_settings(config, overrides={"listen": listen, "admin": admin, "policy": policy})

    def origin(key: str) -> str:
        return variable_of(key) or ("environment" if config is None else str(config))

    loaded = _load_first_policy(settings, "--policy" if policy is not None else origin("policy"))
    check_class_names(settings, {*CLASSES, *CLASS_ALIASES, *loaded.classes}, origin)
    _configure_logging(log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, loaded))


def _load_first_policy(settings: Settings, source: str) -> Policy:
    """The policy the settings name; ``source`` is where they name it."""
    try:
        find_policy(settings.policy)
    except PolicyError as error:
        name = settings.policy
        shown = repr(name if len(name) <= 60 else name[:57] + "...")
        raise ConfigurationError(source, "policy", f"{shown}: {error.problem}", error.suggestion) from error
    return load_policy(settings.policy)


async def _serve(settings: Settings, policy: Policy) -> None:
    fleet = Fleet(
        settings.replicas,
        scrape=settings.scrape,
        health=settings.health,
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
    loop.add_signal_handler(signal.SIGHUP, _reloader(plane, fleet))
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


def _reloader(plane: DataPlane, fleet: Fleet) -> Callable[[], None]:
    def reload() -> None:
        try:
            policy = load_policy(plane.settings.policy)
        except PolicyError as error:
            plane.metrics.reload_failed()
            _log.error("the policy stays as it is: %s", error)
            return
        plane.replace_policy(policy)
        fleet.policy = policy
        _log.info("policy %s loaded again", policy.name)

    return reload


def _calm_collector() -> None:
    """Everything made by now stays; the collector need not walk it while streams flow."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def _configure_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
