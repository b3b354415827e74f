"""``adaptive-gamma dry-run``: replay a trace through the decision, before any traffic is trusted to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from adaptive_gamma._version import __version__
from adaptive_gamma.cli.dry_run_html import Plots, report_of
from adaptive_gamma.cli.numbers import ARRIVAL_SCALE, MILLISECONDS, TRACE_SECONDS, FiniteFloat
from adaptive_gamma.cli.traces import (
    TRACE_HELP,
    class_named,
    open_trace,
    trace_file,
    trace_summary,
    trace_words,
    workload_summary,
)
from adaptive_gamma.cli.whole_file import refuse_input, refuse_unwritable, write_whole
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import DecisionLimits
from adaptive_gamma.simulation.replay import (
    FIGURES,
    MEANINGS,
    SCHEMA,
    PolicyRun,
    ReplayPolicy,
    RoutingPolicy,
    ScrapeRule,
    World,
    default_fleet,
    merge,
    policy_figures,
    read_fleet,
    replay,
    routing_policies,
    select,
    with_regret,
)
from adaptive_gamma.simulation.replay.fleet_file import LARGEST_GAMMA, ReplicaPlan
from adaptive_gamma.simulation.replay.report import policy_table, reason_table
from adaptive_gamma.simulation.replay.run import DEFAULT_PREFILL_BUDGET

__all__ = ["command"]

_CONTEXTS = ("batch", "none")
_WIDE = 140
"""Columns of a table that is not printed to a terminal."""


def _definitions() -> str:
    lines = [f"  {name}: {meaning}." for name, meaning in MEANINGS.items()]
    return "\b\nPolicies (all with the same number of replicas):\n" + "\n".join(_wrapped(lines))


def _wrapped(lines: Sequence[str], width: int = 76) -> Iterator[str]:
    for line in lines:
        row = ""
        for word in line.split():
            if row and len(row) + len(word) + 3 > width:
                yield f"  {row}"
                row = f"  {word}"
            else:
                row = f"{row} {word}" if row else word
        yield f"  {row}"


@click.command(
    "dry-run",
    epilog=_definitions(),
    short_help="Replay a trace through the decision, against every fixed gamma.",
)
@click.option("--policy", "policy_file", required=True, metavar="FILE", help="Policy file.")
@click.option(
    "--fleet",
    "fleet_file",
    metavar="FILE",
    help="Fleet file (YAML): `replicas: [{name, gamma, count, max_num_seqs}]`; gamma 0 is a plain replica, a list"
    " [[first, last, gamma], ...] a schedule by batch. Without one: two speculative replicas with the policy's largest"
    " best gamma, and a plain one.",
)
@click.option(
    "--trace",
    "trace_specs",
    required=True,
    multiple=True,
    metavar="FILE[=CLASS]",
    help=TRACE_HELP,
)
@click.option("--scale", type=ARRIVAL_SCALE, default=1.0, show_default=True, help="Factor on the arrival rate.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of a table.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Same seed, same output.")
@click.option("--only", metavar="NAMES", help="Policies to run, with commas; regret needs oracle among them.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Replay only the first N requests.")
@click.option("--duration", type=TRACE_SECONDS, metavar="S", help="Replay only the first S seconds of trace time.")
@click.option(
    "--context",
    type=click.Choice(_CONTEXTS),
    default="batch",
    show_default=True,
    help="Price steps at the mean context of their batch, or (none) at the policy's own.",
)
@click.option(
    "--true-acceptance",
    "truths",
    multiple=True,
    metavar="CLASS=FIRST,PLATEAU",
    help="What acceptance of the class really is: conditional, at the first position and at those after it. The"
    " decision does not know it. Default: as the policy says.",
)
@click.option("--no-learning", is_flag=True, help="Do not feed acceptance seen at scrapes back to the decision.")
@click.option(
    "--scrape-interval", type=FiniteFloat(0.001, 86_400), default=1.0, show_default=True, metavar="S",
    help="Simulated seconds between two looks at the engines' gauges.",
)  # fmt: skip
@click.option(
    "--prefill-budget", type=click.IntRange(1, 1_048_576), default=DEFAULT_PREFILL_BUDGET, show_default=True,
    metavar="TOKENS", help="Most prompt tokens in an engine step.",
)  # fmt: skip
@click.option("--slo-tpot-ms", type=MILLISECONDS, metavar="MS", help="The decision's limit on time per output token.")
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    help="Write a report with plots, too: a page that needs nothing but a browser.",
)
@click.option(
    "--no-what-if", is_flag=True, help="Leave other sizes of the pools out of that report; each of them is a run more."
)
def command(
    policy_file: str,
    fleet_file: str | None,
    trace_specs: tuple[str, ...],
    scale: float,
    as_json: bool,
    seed: int,
    only: str | None,
    limit: int | None,
    duration: float | None,
    context: str,
    truths: tuple[str, ...],
    no_learning: bool,
    scrape_interval: float,
    prefill_budget: int,
    slo_tpot_ms: float | None,
    html_file: str | None,
    no_what_if: bool,
) -> None:
    """Replay arrivals through the proxy's own decision, engine step by engine step, against every fixed gamma, plain
    replicas, least-loaded routing, round robin and an oracle.

    Engines batch continuously and read prompts in chunks; steps last what the policy's physics says, and acceptance is
    drawn from each class's curve, the same luck for a request under every policy. regret_vs_oracle is the relative
    excess of mean latency over the oracle's. The oracle mixes all classes on each replica: a fleet that keeps them
    apart can come out slightly better.
    """
    if html_file is not None:
        refuse_unwritable(html_file)
        refuse_input("--html", html_file, (policy_file, fleet_file, *map(trace_file, trace_specs)))
    slo_tpot_s = None if slo_tpot_ms is None else slo_tpot_ms / 1e3
    policy = load_policy(policy_file)
    plans = default_fleet(policy) if fleet_file is None else read_fleet(fleet_file)
    registry = routing_policies(policy.max_gamma)
    chosen = select([name.strip() for name in only.split(",") if name.strip()] if only else [], registry)
    true_acceptance = dict(_truth(spec, policy) for spec in truths)
    traces = [open_trace(spec, policy, seed + i) for i, spec in enumerate(trace_specs)]
    workload = merge(traces, policy.classes, scale=scale, limit=limit, duration_s=duration)
    world = World(
        workload,
        policy,
        plans,
        seed,
        {name: _survival(*pair) for name, pair in true_acceptance.items()},
        context == "batch",
        ScrapeRule(scrape_interval, max(ScrapeRule().stale_after_s, 3.0 * scrape_interval), learn=not no_learning),
        DecisionLimits(slo_tpot_s=slo_tpot_s),
        prefill_budget,
    )
    plots = None if html_file is None else Plots(world, chosen)
    runs = _run_all(world, chosen, plots)
    figures = with_regret({run.name: policy_figures(run, workload) for run in runs})
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "policy": {"name": policy.name, "classes": list(policy.classes), "max_gamma": policy.max_gamma},
        "fleet": [plan.as_dict() for plan in plans],
        "traces": [trace_summary(classed) for classed in traces],
        "workload": workload_summary(workload, scale),
        "settings": {
            "seed": seed,
            "limit": limit,
            "duration_s": duration,
            "context": context,
            "true_acceptance": {name: list(pair) for name, pair in sorted(true_acceptance.items())},
            "learning": not no_learning,
            "scrape_interval_s": scrape_interval,
            "prefill_budget_tokens": prefill_budget,
            "slo_tpot_s": slo_tpot_s,
        },
        "meaning": {"policies": {run.name: run.meaning for run in runs}, "figures": FIGURES},
        "policies": figures,
    }
    if html_file is not None and plots is not None:
        with _progress() as progress:
            report = report_of(document, plots, policy, None if no_what_if else progress)
        write_whole(html_file, report)
        click.echo(f"{html_file}: written", err=True)
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        _print(document, plans)


def _truth(spec: str, policy: ReplayPolicy) -> tuple[str, tuple[float, float]]:
    source = f"--true-acceptance {spec}"
    name, equals, rates = spec.partition("=")
    parts = rates.split(",")
    if not equals or len(parts) != 2:
        raise ConfigurationError(source, "", "expected CLASS=FIRST,PLATEAU, such as structured=0.84,0.83")
    values = []
    for key, text in zip(("first", "plateau"), parts, strict=True):
        try:
            value = float(text)
        except ValueError as error:
            raise ConfigurationError(source, key, f"expected a number, found {text!r}") from error
        if not 0.0 <= value <= 1.0:
            raise ConfigurationError(source, key, f"{value} is not within 0..1")
        values.append(value)
    return class_named(name, policy, source), (values[0], values[1])


def _survival(first: float, plateau: float) -> list[float]:
    return [first * plateau**i for i in range(LARGEST_GAMMA)]


def _run_all(world: World, chosen: Sequence[RoutingPolicy], plots: Plots | None) -> list[PolicyRun]:
    requests = len(world.workload)
    with _progress() as progress:
        overall = progress.add_task("policies", total=len(chosen))
        runs = []
        for routing in chosen:
            task = progress.add_task(routing.name, total=requests)

            def advance(done: int, task: Any = task) -> None:
                progress.update(task, completed=done)

            runs.append(replay(world, routing, advance, None if plots is None else plots.timeline(routing.name)))
            if plots is not None:
                plots.ran(runs[-1])
            progress.remove_task(task)
            progress.advance(overall)
    return runs


@contextmanager
def _progress() -> Iterator[Progress]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress


def _print(document: dict[str, Any], plans: Sequence[ReplicaPlan]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    load, figures = document["workload"], document["policies"]
    rate = load["requests_per_second"]
    console.print(
        f"{load['requests']:,} requests, {load['output_tokens']:,} output and {load['prompt_tokens']:,} prompt tokens"
        + (f", {rate:.2f} requests/s" if rate is not None else "")
        + f" (scale {load['scale']:g}); policy {document['policy']['name']}, seed {document['settings']['seed']}",
        markup=False,
        highlight=False,
    )
    for trace in document["traces"]:
        console.print(trace_words(trace), markup=False, highlight=False, soft_wrap=True)
    for name, (first, plateau) in document["settings"]["true_acceptance"].items():
        console.print(f"class {name} is accepted at {first:g}, then {plateau:g}", markup=False, highlight=False)
    console.print("fleet: " + ", ".join(_plan_text(plan) for plan in plans), markup=False, highlight=False)
    console.print()
    console.print(policy_table(figures))
    if "adaptive" in figures:
        console.print()
        console.print(reason_table(figures, ["adaptive"]))


def _plan_text(plan: ReplicaPlan) -> str:
    gamma = plan.as_dict()["gamma"]
    return f"{plan.name} (gamma {gamma})" if plan.speculative else f"{plan.name} (plain)"
