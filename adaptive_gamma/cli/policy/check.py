"""``adaptive-gamma policy check``: prove a policy's table and lint it, or lint the table of an engine."""

from __future__ import annotations

import json

import click

from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.policy.options import given_flags
from adaptive_gamma.cli.policy.schedule_options import (
    ENGINE_CHOICE,
    read_engine_table,
    read_mix,
    refuse_foreign,
    server_options,
)
from adaptive_gamma.policy import Finding, lint_policy, load_policy
from adaptive_gamma.policy.export import Runner, ServerOptions, TableOptions, TableReport, check_engine_table
from adaptive_gamma.policy.render import policy_summary, range_words

__all__ = ["check_command"]


@click.command("check")
@click.argument("policy_file", metavar="POLICY", required=False)
@click.option(
    "--median-load", type=FiniteFloat(1, 65536), help="Usual sequences on a replica; edges on it are reported."
)
@click.option("--strict", is_flag=True, help="Remarks fail the check as well.")
@click.option(
    "--engine-table", metavar="FILE|JSON", help="Check an engine's own schedule; a POLICY then judges its cost."
)
@click.option("--for", "engine", type=ENGINE_CHOICE, help="The engine whose table it is.")
@server_options
@click.option("--max-num-seqs", type=click.IntRange(1, 65536), help="Largest number of running sequences.")
@click.option("--max-gamma", type=click.IntRange(1, 1024), help="The engine's maximum (num_speculative_tokens).")
@click.option("--capture-limit", type=click.IntRange(1), help="Most captured tokens. Default: the policy's.")
@click.option("--class-mix", metavar="CLASS|WEIGHTS", help="As in an export.")
@click.option("--json", "as_json", is_flag=True, help="What was found as JSON.")
@click.pass_context
def check_command(
    context_: click.Context,
    policy_file: str | None,
    median_load: float | None,
    strict: bool,
    engine_table: str | None,
    engine: str | None,
    engine_version: str | None,
    data_parallel: int,
    runner: Runner,
    method: str | None,
    max_num_seqs: int | None,
    max_gamma: int | None,
    capture_limit: int | None,
    class_mix: str | None,
    as_json: bool,
) -> None:
    """Prove that a policy's table follows from its inputs, and remark on what is legal but odd.

    With --engine-table and --for: lint a schedule written for an engine, with or without a policy.
    """
    if engine_table is None:
        if policy_file is None:
            raise click.UsageError("give a POLICY, or --engine-table with --for")
        foreign = [
            flag for name, flag in given_flags(context_).items() if name not in ("median_load", "strict", "as_json")
        ]
        if foreign:
            verb = "goes" if len(foreign) == 1 else "go"
            raise click.UsageError(f"{', '.join(foreign)} {verb} with --engine-table; a policy has limits of its own")
        _check_policy(policy_file, median_load, strict, as_json)
        return
    if engine is None:
        raise click.UsageError("--engine-table goes with --for")
    refuse_foreign(engine, runner)
    if class_mix is not None and policy_file is None:
        raise click.UsageError("--class-mix goes with a POLICY: without one nothing is priced")
    report = check_engine_table(
        engine,
        read_engine_table(engine_table),
        TableOptions(
            server=ServerOptions(version=engine_version, method=method, runner=runner, data_parallel=data_parallel),
            max_batch=max_num_seqs,
            max_gamma=max_gamma,
            capture_limit_tokens=capture_limit,
            median_load=median_load,
            mix=read_mix(class_mix),
        ),
        load_policy(policy_file) if policy_file is not None else None,
    )
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    if report.refused or (strict and any(note.severity == "warning" for note in report.notes)):
        raise click.exceptions.Exit(1)


def _check_policy(policy_file: str, median_load: float | None, strict: bool, as_json: bool) -> None:
    policy = load_policy(policy_file)
    findings = list(lint_policy(policy, median_load))
    if median_load is not None and median_load > policy.max_batch:
        findings.append(
            Finding(
                "inputs.limits.max_batch",
                f"the median load {median_load:g} lies beyond {policy.max_batch}, "
                "the last batch of the table: no edge can stand on it",
            )
        )
    if as_json:
        found = [{"key": finding.key, "message": finding.message} for finding in findings]
        click.echo(json.dumps({"policy": policy.name, "follows_from_inputs": True, "findings": found}, indent=2))
    else:
        click.echo(f"ok: the table follows from the inputs ({policy_summary(policy)})")
        for finding in findings:
            click.echo(f"note: {finding}")
    if strict and findings:
        raise click.exceptions.Exit(1)


def _print(report: TableReport) -> None:
    if report.steps:
        ranges = range_words((step.first, step.last, step.gamma) for step in report.steps)
        click.echo(f"{report.engine} makes of it, up to batch {report.max_batch}: {ranges}")
    else:
        click.echo(f"{report.engine} rejects it")
    for cell in report.cells:
        click.echo(
            f"loss: {cell.request_class}, context {cell.context}: {cell.loss.mean:.2%} on average, "
            f"{cell.loss.worst:.2%} at batch {cell.loss.worst_batch}"
        )
    if report.mix_loss is not None:
        name, loss = report.mix_loss.request_class, report.mix_loss.loss
        click.echo(f"loss: {name}: {loss.mean:.2%} on average, {loss.worst:.2%} at batch {loss.worst_batch}")
    for note in report.notes:
        click.echo(str(note))
