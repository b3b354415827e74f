"""``adaptive-gamma picker``: the endpoint picker of a gateway."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import uvloop

from adaptive_gamma._version import __version__
from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.reload import Configuration
from adaptive_gamma.cli.serve import configure_logging
from adaptive_gamma.config import FileChanges, Settings, stamps_of
from adaptive_gamma.config.values import host_port
from adaptive_gamma.envoy.admin_port import AdminPort
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy

if TYPE_CHECKING:
    from adaptive_gamma.envoy.picker import Picker, PickerServer

__all__ = ["command"]

_log = logging.getLogger("adaptive_gamma.picker")

_LOOK_FOR_THE_SETTING_S = 1.0
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
    _refuse_discovery(settings, configuration)
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
            fleet = Fleet(
                settings.replicas,
                scrape=settings.scrape,
                health=settings.health,
                load=settings.load,
                cost_check=settings.cost_check,
                capability=settings.capability,
                api_key=settings.engine_api_key,
                policy=loaded,
            )
            picker = Picker(settings, fleet, loaded, any_path=any_path, test_selection=test_selection)
            server = PickerServer(picker, listen, credentials=credentials, response_side=side)
            await _keep(configuration, picker, server, loaded, tls, linger_s)

        runner.run(run())


async def _keep(
    configuration: Configuration, picker: Picker, server: PickerServer, policy: Policy, tls: Tls, linger_s: float
) -> None:
    from adaptive_gamma.envoy.picker import picker_app

    stop, again = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    admin = AdminPort(picker_app(picker), picker.settings.admin)
    await admin.start()
    await server.start()
    _log.info(
        "adaptive-gamma %s picks on port %d (TLS %s), admin on %s, policy %s, mode %s, replicas %s",
        __version__,
        server.port,
        tls,
        admin.url,
        policy.name,
        picker.settings.mode,
        ", ".join(f"{replica.name}={replica.url}" for replica in picker.fleet.replicas),
    )
    tasks = [
        loop.create_task(stop.wait(), name="stop"),
        loop.create_task(_reload(configuration, picker, again), name="reload"),
        loop.create_task(_watch(configuration, picker, again), name="watch files"),
    ]
    try:
        # A loop that ends did so by a fault of ours, and there is nothing to go on with.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await server.stop(linger_s=linger_s, grace_s=picker.settings.drain.grace_s)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await admin.stop()
    for result in results:
        if isinstance(result, Exception):
            raise result
    _log.info("stopped")


async def _reload(configuration: Configuration, picker: Picker, again: asyncio.Event) -> None:
    """Read everything again whenever told to; where a file is wrong, everything stays as it is."""
    while True:
        await again.wait()
        again.clear()
        try:
            settings, policy = await asyncio.to_thread(configuration.load)
            _refuse_fixed(settings, picker, configuration)
            picker.apply(settings, policy)
        except (ConfigurationError, ValueError) as error:
            picker.reload_failures += 1
            _log.error("the configuration stays as it is: %s", error)
            continue
        await picker.look_up()
        _log.info("configuration loaded again: policy %s, mode %s", policy.name, settings.mode)


def _refuse_discovery(settings: Settings, configuration: Configuration) -> None:
    if settings.discovery is not None:
        raise ConfigurationError(
            configuration.origin("discovery"), "discovery", "is for serve; the replicas of the picker are configured"
        )


def _refuse_fixed(settings: Settings, picker: Picker, configuration: Configuration) -> None:
    _refuse_discovery(settings, configuration)
    if settings.admin != picker.settings.admin:
        raise ConfigurationError(configuration.origin("admin"), "admin", f"{settings.admin} needs a restart")


async def _watch(configuration: Configuration, picker: Picker, again: asyncio.Event) -> None:
    """Have it read again when a file has changed, for as long as ``reload.watch_s`` is set."""
    changes = FileChanges()
    while True:
        watch_s = picker.settings.reload.watch_s
        await asyncio.sleep(_LOOK_FOR_THE_SETTING_S if watch_s is None else watch_s)
        if watch_s is not None and not again.is_set():
            loaded = configuration.stamps
            if changes.changed(loaded, await asyncio.to_thread(stamps_of, loaded)):
                again.set()
