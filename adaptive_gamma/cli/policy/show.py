"""``adaptive-gamma policy show``: print a policy's table."""

from __future__ import annotations

import json

import click

from adaptive_gamma.cli.whole_file import refuse_input, write_whole
from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy import CLASS_ALIASES, load_policy
from adaptive_gamma.policy.render import policy_summary, policy_tables

__all__ = ["show_command"]


@click.command("show")
@click.argument("policy_file", metavar="POLICY")
@click.option("--class", "request_class", metavar="NAME", help="Only this class.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    help="Write the policy as a page with plots, which needs nothing but a browser.",
)
@click.option(
    "--plot",
    "plot_file",
    metavar="FILE",
    help="Draw speed-up against batch, with measured points and crossings: FILE.png or FILE.svg; needs the extra plot.",
)
def show_command(
    policy_file: str, request_class: str | None, as_json: bool, plot_file: str | None, html_file: str | None
) -> None:
    """Print a policy's table: best gamma by load, and what each gamma gains over plain decoding."""
    refuse_input("--plot", plot_file, [policy_file])
    refuse_input("--html", html_file, [policy_file])
    policy = load_policy(policy_file)
    classes = policy.classes
    if request_class is not None:
        known = CLASS_ALIASES.get(request_class, request_class)
        if request_class not in policy.classes and known not in policy.classes:
            raise ConfigurationError(
                "--class",
                "",
                f"no class {request_class!r}; there are {', '.join(policy.classes)}",
                nearest(request_class, policy.classes),
            )
        classes = (policy.class_for(request_class),)
        if request_class not in policy.classes:
            click.echo(f"note: class {request_class} means {classes[0]} in this policy", err=True)
    if plot_file is not None:
        from adaptive_gamma.cli.policy.plot import plot_policy

        plot_policy(policy, classes, plot_file)
        click.echo(f"{plot_file}: drawn", err=as_json)
    if html_file is not None:
        from adaptive_gamma.cli.policy.picture import policy_document
        from adaptive_gamma.page import report_page

        page = report_page(f"{policy.name}: policy", "policy_report.js", policy_document(policy, classes))
        write_whole(html_file, page)
        click.echo(f"{html_file}: written", err=as_json)
    if as_json:
        stored = policy.table.model_dump()
        stored["classes"] = {c: stored["classes"][c] for c in classes}
        click.echo(json.dumps({"name": policy.name, "default_class": policy.default_class, **stored}, indent=2))
        return
    from rich.console import Console

    console = Console()
    console.print(f"{policy.name}: {policy_summary(policy)}", highlight=False, soft_wrap=True)
    for table in policy_tables(policy, classes):
        console.print(table)
