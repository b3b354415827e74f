"""When a table is to follow what was learned, and with which curves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn.learned import LearnedCurve

__all__ = ["TableChange", "table_change"]

_OFF_BY = 0.03
"""Relative error of the expected tokens in force from which another table is worth while."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """Another table than the one in force is due."""

    curves: Mapping[str, AcceptanceCurve] | None
    """What was learned of every class that anything is known of; None: the table of the policy file serves again."""
    drifted: frozenset[str]
    """The classes whose acceptance has left what the file believes."""


def table_change(
    learned: Mapping[str, LearnedCurve], in_force: Mapping[str, AcceptanceCurve], drifted: frozenset[str]
) -> TableChange | None:
    """Whether another table is due; None while the one in force will do.

    It is when other classes have drifted than the one in force was made for, and when a drifted class has moved on: the
    tokens of a step expected of it are off by 3 % and by twice the error of what was learned.

    Args:
        learned: what is known of each class now.
        in_force: the curves behind the table in force.
        drifted: the classes that had drifted when that was made.
    """
    now = frozenset(name for name, each in learned.items() if each.drifted)
    if now == drifted and not any(_off(learned[name], in_force[name]) for name in now):
        return None
    if not now:
        return TableChange(None, now)
    return TableChange({name: each.curve for name, each in learned.items() if any(each.trials)}, now)


def _off(learned: LearnedCurve, in_force: AcceptanceCurve) -> bool:
    gamma = len(learned.trials)
    expected = learned.curve.expected_tokens(gamma)
    error = abs(in_force.expected_tokens(gamma) - expected)
    return error > max(_OFF_BY * expected, 2.0 * learned.tokens_error)
