"""Every option of every command that takes a number with a fraction."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from adaptive_gamma.cli import root_command
from adaptive_gamma.cli.numbers import FiniteFloat


def _options(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _options(found, f"{path} {name}")
    else:
        yield from ((f"{path} {one.opts[0]}", one) for one in command.params)


FLOATS = {name: one for name, one in _options(root_command, "adaptive-gamma") if "float" in one.type.name}


def test_all_have_the_type_that_knows_a_number() -> None:
    assert len(FLOATS) >= 10
    assert [name for name, one in FLOATS.items() if not isinstance(one.type, FiniteFloat)] == []


@pytest.mark.parametrize("name", FLOATS)
def test_each_has_both_ends_of_its_range(name: str) -> None:
    """A time divided by the smallest number that a float holds is none any more."""
    kind = FLOATS[name].type
    assert isinstance(kind, FiniteFloat)
    assert kind.min is not None
    assert kind.max is not None
    for value in ("1e308", "1.7e308", "-1e308"):
        with pytest.raises(click.BadParameter, match="is not in the range"):
            kind.convert(value, FLOATS[name], None)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "NaN"])
def test_what_is_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a finite number"):
        FLOATS[name].type.convert(value, FLOATS[name], None)


def test_ranges_still_hold() -> None:
    assert FiniteFloat(0, 2).convert("1.5", None, None) == 1.5
    with pytest.raises(click.BadParameter, match="not in the range 0<=x<=2"):
        FiniteFloat(0, 2).convert("2.5", None, None)
