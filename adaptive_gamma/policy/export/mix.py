"""One engine table serves all classes of a policy: with which weights."""

from __future__ import annotations

from collections.abc import Mapping

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy.export.notes import Note
from adaptive_gamma.policy.table import CLASS_ALIASES, Policy

__all__ = ["class_mix", "meant_notes"]

_LARGEST = 1e9
"""Of a weight, so that their sum is a number too."""


def class_mix(policy: Policy, weights: Mapping[str, float] | None) -> dict[str, float]:
    """Shares of the running sequences by the policy's classes, adding up to 1.

    None is the policy's default class alone: its prior is the pooled one. ``code``, ``math`` and ``prose`` mean what
    they mean everywhere; weights of names that mean one class add up.

    Raises ConfigurationError for a class the policy lacks, for a weight that is no number of 0 to 1e9, and where
    all are 0.
    """
    if weights is None:
        return {policy.default_class: 1.0}
    mixed: dict[str, float] = {}
    for name, weight in weights.items():
        meant = name if name in policy.classes else CLASS_ALIASES.get(name, name)
        if meant not in policy.classes:
            raise ConfigurationError(
                "class mix",
                name,
                f"no such class; there are {', '.join(policy.classes)}",
                nearest(name, policy.classes),
            )
        if not 0 <= weight <= _LARGEST:
            raise ConfigurationError("class mix", name, f"expected a weight of 0 to {_LARGEST:g}, not {weight!r}")
        mixed[meant] = mixed.get(meant, 0.0) + float(weight)
    total = sum(mixed.values())
    if not total > 0:
        raise ConfigurationError("class mix", "", "expected at least one weight above 0")
    return {name: weight / total for name, weight in mixed.items() if weight > 0}


def meant_notes(policy: Policy, weights: Mapping[str, float] | None) -> list[Note]:
    """Of a mix that ``class_mix`` took: a note for each name that means a class called otherwise in the policy."""
    return [
        Note("note", "class_means", f"class {name} is priced as {CLASS_ALIASES[name]}, which it means in this policy")
        for name in weights or ()
        if name not in policy.classes
    ]
