"""``adaptive-gamma doctor``: find what silently cancels speculation."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import click
from pydantic import SecretStr

from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.config.values import engine_url
from adaptive_gamma.doctor import (
    Gathered,
    LogEvidence,
    ServerSettings,
    Unreadable,
    assemble,
    cut_short,
    diagnose,
    diagnosis_text,
    left_unread,
    look_at_server,
    read_benches,
    read_log,
)
from adaptive_gamma.doctor.evidence import ServerEvidence
from adaptive_gamma.engines import LARGEST_GAMMA

__all__ = ["command"]

API_KEY_VARIABLE = "ADAPTIVE_GAMMA_ENGINE_API_KEY"
_FILE = click.Path(path_type=Path)


def _url(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return engine_url(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _urls(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(url for value in values if (url := _url(ctx, parameter, value)) is not None)


@click.command(
    "doctor",
    short_help="Find what silently cancels speculation.",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"""\b
Exit codes: 0 clean (notes do not count), 1 findings, 2 could not look.
The key for the engines is read from {API_KEY_VARIABLE}.""",
)
@click.option("--url", "urls", multiple=True, callback=_urls, metavar="URL", help="A running server. Repeatable.")
@click.option(
    "--log", "logs", multiple=True, type=_FILE, metavar="FILE",
    help="A server's log from its start, gzipped or not. Repeatable; one for each --url, in order, belongs to it.",
)  # fmt: skip
@click.option(
    "--bench", "benches", multiple=True, type=_FILE, metavar="FILE",
    help="Results of a benchmark tool, a file or a folder. Repeatable.",
)  # fmt: skip
@click.option(
    "--plain-url", callback=_url, metavar="URL", help="A running server without speculation, to compare with."
)
@click.option(
    "--plain-log", type=_FILE, metavar="FILE", help="The log of the same model without speculation, to compare with."
)
@click.option(
    "--batch", type=click.IntRange(1, 1_000_000), metavar="N",
    help="Requests that run at once in one server at its busiest; else what is seen.",
)  # fmt: skip
@click.option("--gamma", type=click.IntRange(1, LARGEST_GAMMA), metavar="N", help="The gamma that is meant.")
@click.option(
    "--watch", "watch_s", type=FiniteFloat(0, 3600), default=5.0, show_default=True, metavar="SECONDS",
    help="How long servers are watched.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=FiniteFloat(0, 600, min_open=True), default=5.0, show_default=True,
    metavar="SECONDS", help="For each page of a server.",
)  # fmt: skip
@click.option("--probe", is_flag=True, help="Send each server one short request, and see what it says of its drafts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**options: Any) -> None:
    """Look at logs, running servers and benchmarks for what silently cancels speculation.

    Each finding comes with its evidence, its cause, what it costs where that is known, and the flags that end it. What
    could not be looked at is said too. Nothing is changed on a server; only --probe sends a request.

    Plain servers and logs are told from speculative ones by what they say; --plain-url and --plain-log are for where
    there are several.
    """
    if not any(options[name] for name in ("urls", "logs", "benches", "plain_url", "plain_log")):
        raise click.UsageError("nothing to look at: give --url, --log or --bench")
    unreadable: list[Unreadable] = []
    servers = asyncio.run(_look(options))
    logs = [_kept(read_log(path), unreadable) for path in options["logs"]]
    plain_log = _kept(read_log(options["plain_log"]), unreadable) if options["plain_log"] is not None else None
    benches = read_benches(options["benches"])
    asked = [_kept_server(server, unreadable) for server in servers]
    plain_server = asked.pop() if options["plain_url"] is not None else None
    pair = len(options["urls"]) == len(options["logs"]) > 0 and None not in logs and None not in asked
    gathered = Gathered(
        servers=[server for server in asked if server is not None],
        logs=[log for log in logs if log is not None],
        plain_server=plain_server,
        plain_log=plain_log,
        benches=benches,
        pair=pair,
    )
    case, unseen = assemble(gathered, batch=options["batch"], gamma=options["gamma"])
    diagnosis = diagnose(case, [*unreadable, *benches.unreadable], unseen)
    click.echo(
        json.dumps(diagnosis.to_json(), indent=2) if options["as_json"] else diagnosis_text(diagnosis),
        nl=bool(options["as_json"]),
    )
    sys.exit(diagnosis.exit_code)


async def _look(options: dict[str, Any]) -> list[ServerEvidence | Unreadable]:
    """All servers at once; the plain one, where it was named, comes last."""
    key = os.environ.get(API_KEY_VARIABLE)
    settings = ServerSettings(
        watch_s=options["watch_s"],
        timeout_s=options["timeout_s"],
        probe=options["probe"],
        api_key=SecretStr(key) if key else None,
    )
    urls = [*options["urls"], *([options["plain_url"]] if options["plain_url"] is not None else [])]
    return list(await asyncio.gather(*(look_at_server(url, settings) for url in urls)))


def _kept(log: LogEvidence | Unreadable, unreadable: list[Unreadable]) -> LogEvidence | None:
    if isinstance(log, Unreadable):
        unreadable.append(log)
        return None
    if (cut := cut_short(log)) is not None:
        unreadable.append(cut)
    return log


def _kept_server(server: ServerEvidence | Unreadable, unreadable: list[Unreadable]) -> ServerEvidence | None:
    if isinstance(server, Unreadable):
        unreadable.append(server)
        return None
    if (left := left_unread(server)) is not None:
        unreadable.append(left)
    return server
