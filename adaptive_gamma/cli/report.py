"""``adaptive-gamma report``: what acting would have changed, from what was observed."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import click

from adaptive_gamma.errors import AdaptiveGammaError
from adaptive_gamma.observe import build_report, parse_since, read_lines, read_log, report_text
from adaptive_gamma.observe.reading import Found

__all__ = ["command"]

_TIMEOUT_S = 60.0


def _moment(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return parse_since(value, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", metavar="FILE|ADMIN_URL")
@click.option(
    "--since",
    metavar="LENGTH|TIME",
    callback=_moment,
    required=True,
    help="A length of time before now (30s, 15m, 1h, 2d) or a time (2026-05-01T12:00:00Z; UTC where it has no offset).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def command(source: str, since: float, as_json: bool) -> None:
    """Say what acting would have changed for the requests that ``serve`` observed (mode: observe).

    FILE is the log named by observe.log; what was put aside of it (FILE.1, FILE.2 ...) is read too. ADMIN_URL is the
    admin port of a running proxy, such as http://127.0.0.1:9090, which remembers the last observe.keep requests.

    The times had it acted are predicted, not measured. Exit code 1 when nothing was observed.
    """
    found = _from_admin(source, since) if source.startswith(("http://", "https://")) else read_log(Path(source), since)
    report = build_report(found)
    click.echo(json.dumps(report, indent=2) if as_json else report_text(report), nl=as_json)
    if not report["requests"]:
        sys.exit(1)


def _from_admin(url: str, since: float) -> Found:
    address = f"{url.rstrip('/')}/observations?{urllib.parse.urlencode({'since': f'{since:.3f}'})}"
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # nosec B310  # the user's own URL, http or https
            return read_lines(answer.read().splitlines(), since)
    except urllib.error.HTTPError as error:
        raise AdaptiveGammaError(f"{url}: answered {error.code}; is it the admin port of adaptive-gamma?") from error
    except (OSError, ValueError) as error:
        raise AdaptiveGammaError(f"{url}: cannot be asked: {error}") from error
