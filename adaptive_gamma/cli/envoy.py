"""``adaptive-gamma envoy``: keep the files of an Envoy that carries the requests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import click
import uvloop

from adaptive_gamma._version import __version__
from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.reload import Configuration
from adaptive_gamma.cli.serve import configure_logging
from adaptive_gamma.config import FileChanges, Settings, stamps_of
from adaptive_gamma.config.values import host_port
from adaptive_gamma.envoy.files import (
    BOOTSTRAP_FILE,
    DEFAULT_CA_FILE,
    ControllerAdmin,
    FilesController,
    Place,
    whole_configuration,
)
from adaptive_gamma.errors import ConfigurationError, ScrapeError
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy

__all__ = ["command"]

_log = logging.getLogger("adaptive_gamma.envoy")

_LOOK_FOR_THE_SETTING_S = 1.0
_VALIDATE_S = 60.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file of serve; without it everything comes from ADAPTIVE_GAMMA_* variables, which win over the file.",
)
@click.option(
    "--out",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for Envoy's files; start Envoy with -c FOLDER/envoy.json.",
)
@click.option("--listen", help="host:port of Envoy's data port, in place of the configured one.")
@click.option("--admin", help="host:port of this command's own admin port, in place of the configured one.")
@click.option("--policy", help="Policy file, in place of the configured one.")
@click.option(
    "--envoy-admin", default="127.0.0.1:9901", show_default=True, help="host:port of Envoy's admin port; keep it local."
)
@click.option(
    "--interval",
    "interval_s",
    type=FiniteFloat(0.01, 10.0),
    default=0.1,
    show_default=True,
    help="Seconds between two looks at Envoy and two decisions.",
)
@click.option("--ca-file", default=DEFAULT_CA_FILE, show_default=True, help="What engines with https are checked by.")
@click.option("--once", is_flag=True, help="Look at the engines once, write the files, and end.")
@click.option("--validate", is_flag=True, help="Have Envoy (variable ENVOY, or from the path) check what was written.")
@click.option("--drain", is_flag=True, help="On SIGTERM drain Envoy too, for drain.grace_s, and end it.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def command(
    config: Path | None,
    folder: Path,
    listen: str | None,
    admin: str | None,
    policy: str | None,
    envoy_admin: str,
    interval_s: float,
    ca_file: str,
    once: bool,
    validate: bool,
    drain: bool,
    log_level: str,
) -> None:
    """Write Envoy's files and keep their weights as the decision is now: Envoy carries the requests, no Python does.

    Engines are scraped as serve does, what Envoy has open is read from its admin port, and files are rewritten where
    they change. SIGHUP reads configuration and policy again. SIGTERM and SIGINT end the command; Envoy goes on with
    the last weights, unless --drain has it finish what is open and end too.
    """
    configuration = Configuration(config, {"listen": listen, "admin": admin, "policy": policy})
    settings, loaded = configuration.load()
    _check(settings, envoy_admin, configuration)
    configure_logging(log_level)
    place = Place(folder.resolve(), settings.listen, envoy_admin, ca_file)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(configuration, settings, loaded, place, interval_s, once=once, validate=validate, drain=drain))


def _check(settings: Settings, envoy_admin: str, configuration: Configuration) -> None:
    """Refuse what Envoy's files cannot say, and what this command does not do."""
    if settings.discovery is not None:
        raise ConfigurationError(
            configuration.origin("discovery"), "discovery", "is for serve; the replicas of files mode are configured"
        )
    if settings.listen.endswith(":0"):
        raise ConfigurationError(
            configuration.origin("listen"), "listen", "Envoy's port must be a number that clients can know, not 0"
        )
    if settings.limits.body_bytes > 2**32 - 1:
        raise ConfigurationError(
            configuration.origin("limits.body_bytes"),
            "limits.body_bytes",
            "Envoy buffers no more than 4294967295 bytes",
        )
    try:
        host_port(envoy_admin)
    except ValueError as error:
        raise ConfigurationError("--envoy-admin", "", f"{envoy_admin!r}: {error}") from error
    if envoy_admin in (settings.listen, settings.admin):
        raise ConfigurationError("--envoy-admin", "", f"{envoy_admin} is the configured listen or admin address")


async def _run(
    configuration: Configuration,
    settings: Settings,
    policy: Policy,
    place: Place,
    interval_s: float,
    *,
    once: bool,
    validate: bool,
    drain: bool,
) -> None:
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
    controller = FilesController(settings, fleet, policy, place, interval_s=interval_s)
    await asyncio.gather(fleet.scrape_once(), fleet.check_health_once())
    await controller.rewrite()
    if validate:
        await asyncio.to_thread(_validate, controller)
    if once:
        await controller.close()
        _log.info("wrote %s", place.folder / BOOTSTRAP_FILE)
        return
    await _keep(configuration, controller, drain=drain)


async def _keep(configuration: Configuration, controller: FilesController, *, drain: bool) -> None:
    stop = asyncio.Event()
    again = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    admin = ControllerAdmin(controller, controller.settings.admin)
    await admin.start()
    await controller.fleet.start()
    tasks = [
        loop.create_task(controller.run(), name="rewrite"),
        loop.create_task(_reload(configuration, controller, again), name="reload"),
        loop.create_task(_watch(configuration, controller, again), name="watch files"),
    ]
    _log.info(
        "adaptive-gamma %s writes %s for an Envoy on %s, admin on %s, policy %s, mode %s",
        __version__,
        controller.place.folder / BOOTSTRAP_FILE,
        controller.place.listen,
        admin.url,
        controller.policy.name,
        controller.settings.mode,
    )
    ended = [loop.create_task(stop.wait(), name="stop"), *tasks]
    try:
        # A loop that ends did so by a fault of ours, and there is nothing to go on with.
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        if drain and stop.is_set():
            await _drain(controller)
    finally:
        for task in ended:
            task.cancel()
        results = await asyncio.gather(*ended, return_exceptions=True)
        await admin.stop()
        await controller.fleet.stop()
        await controller.close()
    for result in results:
        if isinstance(result, Exception):
            raise result
    _log.info("stopped")


async def _drain(controller: FilesController) -> None:
    grace_s = controller.settings.drain.grace_s
    _log.info("draining Envoy, at most %g s", grace_s)
    try:
        cut = await controller.drain(grace_s)
    except ScrapeError as error:
        _log.error("Envoy could not be drained: %s", error)
        return
    if cut:
        _log.warning("drain: %d requests were still open and are cut", cut)


async def _reload(configuration: Configuration, controller: FilesController, again: asyncio.Event) -> None:
    """Read everything again whenever told to; where a file is wrong, everything stays as it is."""
    while True:
        await again.wait()
        again.clear()
        try:
            settings, policy = await asyncio.to_thread(configuration.load)
            _check(settings, controller.place.envoy_admin, configuration)
            controller.apply(settings, policy)
        except (ConfigurationError, ValueError) as error:
            controller.reload_failures += 1
            _log.error("the configuration stays as it is: %s", error)
            continue
        _log.info("configuration loaded again: policy %s, mode %s", policy.name, settings.mode)


async def _watch(configuration: Configuration, controller: FilesController, again: asyncio.Event) -> None:
    """Have it read again when a file has changed, for as long as ``reload.watch_s`` is set."""
    changes = FileChanges()
    while True:
        watch_s = controller.settings.reload.watch_s
        await asyncio.sleep(_LOOK_FOR_THE_SETTING_S if watch_s is None else watch_s)
        if watch_s is not None and not again.is_set():
            loaded = configuration.stamps
            if changes.changed(loaded, await asyncio.to_thread(stamps_of, loaded)):
                again.set()


def _validate(controller: FilesController) -> None:
    """Have Envoy look at what was written. Raises ConfigurationError with what it says against it."""
    envoy = os.environ.get("ENVOY") or shutil.which("envoy")
    if envoy is None:
        _log.warning("not validated: there is no envoy on the path, nor a variable ENVOY that names one")
        return
    with tempfile.TemporaryDirectory(prefix="adaptive-gamma-") as scratch:
        whole = Path(scratch) / "whole.json"
        whole.touch(mode=0o600)
        whole.write_text(json.dumps(whole_configuration(controller.files)), encoding="utf-8")
        command_line = [envoy, "--mode", "validate", "-c", str(whole), "-l", "error", "--disable-hot-restart"]
        try:
            found = subprocess.run(command_line, capture_output=True, text=True, timeout=_VALIDATE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigurationError("--validate", "", f"{envoy} could not be run: {error}") from error
    if found.returncode:
        said = (found.stderr or found.stdout).strip().splitlines()
        raise ConfigurationError("--validate", "", "Envoy refuses the files: " + " ".join(said[-3:]))
    _log.info("Envoy finds no fault with the files")
