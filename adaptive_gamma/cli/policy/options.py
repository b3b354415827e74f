"""What the options of the policy commands name: numbers, accelerators, models, drafter families."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy import DrafterFamily, family_named, hardware_named, library, model_named
from adaptive_gamma.roofline import Hardware, ModelShape

__all__ = ["family_option", "given_flags", "hardware_option", "model_option", "whole_numbers"]


def given_flags(context: click.Context) -> dict[str, str]:
    """The options that were really given: name of the parameter to flag, in the order of the help."""
    return {
        one.name: max(one.opts, key=len)
        for one in context.command.params
        if one.name is not None
        and isinstance(one, click.Option)
        and context.get_parameter_source(one.name) is not click.core.ParameterSource.DEFAULT
    }


def whole_numbers(text: str, option: str, most: int = 100_000_000) -> list[int]:
    """Comma-separated whole numbers in 1..most. Raises ConfigurationError that names the option."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 9 and 1 <= int(part) <= most for part in parts):
        raise ConfigurationError(option, "", f"expected whole numbers in 1..{most} between commas, not {text!r}")
    return [int(part) for part in parts]


def hardware_option(name: str) -> Hardware:
    """The accelerator that ``--gpu`` names. Raises ConfigurationError with the nearest name."""
    found = hardware_named(name)
    if found is None:
        names = list(library().accelerators)
        raise ConfigurationError(
            "--gpu", "", f"no accelerator {name!r}; there are {', '.join(names)}", _nearest_folded(name, names)
        )
    return found


def model_option(name: str, *, experts: bool = False) -> ModelShape:
    """The model that ``--model`` names: a config.json, its folder, or a known name. Raises ConfigurationError.

    A mixture of experts is refused unless ``experts``: nothing but measurements gives its step time.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(str(path), "", f"cannot be read as JSON: {error}") from error
        if not isinstance(config, dict):
            raise ConfigurationError(str(path), "", "expected a JSON object, as in a Hugging Face config.json")
        try:
            shape = ModelShape.from_hf_config(config)
        except ValueError as error:
            raise ConfigurationError(str(path), "", str(error)) from error
    else:
        known = model_named(name)
        if known is None:
            names = list(library().models)
            raise ConfigurationError(
                "--model",
                "",
                f"no file {name!r} and no known model; known are {', '.join(names)}",
                _nearest_folded(name, names),
            )
        shape = known
    if shape.mixture_of_experts and not experts:
        raise ConfigurationError(
            "--model",
            "",
            f"{shape.name} is a mixture of experts; build from a sweep (--from), or write a moe step_time by hand",
        )
    return shape


def family_option(name: str) -> DrafterFamily:
    """The drafter family that ``--drafter`` names. Raises ConfigurationError with the nearest name."""
    found = family_named(name)
    if found is None:
        families = list(library().drafters)
        raise ConfigurationError(
            "--drafter",
            "",
            f"no drafter family {name!r}; there are {', '.join(families)}",
            _nearest_folded(name, families),
        )
    return found


def _nearest_folded(word: str, choices: Iterable[str]) -> str | None:
    by_lower = {c.lower(): c for c in choices}
    found = nearest(word.lower(), by_lower)
    return by_lower[found] if found is not None else None
