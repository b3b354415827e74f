"""``adaptive-gamma sweep``: measure engines against each other, so that a policy can be built from what they did."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import uvloop
from pydantic import SecretStr
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from adaptive_gamma.bench import SweepRow
from adaptive_gamma.bench.sweep import (
    BUILTIN,
    CLAIM_REPEATS,
    JOURNAL_FILES,
    ArmSpec,
    Journal,
    Sweep,
    SweepSettings,
    open_dataset,
    summarize,
    summary_lines,
    summary_tables,
)
from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.until_signal import until_signal
from adaptive_gamma.cli.whole_file import refuse_input
from adaptive_gamma.config.values import engine_url
from adaptive_gamma.engines import DIALECTS, LARGEST_GAMMA
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError

__all__ = ["api_key_from", "arm_specs", "command"]

API_KEY_VARIABLE = "ADAPTIVE_GAMMA_ENGINE_API_KEY"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_OPEN = 4096
_OTHER_FILES = 64
"""Files open besides the connections of a load."""
_WIDE = 160
"""Columns of a table that is not printed to a terminal."""


def _loads(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    loads = []
    for part in value.split(","):
        text = part.strip()
        if not text.isdecimal() or not 1 <= int(text) <= _MOST_OPEN:
            raise click.BadParameter(f"{text!r} is not a number of requests between 1 and {_MOST_OPEN}")
        loads.append(int(text))
    if len(set(loads)) < len(loads):
        raise click.BadParameter("a load is named twice")
    return tuple(loads)


@click.command(
    "sweep",
    short_help="Measure engines against each other at several loads.",
    epilog=f"""\b
The folder given by --output holds
  rows.jsonl     a row for every finished run; what `policy build --from` reads
  details.jsonl  failures by reason, latencies in full, what the counters add
  plan.json      what is measured, and what each engine reported of itself
  summary.json   what --json prints
Run the same command again to go on where it stopped; more --repeats or other
--concurrency may be asked for. The key for the engines is read from
{API_KEY_VARIABLE}, or from the variable named by --api-key-env.

\b
Exit codes: 0 done, 1 an engine failed, 2 wrong usage, or arms that do not
compare, 130 and 143 ended by SIGINT and SIGTERM.""",
)
@click.option(
    "--url", "urls", multiple=True, required=True, metavar="[NAME=]URL",
    help="An engine; once for each arm. Without a name it is called by what it reports.",
)  # fmt: skip
@click.option(
    "--concurrency", callback=_loads, default="1,8,32,64", show_default=True, help="Requests kept open at a time."
)
@click.option(
    "--dataset", default=BUILTIN, show_default=True, metavar="FILE|builtin",
    help='Prompts: our own of code and prose, or JSON lines {"prompt": ...} or {"messages": [...]}, with "class".',
)  # fmt: skip
@click.option("--class", "classes", multiple=True, metavar="NAME", help="Only prompts of this class. Repeatable.")
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("sweep-results"),
    show_default=True, metavar="FOLDER", help="Where results are kept.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1, 10_000), default=CLAIM_REPEATS, show_default=True, help="Of each cell."
)
@click.option(
    "--allow-few-repeats", is_flag=True, help=f"Take fewer than {CLAIM_REPEATS} repeats, which support no claim."
)
@click.option(
    "--output-tokens", type=click.IntRange(2, 131_072), default=128, show_default=True, help="Length of each answer."
)
@click.option(
    "--waves", type=click.IntRange(1, 1000), default=2, show_default=True,
    help="Requests of a run, as a multiple of the load.",
)  # fmt: skip
@click.option(
    "--min-requests", type=click.IntRange(1, 100_000), default=8, show_default=True, help="Of a run, at least."
)
@click.option(
    "--gamma", "gammas", multiple=True, metavar="N|auto",
    help="What the arm's gamma is held to be, in the order of --url; the sweep stops where the engine reports another.",
)  # fmt: skip
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(["auto", *sorted(DIALECTS)]),
    help="One for all, or one for each --url. Default: found out.",
)  # fmt: skip
@click.option(
    "--model", "models", multiple=True, help="One for all, or one for each --url. Default: the only one served."
)
@click.option("--model-name", help="Name to record for the model of all arms, where they list it under different ones.")
@click.option("--endpoint", type=click.Choice(["chat", "completions"]), default="chat", show_default=True)
@click.option("--temperature", type=FiniteFloat(0, 2), default=0.0, show_default=True)
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seeds prompts and sampling."
)
@click.option(
    "--timeout", "timeout_s", type=FiniteFloat(0, 1e6, min_open=True, max_open=True), default=120.0,
    show_default=True, metavar="S", help="For each request.",
)  # fmt: skip
@click.option("--api-key-env", metavar="VARIABLE", help="Environment variable that holds the engines' key.")
@click.option(
    "--verbatim",
    is_flag=True,
    help="Send prompts as they are, without a first line of their own: prefix caches answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of tables.")
def command(**options: Any) -> None:
    """Send the same prompts to each engine in turn, at each load, over and over, and say which was faster.

    Arms take turns within each repeat, every arm is warmed with the same requests, answers have one length, and what
    counts as an engine's gamma, drafter and version is what it reports. Acceptance is what its counters gained during
    a run. Failures and time-outs are counted, never left out.
    """
    if options["repeats"] < CLAIM_REPEATS and not options["allow_few_repeats"]:
        raise click.UsageError(
            f"{options['repeats']} repeats support no claim (that takes {CLAIM_REPEATS}); add --allow-few-repeats to "
            "measure all the same"
        )
    for name in JOURNAL_FILES:
        refuse_input("--output", options["output"] / name, [options["dataset"]])
    prompts = open_dataset(options["dataset"], options["endpoint"]).only(options["classes"])
    settings = SweepSettings(
        arms=arm_specs("sweep", options["urls"], options["engines"], options["models"], options["gammas"]),
        concurrency=options["concurrency"],
        prompts=prompts,
        repeats=options["repeats"],
        output_tokens=options["output_tokens"],
        waves=options["waves"],
        least_requests=options["min_requests"],
        endpoint=options["endpoint"],
        temperature=options["temperature"],
        seed=options["seed"],
        timeout_s=options["timeout_s"],
        verbatim=options["verbatim"],
        model_name=options["model_name"],
    )
    api_key = api_key_from("sweep", options["api_key_env"])
    _allow_connections(max(settings.concurrency))
    failure: AdaptiveGammaError | None = None
    ended_by: int | None = None
    with Journal(options["output"]) as journal:
        before = len(journal.rows)
        with _Display() as display, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sweep = Sweep(settings, journal, display, clock=time.perf_counter, api_key=api_key)
            try:
                ended_by = runner.run(until_signal(sweep.run()))
            except AdaptiveGammaError as error:
                failure = error
        if failure is None or len(journal.rows) > before:
            _tell(settings, journal, as_json=options["as_json"])
        if ended_by is not None or failure is not None:
            click.echo(_saved(settings, journal, before), err=True)
    if failure is not None:
        raise failure
    if ended_by is not None:
        sys.exit(128 + ended_by)


def arm_specs(
    command: str, urls: Sequence[str], engines: Sequence[str], models: Sequence[str], gammas: Sequence[str] = ()
) -> tuple[ArmSpec, ...]:
    """The arms that options name; ``command`` is whose options they are. Raises ConfigurationError."""
    named = [_name_and_url(command, text) for text in urls]
    for what, values in (("url", [url for _, url in named]), ("name", [name for name, _ in named if name])):
        doubled = next((value for place, value in enumerate(values) if value in values[:place]), None)
        if doubled is not None:
            raise ConfigurationError(command, "--url", f"the {what} {doubled!r} is given twice")
    count = len(named)
    given = zip(
        named,
        _for_each(command, "--gamma", gammas, count, shared=False),
        _for_each(command, "--engine", engines, count),
        _for_each(command, "--model", models, count),
        strict=True,
    )
    return tuple(
        ArmSpec(url, name, None if engine == "auto" else engine, model, _gamma(gamma))
        for (name, url), gamma, engine, model in given
    )


def _name_and_url(command: str, text: str) -> tuple[str | None, str]:
    name, equals, rest = text.partition("=")
    named = bool(equals) and "/" not in name
    url = (rest if named else text).rstrip("/").removesuffix("/v1")
    source = f"--url {text}"
    if named and not _NAME.fullmatch(name):
        raise ConfigurationError(command, "--url", f"{name!r} is no name (letters, digits, '.', '_' and '-')")
    if "@" in url:
        raise ConfigurationError(command, "--url", "credentials do not belong in the url; use --api-key-env")
    try:
        return name if named else None, engine_url(url)
    except ValueError as error:
        raise ConfigurationError(source, "", str(error)) from error


def _for_each(command: str, option: str, values: Sequence[str], count: int, *, shared: bool = True) -> list[str | None]:
    """One value for each arm."""
    if not values:
        return [None] * count
    if shared and len(values) == 1:
        return [values[0]] * count
    if len(values) != count:
        one = "once, or " if shared else ""
        raise ConfigurationError(
            command, option, f"give it {one}once for each of the {count} --url, not {len(values)} times"
        )
    return list(values)


def _gamma(text: str | None) -> int | None:
    if text is None or text == "auto":
        return None
    if not text.isdecimal() or int(text) > LARGEST_GAMMA:
        raise ConfigurationError("sweep", "--gamma", f"{text!r} is neither auto nor a number 0..{LARGEST_GAMMA}")
    return int(text)


def api_key_from(command: str, variable: str | None) -> SecretStr | None:
    """The engines' key, from the variable named or our own. Raises ConfigurationError."""
    value = os.environ.get(variable or API_KEY_VARIABLE, "")
    if variable is not None and not value:
        raise ConfigurationError(command, "--api-key-env", f"the environment has no {variable!r}, or it is empty")
    if not value:
        return None
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise ConfigurationError(command, variable or API_KEY_VARIABLE, "holds what no header can carry")
    return SecretStr(value)


def _allow_connections(count: int) -> None:
    """Raise the process's own limit of open files where the load needs it."""
    needed = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigurationError(
            "sweep", "--concurrency", f"{count} connections need {needed} open files, and the system allows {hard}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class _Display:
    """The progress of a sweep on standard error: a bar on a terminal, else a line for each run."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(
            *columns,
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._total = self._done = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def planned(self, total: int, finished: int) -> None:
        self._total, self._done = total, finished
        if finished:
            self.remark(f"{finished} of {total} runs are on disk already")
        self._task = self._progress.add_task("", total=total, completed=finished)

    def stage(self, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=text)

    def ran(self, row: SweepRow) -> None:
        self._done += 1
        if self._task is not None:
            self._progress.advance(self._task)
        if not self._console.is_terminal:
            speed = "no answer" if row.output_tokens_per_s is None else f"{row.output_tokens_per_s:.1f} tok/s"
            failed = f", {row.failed} failed" if row.failed else ""
            self.remark(
                f"[{self._done}/{self._total}] {row.request_class}, {row.concurrency_asked} at a time, {row.arm}: "
                f"{speed}{failed}"
            )

    def remark(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def _summary(settings: SweepSettings, journal: Journal) -> dict[str, Any] | None:
    if journal.plan is None:
        return None
    runs = list(settings.schedule())
    return summarize(
        journal.plan, journal.rows, journal.details, planned_runs=len(runs), finished_runs=len(journal.rows)
    )


def _tell(settings: SweepSettings, journal: Journal, *, as_json: bool) -> None:
    """Write the summary into the folder and print it."""
    summary = _summary(settings, journal)
    if summary is None:
        return
    journal.write_document("summary.json", summary)
    if as_json:
        click.echo(json.dumps(summary, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=_WIDE, highlight=False)
    for table in summary_tables(summary):
        console.print(table)
    for line in summary_lines(summary):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"rows: {journal.rows_file}", markup=False, soft_wrap=True)


def _saved(settings: SweepSettings, journal: Journal, before: int) -> str:
    total, saved = sum(1 for _ in settings.schedule()), len(journal.rows)
    return (
        f"stopped: {saved} of {total} runs are saved in {journal.folder} ({saved - before} of them now); run the same "
        "command again to go on"
    )
