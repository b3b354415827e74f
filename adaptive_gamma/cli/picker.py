"""``adaptive-gamma picker``: the endpoint picker of a gateway."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import uvloop

from adaptive_gamma.admin import AdminPort
from adaptive_gamma.cli.keeping import Keeper, calm_collector, configure_logging, keeping, log_start
from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.reload import Configuration
from adaptive_gamma.config.values import host_port
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.fleet import Fleet

if TYPE_CHECKING:
    from adaptive_gamma.envoy.picker import Picker, PickerServer

__all__ = ["command"]

_log = logging.getLogger("adaptive_gamma.picker")

Tls = Literal["self-signed", "off", "files"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file of serve; without it everything comes from ADAPTIVE_GAMMA_* variables, which win over the file.",
)
@click.option(
    "--listen", default="127.0.0.1:9002", show_default=True, help="host:port for gateways; port 0 picks a free one."
)
@click.option("--admin", help="host:port of the admin port, in place of the configured one.")
@click.option("--policy", help="Policy file, in place of the configured one.")
@click.option(
    "--tls",
    type=click.Choice(get_args(Tls)),
    default="self-signed",
    show_default=True,
    help="self-signed makes a certificate at the start, for gateways that do not verify; off speaks in the clear.",
)
@click.option("--cert", type=click.Path(dir_okay=False, path_type=Path), help="PEM file for --tls files.")
@click.option("--key", type=click.Path(dir_okay=False, path_type=Path), help="PEM file for --tls files.")
@click.option(
    "--response",
    "side",
    type=click.Choice(["auto", "close", "pass"]),
    default="auto",
    show_default=True,
    help="Behind the pick: close ends the stream, so that no response comes here; pass answers all that comes; "
    "auto closes where the gateway is an Envoy.",
)
@click.option("--any-path", is_flag=True, help="Pick for every path that the gateway's routes let through.")
@click.option(
    "--linger",
    "linger_s",
    type=FiniteFloat(0, 600),
    default=2.0,
    show_default=True,
    help="Seconds for which gateways are still answered on SIGTERM, while health says not to ask any more.",
)
@click.option("--test-selection", is_flag=True, hidden=True, help="Heed test-epp-endpoint-selection; for tests only.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Nothing is logged per request at info.",
)
def command(
    config: Path | None,
    listen: str,
    admin: str | None,
    policy: str | None,
    tls: Tls,
    cert: Path | None,
    key: Path | None,
    side: Literal["auto", "close", "pass"],
    any_path: bool,
    linger_s: float,
    test_selection: bool,
    log_level: str,
) -> None:
    """Tell a gateway where each request goes; the gateway carries it, and no response passes through here.

    Speaks Envoy's ext_proc as Gateway API inference gateways ask their endpoint picker. SIGHUP reads configuration and
    policy again. SIGTERM and SIGINT end it: health says so first, picks under way are finished.
    """
    configuration = Configuration(config, {"admin": admin, "policy": policy})
    settings, loaded = configuration.load()
    configure_logging(log_level)
    try:
        host_port(listen)
    except ValueError as error:
        raise ConfigurationError("--listen", "", f"{listen!r}: {error}") from error
    if (tls == "files") != (cert is not None and key is not None) or (cert is None) != (key is None):
        raise ConfigurationError("--tls", "", "files needs both --cert and --key, and they need it")
    try:
        from adaptive_gamma.envoy.picker import Picker, PickerServer, from_files, self_signed
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("google", "grpc"):
            raise
        raise ConfigurationError("picker", "", "needs the extra: pip install 'adaptive-gamma[envoy]'") from error
    credentials: Any = None
    if tls == "self-signed":
        credentials = self_signed()
    elif cert is not None and key is not None:
        credentials = from_files(cert, key)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def run() -> None:
            async with keeping(configuration, settings) as keeper:
                fleet = Fleet.of(keeper.settings, loaded)
                picker = Picker(keeper.settings, fleet, loaded, any_path=any_path, test_selection=test_selection)
                server = PickerServer(picker, listen, credentials=credentials, response_side=side)
                await _keep(keeper, picker, server, tls, linger_s)
            _log.info("stopped")

        runner.run(run())


async def _keep(keeper: Keeper, picker: Picker, server: PickerServer, tls: Tls, linger_s: float) -> None:
    from adaptive_gamma.envoy.picker import picker_app

    admin = AdminPort(picker_app(picker), keeper.settings.admin, keeper.settings.admin_hosts)
    keeper.keep(picker)
    await admin.start()
    try:
        await server.start()
        does = f"picks on port {server.port} (TLS {tls})"
        log_start(_log, does, admin.url, picker.policy.name, keeper.settings)
        calm_collector()
        try:
            await keeper.until_stopped()
        finally:
            await server.stop(linger_s=linger_s, grace_s=picker.settings.drain.grace_s)
    finally:
        await admin.stop()
