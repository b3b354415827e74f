"""``adaptive-gamma plan``: how many speculative and plain replicas a trace wants, and how they should be started."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from adaptive_gamma._version import __version__
from adaptive_gamma.cli.numbers import ARRIVAL_SCALE, MILLISECONDS, TRACE_SECONDS, FiniteFloat
from adaptive_gamma.cli.policy.schedule_options import ENGINE_CHOICE, refuse_foreign, server_options
from adaptive_gamma.cli.traces import TRACE_HELP, open_trace, trace_file, trace_summary, trace_words, workload_summary
from adaptive_gamma.cli.whole_file import refuse_input, refuse_unwritable, write_whole
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.policy.export import EngineExport, Runner, ScheduleOptions, ServerOptions, export_policy
from adaptive_gamma.policy.render import range_words
from adaptive_gamma.routing import DecisionLimits, GammaSchedule
from adaptive_gamma.simulation.plan import (
    MOST_TRIALS,
    FleetTrials,
    Plan,
    ServiceLimits,
    Shape,
    StartUp,
    Traffic,
    Trial,
    plan_page,
    search,
    start_ups,
    traffic_of,
)
from adaptive_gamma.simulation.plan.words import fleet_words
from adaptive_gamma.simulation.replay import World, merge
from adaptive_gamma.simulation.replay.fleet_file import DEFAULT_MAX_NUM_SEQS

__all__ = ["command"]

_SCHEMA = "adaptive-gamma/plan/v1"
_ROWS = 12
_WIDE = 140
"""Columns of a table that is not printed to a terminal."""
_MOST_REPLICAS = 256


@click.command("plan", short_help="Say how many speculative and plain replicas a trace wants, and with which gammas.")
@click.option("--policy", "policy_file", required=True, metavar="FILE", help="Policy file.")
@click.option("--trace", "trace_specs", required=True, multiple=True, metavar="FILE[=CLASS]", help=TRACE_HELP)
@click.option("--gpus", type=click.IntRange(1), required=True, help="GPUs to be had.")
@click.option("--gpus-per-replica", type=click.IntRange(1), default=1, show_default=True, help="GPUs of one replica.")
@click.option("--slo-tpot-ms", type=MILLISECONDS, metavar="MS", help="Limit on time per output token.")
@click.option("--slo-ttft-ms", type=MILLISECONDS, metavar="MS", help="Limit on time to first token.")
@click.option(
    "--slo-percentile", type=FiniteFloat(1, 100), default=95.0, show_default=True, metavar="P",
    help="Percentile of the requests that each limit is held against.",
)  # fmt: skip
@click.option(
    "--max-num-seqs", type=click.IntRange(1, 8192), default=DEFAULT_MAX_NUM_SEQS, show_default=True,
    help="Most requests inside a replica at a time.",
)  # fmt: skip
@click.option("--scale", type=ARRIVAL_SCALE, default=1.0, show_default=True, help="Factor on the arrival rate.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Use only the first N requests.")
@click.option("--duration", type=TRACE_SECONDS, metavar="S", help="Use only the first S seconds of trace time.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 2), default=0, show_default=True, help="Same seed, same output.")
@click.option(
    "--most-fleets", type=click.IntRange(1, 100_000), default=MOST_TRIALS, show_default=True, metavar="N",
    help="Fleets to try, about; each is a dry run.",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write the fleet proposed as a fleet file for `dry-run --fleet`.")
@click.option("--for", "engine", type=ENGINE_CHOICE, help="Print this engine's start-up command for a schedule.")
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def command(
    policy_file: str,
    trace_specs: tuple[str, ...],
    gpus: int,
    gpus_per_replica: int,
    slo_tpot_ms: float | None,
    slo_ttft_ms: float | None,
    slo_percentile: float,
    max_num_seqs: int,
    scale: float,
    limit: int | None,
    duration: float | None,
    seed: int,
    most_fleets: int,
    output: str | None,
    engine: str | None,
    engine_version: str | None,
    data_parallel: int,
    runner: Runner,
    method: str | None,
    as_json: bool,
) -> None:
    """Propose a fleet for a trace: speculative and plain replicas, their gammas or start-up schedules.

    Every alternative is a dry run of the whole trace with requests routed as `serve` routes them, so `dry-run` on the
    fleet written by -o prints the same figures. The best fleet keeps within the limits and, among those, has the least
    mean latency. Says so where plain replicas are lost capacity and where speculation should be off.

    Simulated by the policy's physics: it is as good as the policy is. Exit code 1 when no fleet tried keeps within the
    limits.
    """
    if engine is not None:
        refuse_foreign(engine, runner)
    if output is not None:
        refuse_unwritable(output)
        refuse_input("--output", output, (policy_file, *map(trace_file, trace_specs)))
    replicas = gpus // gpus_per_replica
    if not 1 <= replicas <= _MOST_REPLICAS:
        raise ConfigurationError(
            "--gpus", "", f"{gpus} GPUs of {gpus_per_replica} a replica make {replicas} replicas; expected 1 to "
            f"{_MOST_REPLICAS}",
        )  # fmt: skip
    policy = load_policy(policy_file)
    traces = [open_trace(spec, policy, seed + i) for i, spec in enumerate(trace_specs)]
    workload = merge(traces, policy.classes, scale=scale, limit=limit, duration_s=duration)
    traffic = traffic_of(workload)
    ways = start_ups(policy, traffic, max_num_seqs)
    limits = ServiceLimits(
        None if slo_tpot_ms is None else slo_tpot_ms / 1e3,
        None if slo_ttft_ms is None else slo_ttft_ms / 1e3,
        slo_percentile,
    )
    every_way = [plan for way in ways for plan in way.replicas(1)]

    def world(luck: int) -> World:
        return World(workload, policy, every_way, luck, limits=DecisionLimits(slo_tpot_s=limits.tpot_s))

    console = Console(stderr=True)
    with console.status("") as status:

        def said(done: int) -> None:
            status.update(f"{done} fleets tried")

        trials = FleetTrials(world(seed), ways, limits, said)

        def other_luck(shape: Shape) -> Trial:
            return FleetTrials(world(seed + 1), ways, limits).trial(shape)

        plan = search(trials, replicas, other_luck, most_fleets)
    exported = _export(policy, plan, ways, traffic, engine, ServerOptions(
        version=engine_version, method=method, runner=runner, data_parallel=data_parallel,
    ))  # fmt: skip
    if output is not None:
        write_whole(output, yaml.safe_dump(_fleet_file(plan, ways), sort_keys=False, default_flow_style=None))
    dry_run = _dry_run(policy_file, trace_specs, scale, limit, duration, seed, slo_tpot_ms, output)
    document = {
        "schema": _SCHEMA,
        "version": __version__,
        "policy": policy.name,
        "traces": [trace_summary(trace) for trace in traces],
        "workload": workload_summary(workload, scale),
        "traffic": {"mix": traffic.mix, "context_tokens": traffic.context_tokens},
        "gpus": gpus,
        "gpus_per_replica": gpus_per_replica,
        "seed": seed,
        **plan_page(plan, limits),
        "fleet": _fleet_file(plan, ways),
        "start_up": {name: made.to_json() for name, made in exported.items()},
        "dry_run": dry_run,
    }
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        _print(document, plan, ways, exported)
    if limits.any and not plan.chosen.within:
        sys.exit(1)


def _fleet_file(plan: Plan, ways: list[StartUp]) -> dict[str, Any]:
    return {
        "replicas": [
            {"name": way.name, "gamma": _gamma(way), "count": count, "max_num_seqs": way.max_num_seqs}
            for way, count in zip(ways, plan.chosen.shape, strict=True)
            if count
        ]
    }


def _gamma(way: StartUp) -> int | list[list[int]]:
    return [list(step) for step in way.gamma.ranges] if isinstance(way.gamma, GammaSchedule) else way.gamma


def _export(
    policy: Policy, plan: Plan, ways: list[StartUp], traffic: Traffic, engine: str | None, server: ServerOptions
) -> dict[str, EngineExport]:
    """The start-up command of each schedule in the fleet proposed, for the engine asked for."""
    if engine is None:
        return {}
    return {
        way.name: export_policy(
            policy,
            engine,
            server,
            ScheduleOptions(
                mix=traffic.mix,
                context_tokens=traffic.context_tokens,
                max_batch=way.max_num_seqs,
                allow_zero=way.name.endswith("-to-0"),
            ),
        )
        for way in ways
        if way.name in plan.chosen.parts and isinstance(way.gamma, GammaSchedule)
    }


def _dry_run(
    policy_file: str,
    trace_specs: tuple[str, ...],
    scale: float,
    limit: int | None,
    duration: float | None,
    seed: int,
    slo_tpot_ms: float | None,
    output: str | None,
) -> str:
    words = ["adaptive-gamma", "dry-run", "--policy", policy_file, "--fleet", output or "FLEET_FILE"]
    for spec in trace_specs:
        words += ["--trace", spec]
    words += ["--scale", f"{scale:g}"] if scale != 1 else []
    words += ["--limit", str(limit)] if limit is not None else []
    words += ["--duration", f"{duration:g}"] if duration is not None else []
    words += ["--seed", str(seed)] if seed else []
    words += ["--slo-tpot-ms", repr(slo_tpot_ms).removesuffix(".0")] if slo_tpot_ms is not None else []
    return shlex.join([*words, "--only", "adaptive"])


def _print(document: dict[str, Any], plan: Plan, ways: list[StartUp], exported: dict[str, EngineExport]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    load = document["workload"]
    rate = load["requests_per_second"]
    mix = ", ".join(f"{name} {share:.0%}" for name, share in document["traffic"]["mix"].items())
    say(
        f"{load['requests']:,} requests" + (f", {rate:.2f} a second" if rate is not None else "")
        + f"; output tokens: {mix}; mean context {document['traffic']['context_tokens']:,.0f} tokens; "
        f"policy {document['policy']}"
    )  # fmt: skip
    for trace in document["traces"]:
        say(trace_words(trace))
    say()
    say(f"Proposed for {plan.chosen.replicas} replicas: {fleet_words(plan.chosen.parts)}")
    for way in ways:
        if way.name in plan.chosen.parts:
            say(f"  {way.name}: {_start_words(way)}")
            if way.name in exported:
                say(f"    {exported[way.name].command}")
                for note in exported[way.name].notes:
                    say(f"    {note}")
    say()
    for verdict in document["verdicts"]:
        say(f"- {verdict}")
    say()
    console.print(_table(plan, document["limits"]["percentile"]))
    if len(plan.tried) > _ROWS:
        say(f"{len(plan.tried)} fleets were tried; --json has them all.")
    say()
    say(f"The same by dry run: {document['dry_run']}")


def _start_words(way: StartUp) -> str:
    if isinstance(way.gamma, GammaSchedule):
        return f"{range_words(way.gamma.ranges)}; at most {way.max_num_seqs} sequences"
    if not way.speculative:
        return "no drafter"
    return (
        f"gamma {way.gamma} at every batch (vLLM num_speculative_tokens, SGLang speculative_num_steps, TensorRT-LLM "
        f"max_draft_len)"
    )


def _table(plan: Plan, percentile: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("fleet", no_wrap=True)
    for heading in (
        "latency\nmean s", "against\nproposed", f"TPOT\np{percentile:g} ms", f"TTFT\np{percentile:g} s",
        "within\nlimits", "tokens/s", "gamma", "spec. :\nplain",
    ):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    shown = list(plan.tried[:_ROWS])
    shown += [trial for trial in (*plan.uniform[-1:], plan.plain) if trial not in shown]
    for trial in shown:
        shares = trial.figures["share_per_pool"]
        gamma = trial.figures["mean_gamma"]
        table.add_row(
            fleet_words(trial.parts),
            f"{trial.latency_s:,.3f}",
            "-" if trial is plan.chosen else f"{100 * (trial.latency_s / plan.chosen.latency_s - 1):+.1f} %",
            "-" if trial.tpot_s is None else f"{1e3 * trial.tpot_s:,.1f}",
            f"{trial.ttft_s:,.2f}",
            f"{100 * trial.within_share:.1f} %",
            f"{trial.figures['tokens_per_second']:,.0f}" if trial.figures["tokens_per_second"] is not None else "-",
            "-" if gamma is None else f"{gamma:.2f}",
            f"{100 * shares['speculative']:.0f} : {100 * shares['plain']:.0f}",
            style="bold" if trial is plan.chosen else None,
        )
    return table
