"""``adaptive-gamma policy export``: a policy as an engine's own start-up schedule."""

from __future__ import annotations

import json

import click

from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.policy.options import given_flags
from adaptive_gamma.cli.policy.schedule_options import ENGINE_CHOICE, read_mix, refuse_foreign, server_options
from adaptive_gamma.cli.whole_file import refuse_input, write_whole
from adaptive_gamma.policy import load_policy
from adaptive_gamma.policy.export import EngineExport, Runner, ScheduleOptions, ServerOptions, export_policy

__all__ = ["export_command"]


@click.command("export")
@click.argument("policy_file", metavar="POLICY")
@click.option("--for", "engine", type=ENGINE_CHOICE, required=True, help="The engine.")
@server_options
@click.option("--model", metavar="MODEL", help="Stands in the command line.")
@click.option("--draft-model", metavar="MODEL", help="Stands in the command line.")
@click.option(
    "--class-mix",
    metavar="CLASS|WEIGHTS",
    help="One table serves all: a class, or shares of running sequences, structured=0.6,chat=0.4. "
    "Default: the policy's default class.",
)
@click.option("--context", type=click.IntRange(1), help="Usual context in tokens. Default: the policy's middle bucket.")
@click.option("--median-load", type=FiniteFloat(1, 65536), help="Usual running sequences: no edge is placed there.")
@click.option("--steps", type=click.IntRange(1, 64), default=4, show_default=True, help="Ranges at most.")
@click.option(
    "--tolerance",
    type=FiniteFloat(0, 0.5),
    default=0.005,
    show_default=True,
    help="Mean predicted loss up to which ranges are merged.",
)
@click.option("--allow-zero", is_flag=True, help="Let gamma be 0. A plain replica serves such load faster.")
@click.option(
    "--zero-margin",
    type=FiniteFloat(0, 0.99),
    default=0.05,
    show_default=True,
    help="Share by which gamma 0 must win.",
)
@click.option("--max-gamma", type=click.IntRange(1, 64), help="The drafter's longest draft, if below the policy's.")
@click.option("--max-num-seqs", type=click.IntRange(1, 65536), help="Default: the policy's max_batch.")
@click.option("--capture-limit", type=click.IntRange(1), help="Most captured tokens. Default: the policy's.")
@click.option("--no-capture-limit", is_flag=True, help="The engine has no such limit.")
@click.option("--by-class", is_flag=True, help="SGLang: one candidate a class in each slot; the engine chooses.")
@click.option("-o", "--output", metavar="FILE", help="Write the engine's file (or its option's JSON) here.")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
@click.pass_context
def export_command(
    context_: click.Context,
    policy_file: str,
    engine: str,
    engine_version: str | None,
    data_parallel: int,
    runner: Runner,
    method: str | None,
    model: str | None,
    draft_model: str | None,
    class_mix: str | None,
    context: int | None,
    median_load: float | None,
    steps: int,
    tolerance: float,
    allow_zero: bool,
    zero_margin: float,
    max_gamma: int | None,
    max_num_seqs: int | None,
    capture_limit: int | None,
    no_capture_limit: bool,
    by_class: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Write a policy as the start-up schedule that an engine itself validates.

    The best gamma at each batch is merged into few ranges where that costs least; what it costs is printed. Every gamma
    keeps batch x (gamma + 1) within the capture limit. Gamma stays at 1 or more unless --allow-zero.
    """
    if no_capture_limit and capture_limit is not None:
        raise click.UsageError("--no-capture-limit goes without --capture-limit")
    if by_class and engine != "sglang":
        raise click.UsageError(f"--by-class goes with --for sglang; {engine} takes one gamma a range")
    if not allow_zero and "zero_margin" in given_flags(context_):
        raise click.UsageError("--zero-margin goes with --allow-zero: without it gamma is never 0")
    refuse_foreign(engine, runner)
    refuse_input("--output", output, [policy_file])
    made = export_policy(
        load_policy(policy_file),
        engine,
        ServerOptions(
            version=engine_version,
            method=method,
            runner=runner,
            data_parallel=data_parallel,
            model=model,
            draft_model=draft_model,
            file=output,
            candidates_by_class=by_class,
        ),
        ScheduleOptions(
            mix=read_mix(class_mix),
            context_tokens=context,
            median_load=median_load,
            max_steps=steps,
            tolerance=tolerance,
            allow_zero=allow_zero,
            zero_margin=zero_margin,
            max_batch=max_num_seqs,
            max_gamma=max_gamma,
            capture_limit_tokens=capture_limit,
            no_capture_limit=no_capture_limit,
        ),
    )
    if output is not None:
        write_whole(output, made.config_text + "\n")
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=2))
        return
    _print(made)


def _ranges(free: int, merged: int) -> str:
    if free == merged:
        return "1 range" if merged == 1 else f"{merged} ranges, none merged"
    return f"{free} ranges merged into {merged}"


def _print(made: EngineExport) -> None:
    schedule = made.schedule
    mix = ", ".join(f"{name} {share:.0%}" for name, share in schedule.mix.items())
    engine = f"{made.engine} {made.version}" if made.version else made.engine
    click.echo(
        f"# {made.policy} for {engine}; classes {mix}; context {schedule.context}; batch 1..{schedule.max_batch}"
    )
    click.echo(f"# {made.table_key}:")
    click.echo(json.dumps(made.table))
    click.echo(f"# {made.file}:" if made.file else "# the option it stands in:")
    click.echo(made.config_text)
    click.echo("# start:")
    click.echo(made.command)
    merging, static = schedule.merging, schedule.static
    click.echo(
        f"# {_ranges(len(schedule.free_steps), len(schedule.steps))}: predicted loss {merging.mean:.2%} on "
        f"average, {merging.worst:.2%} at batch {merging.worst_batch}; the best single gamma ({schedule.static_gamma}) "
        f"loses {static.mean:.2%}"
    )
    worst = max(schedule.cells, key=lambda cell: cell.loss.mean)
    click.echo(
        f"# one table for all: {worst.request_class} at context {worst.context} loses most, {worst.loss.mean:.2%} on "
        f"average against a table of its own"
    )
    for note in made.notes:
        click.echo(str(note), err=True)
