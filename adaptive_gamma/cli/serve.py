"""``adaptive-gamma serve``: the reverse proxy as a process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click
import uvloop

from adaptive_gamma.cli.keeping import calm_collector, configure_logging, keeping, log_start
from adaptive_gamma.cli.reload import Configuration
from adaptive_gamma.config import Settings
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy
from adaptive_gamma.proxy import DataPlane, ProxyServer

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
    async with keeping(configuration, configured) as keeper:
        plane = DataPlane(keeper.settings, Fleet.of(keeper.settings, policy), policy)
        server = ProxyServer(plane)
        keeper.keep(plane, hurry=server.hurry)
        await server.start()
        log_start(_log, f"listening on {server.data.url}", server.admin.url, policy.name, keeper.settings)
        calm_collector()
        await keeper.until_stopped()
        await server.drain()
    _log.info("stopped")


def _one_process(workers: int) -> str:
    """Why there are no more, and the way on."""
    return (
        f"expected 1, not {workers}: open requests, session affinity and the decision are kept in the process, so that "
        f"each of {workers} would act on a part of the truth. Past one core put Envoy in front, or run several "
        "sidecars, each with replicas of its own"
    )
