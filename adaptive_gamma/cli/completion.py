"""``adaptive-gamma completion``: what makes a shell complete our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["command"]

_PROGRAM = "adaptive-gamma"
_VARIABLE = "_ADAPTIVE_GAMMA_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what makes SHELL complete this command.

    \b
    Examples:
      adaptive-gamma completion bash > ~/.local/share/bash-completion/completions/adaptive-gamma
      adaptive-gamma completion zsh  > "${fpath[1]}/_adaptive-gamma"
      adaptive-gamma completion fish > ~/.config/fish/completions/adaptive-gamma.fish
    """
    shape = get_completion_class(shell)
    assert shape is not None
    root = click.get_current_context().find_root().command
    click.echo(shape(root, {}, _PROGRAM, _VARIABLE).source())
