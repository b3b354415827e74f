"""The command ``adaptive-gamma``. Each subcommand is a module here, imported only when it is asked for."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import sys
from collections.abc import Iterator

import click

from adaptive_gamma._version import __version__
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError, TraceError

__all__ = ["SUBCOMMANDS", "main", "root_command"]

SUBCOMMANDS = {
    "completion": ("adaptive_gamma.cli.completion", "Print what makes a shell complete this command."),
    "config": ("adaptive_gamma.cli.config", "Check a configuration; print schemas for editors."),
    "demo": ("adaptive_gamma.cli.demo", "Route real prompts between two real engines, and watch."),
    "doctor": ("adaptive_gamma.cli.doctor", "Find what silently cancels speculation."),
    "dry-run": ("adaptive_gamma.cli.dry_run", "Replay a trace through the decision, against every fixed gamma."),
    "envoy": ("adaptive_gamma.cli.envoy", "Have Envoy carry the requests: write its files, keep its weights."),
    "parity": ("adaptive_gamma.cli.parity", "Compare the greedy outputs of a plain and a speculative replica."),
    "picker": ("adaptive_gamma.cli.picker", "Pick endpoints for a gateway, over Envoy's ext_proc."),
    "plan": ("adaptive_gamma.cli.plan", "Say which replicas a trace wants, and how to start them."),
    "policy": ("adaptive_gamma.cli.policy", "Build, check, show and export policy tables."),
    "report": ("adaptive_gamma.cli.report", "Say what acting would have changed, from observed requests."),
    "roofline": ("adaptive_gamma.cli.roofline", "Print what a policy's physics says for each batch and gamma."),
    "serve": ("adaptive_gamma.cli.serve", "Run the reverse proxy in front of inference replicas."),
    "sweep": ("adaptive_gamma.cli.sweep", "Measure engines against each other at several loads."),
    "simulate-engine": ("adaptive_gamma.cli.simulate_engine", "Run a simulated vLLM server (no model, no GPU)."),
}
"""Module and one line of help, by name."""

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE})


@contextlib.contextmanager
def _no_garbage_looked_for() -> Iterator[None]:
    """What an import leaves stays for good: to look through it again and again is a tenth of the time to the start."""
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


class _Commands(click.Group):
    """Subcommands imported on use, so that ``--help`` does not load numpy or a web server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        from adaptive_gamma.cli.examples import with_examples

        with _no_garbage_looked_for():
            module = importlib.import_module(SUBCOMMANDS[cmd_name][0])
        return with_examples(cmd_name, module.command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(SUBCOMMANDS.items())])


@click.group("adaptive-gamma", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
def root_command() -> None:
    """Choose the speculation length (gamma) of LLM serving by live load and acceptance.

    `adaptive-gamma COMMAND --help` tells all of a command, with examples.

    \b
    Exit codes:
      0  done
      1  failed while running, or something was found (doctor, parity, plan, policy check, report)
      2  wrong usage, configuration, policy or trace; nothing was done
    """


def main() -> None:
    """Entry point: run a subcommand and map errors to exit codes."""
    try:
        try:
            root_command(prog_name="adaptive-gamma")
        finally:
            # Here and not at the interpreter's end, where a full disk would be told in a traceback and exit code 120.
            _flush()
    except AdaptiveGammaError as error:
        from adaptive_gamma.cli.log_lines import harmless

        click.echo(harmless(f"adaptive-gamma: {error}"), err=True)
        sys.exit(2 if isinstance(error, ConfigurationError | TraceError) else 1)
    except OSError as error:
        # Files that cannot be opened are named by the errors above; what fails without a name is a write.
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        _give_up_standard_output()
        if error.errno != errno.EPIPE:
            click.echo(f"adaptive-gamma: standard output cannot be written: {error.strerror}", err=True)
        sys.exit(1)


def _flush() -> None:
    if sys.stdout is not None:  # None where it was closed before the start
        sys.stdout.flush()


def _give_up_standard_output() -> None:
    """What is still buffered goes nowhere, lest the interpreter's own flush at the end fails once more."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
