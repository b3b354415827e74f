"""``adaptive-gamma policy``: build, show, check and export policy files."""

from __future__ import annotations

import click

from adaptive_gamma.cli.policy.build import build_command
from adaptive_gamma.cli.policy.check import check_command
from adaptive_gamma.cli.policy.export import export_command
from adaptive_gamma.cli.policy.options import whole_numbers
from adaptive_gamma.cli.policy.show import show_command

__all__ = ["command", "whole_numbers"]


@click.group("policy", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Build, check, show and export policy tables.

    A POLICY is a file, or the name of one that ships with the package, such as article-h100-27b.
    """


for _subcommand in (build_command, show_command, check_command, export_command):
    command.add_command(_subcommand)
