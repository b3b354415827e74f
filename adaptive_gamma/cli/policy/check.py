"""``adaptive-gamma policy check``: prove a policy's table and lint it."""

from __future__ import annotations

import click

from adaptive_gamma.policy import lint_policy, load_policy
from adaptive_gamma.policy.render import policy_summary

__all__ = ["check_command"]


@click.command("check")
@click.argument("policy_file", metavar="POLICY")
@click.option("--median-load", type=click.IntRange(1), help="Usual sequences on a replica; edges on it are reported.")
@click.option("--strict", is_flag=True, help="Remarks fail the check as well.")
def check_command(policy_file: str, median_load: int | None, strict: bool) -> None:
    """Prove that a policy's table follows from its inputs, and remark on what is legal but odd."""
    policy = load_policy(policy_file)
    findings = lint_policy(policy, median_load)
    click.echo(f"ok: the table follows from the inputs ({policy_summary(policy)})")
    for finding in findings:
        click.echo(f"note: {finding}")
    if strict and findings:
        raise click.exceptions.Exit(1)
