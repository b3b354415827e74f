"""The command line, from click's own objects."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import TypeGuard

import click

from adaptive_gamma.cli import root_command
from documentation.reference.markdown import code, page, prose, table

__all__ = ["command_line_page", "commands"]


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its whole name, groups before what is in them."""
    yield from _walk("adaptive-gamma", root_command)


def _walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _walk(f"{name} {each}", found)


def command_line_page() -> str:
    """The page."""
    parts = ["What `--help` says, command by command."]
    for name, command in commands():
        parts += _command(name, command)
    return page("Command line", *parts)


def _command(name: str, command: click.Command) -> Iterator[str]:
    yield f"## {name}"
    context = click.Context(command, info_name=name)
    yield f"```text\n{name} {' '.join(command.collect_usage_pieces(context))}\n```"
    if command.help:
        yield from _help(command.help)
    options = [each for each in command.get_params(context) if _is_told(each)]
    if options:
        yield table(("option", "value", "default", "meaning"), [_option(each, context) for each in options])
    if isinstance(command, click.Group):
        rows = []
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            if inner is not None and not inner.hidden:
                anchor = f"{name} {each}".replace(" ", "-")
                rows.append((f"[`{each}`](#{anchor})", prose(inner.get_short_help_str(200))))
        yield table(("command", ""), rows)


def _is_told(parameter: click.Parameter) -> TypeGuard[click.Option]:
    return isinstance(parameter, click.Option) and not parameter.hidden and "--help" not in parameter.opts


def _help(text: str) -> Iterator[str]:
    """Paragraphs; those that click leaves as they are (after a line of one backspace) are blocks of text."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph[1:].strip(chr(10))}\n```"
        else:
            yield prose(paragraph)


def _option(option: click.Option, context: click.Context) -> tuple[str, str, str, str]:
    names = ", ".join(code(each) for each in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag or option.count else code(option.make_metavar(context))
    extra = option.get_help_extra(context)
    default = code(extra["default"]) if "default" in extra else ""
    if option.required:
        default = "required"
    words = [prose(option.help or "")]
    if option.multiple and "epeatable" not in words[0]:
        words.append("May be given several times.")
    if "range" in extra:
        words.append(f"Range: {code(extra['range'])}.")
    return names, value, default, " ".join(filter(None, words))
