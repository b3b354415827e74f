"""Options that ``policy export`` and ``policy check --engine-table`` share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy.export import ENGINES
from adaptive_gamma.yaml_text import parse_yaml

__all__ = ["read_engine_table", "read_mix", "refuse_foreign", "server_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_MOST_BYTES = 1 << 20

ENGINE_CHOICE = click.Choice(list(ENGINES))


def server_options(command: _Command) -> _Command:
    """How the server is started."""
    for decorate in (
        click.option("--method", metavar="NAME", help="The engine's drafting method; default: the policy's drafter."),
        click.option(
            "--runner",
            type=click.Choice(["auto", "v1", "v2"]),
            default="auto",
            show_default=True,
            help="vLLM's model runner; auto is the default of the version.",
        ),
        click.option(
            "--data-parallel", type=click.IntRange(1), default=1, show_default=True, help="Ranks of the server."
        ),
        click.option("--engine-version", metavar="VERSION", help="Such as 0.33; vLLM's is needed for an export."),
    ):
        command = decorate(command)
    return command


def refuse_foreign(engine: str, runner: str) -> None:
    """Raises click.UsageError for an option that another engine than the chosen one has."""
    if runner != "auto" and engine != "vllm":
        raise click.UsageError(f"--runner goes with --for vllm; {engine} has no model runners to choose from")


def read_mix(text: str | None) -> dict[str, float] | None:
    """``chat``, or ``structured=0.6,chat=0.4``; None stays None. Raises ConfigurationError for anything else."""
    if text is None:
        return None
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        try:
            value = float(weight) if equals else 1.0
        except ValueError:
            value = float("nan")
        if not name or value != value or name in found or (not equals and "," in text):
            raise ConfigurationError(
                "--class-mix", "", f"expected a class, or weights such as structured=0.6,chat=0.4, not {text!r}"
            )
        found[name] = value
    return found


def read_engine_table(text: str) -> Any:
    """A table as it stands on the command line, or from a JSON or YAML file.

    Raises ConfigurationError where there is no such file, or no JSON or YAML in it.
    """
    source = "--engine-table"
    written = text.lstrip()
    if not written.startswith(("[", "{")):
        path = Path(text)
        source = str(path)
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ConfigurationError(source, "", f"is larger than {_MOST_BYTES} bytes; not a schedule")
            written = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(source, "", f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(source, "", "is not UTF-8 text") from error
    try:
        return json.loads(written)
    except ValueError:
        pass
    except RecursionError as error:
        raise ConfigurationError(source, "", "is nested too deeply") from error
    return parse_yaml(written, source)
