"""``adaptive-gamma envoy``: keep the files of an Envoy that carries the requests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import click
import uvloop

from adaptive_gamma.admin import AdminPort
from adaptive_gamma.cli.keeping import Keeper, calm_collector, configure_logging, keeping, log_start
from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.reload import Configuration
from adaptive_gamma.cli.whole_file import refuse_input
from adaptive_gamma.config import Settings
from adaptive_gamma.config.values import host_port
from adaptive_gamma.envoy.files import (
    BOOTSTRAP_FILE,
    DEFAULT_CA_FILE,
    OUT_FILES,
    FilesController,
    Place,
    controller_app,
    refuse_settings,
    whole_configuration,
)
from adaptive_gamma.errors import ConfigurationError, ScrapeError
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy

__all__ = ["command"]

_log = logging.getLogger("adaptive_gamma.envoy")

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
    _check(envoy_admin)
    refuse_settings(settings, envoy_admin, configuration.origin)
    configure_logging(log_level)
    for name in OUT_FILES:
        refuse_input("--out", folder / name, (config, settings.policy))
    place = Place(folder.resolve(), settings.listen, envoy_admin, ca_file)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(configuration, settings, loaded, place, interval_s, once=once, validate=validate, drain=drain))


def _check(envoy_admin: str) -> None:
    try:
        host_port(envoy_admin)
    except ValueError as error:
        raise ConfigurationError("--envoy-admin", "", f"{envoy_admin!r}: {error}") from error


async def _run(
    configuration: Configuration,
    configured: Settings,
    policy: Policy,
    place: Place,
    interval_s: float,
    *,
    once: bool,
    validate: bool,
    drain: bool,
) -> None:
    async with keeping(configuration, configured) as keeper:
        fleet = Fleet.of(keeper.settings, policy)
        controller = FilesController(keeper.settings, fleet, policy, place, interval_s=interval_s)
        try:
            await asyncio.gather(fleet.scrape_once(), fleet.check_health_once())
            await controller.rewrite()
            if validate:
                await asyncio.to_thread(_validate, controller)
            if once:
                _log.info("wrote %s", place.folder / BOOTSTRAP_FILE)
                return
            await _keep(keeper, controller, drain=drain)
        finally:
            await fleet.stop()
            await controller.close()
    _log.info("stopped")


async def _keep(keeper: Keeper, controller: FilesController, *, drain: bool) -> None:
    admin = AdminPort(controller_app(controller), keeper.settings.admin, keeper.settings.admin_hosts)
    keeper.keep(controller)
    await controller.fleet.start()
    await admin.start()
    try:
        place = controller.place
        does = f"writes {place.folder / BOOTSTRAP_FILE} for an Envoy on {place.listen}"
        log_start(_log, does, admin.url, controller.policy.name, keeper.settings)
        calm_collector()
        if await keeper.until_stopped(rewrite=controller.run()) and drain:
            await _drain(controller)
    finally:
        await admin.stop()


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
            found = subprocess.run(command_line, capture_output=True, text=True, timeout=_VALIDATE_S, check=False)  # nosec B603  # the binary the user named, no shell
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigurationError("--validate", "", f"{envoy} could not be run: {error}") from error
    if found.returncode:
        said = (found.stderr or found.stdout).strip().splitlines()
        raise ConfigurationError("--validate", "", "Envoy refuses the files: " + " ".join(said[-3:]))
    _log.info("Envoy finds no fault with the files")
