"""The help pages: every command has one with examples, and the examples are commands that there are."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from adaptive_gamma.cli import SUBCOMMANDS, root_command
from adaptive_gamma.cli.examples import EXAMPLES

WITHOUT = {"completion", "config", "config check", "config schema"}
"""They show theirs in their own words."""


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def page(command: click.Command, name: str) -> str:
    return command.get_help(click.Context(command, info_name=name))


def test_every_command_has_examples() -> None:
    names = {name for name, _ in commands(root_command)}
    assert set(EXAMPLES) <= names
    for name, command in commands(root_command):
        text = page(command, name)
        if name not in WITHOUT:
            assert "Examples:" in text, name
        # Text that was indented in the source and is no list starts in the help's own column.
        assert "\n      SIG" not in text
        assert "adaptive-gamma" in text or name in WITHOUT, name


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_a_command_with_options_it_has(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "adaptive-gamma"
    command: click.Command = root_command
    context = click.Context(root_command)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    # Parses and converts every option; nothing is run.
    command.make_context(line, words)
    assert len(line) <= 110


def test_asking_twice_shows_the_examples_once() -> None:
    for _ in range(2):
        command = root_command.get_command(click.Context(root_command), "serve")
        assert command is not None
        assert page(command, "serve").count("Examples:") == 1


def test_the_overview_names_every_command_and_the_exit_codes() -> None:
    text = root_command.get_help(click.Context(root_command, info_name="adaptive-gamma"))
    assert all(f"\n  {name} " in text for name in SUBCOMMANDS)
    assert "Exit codes:" in text
