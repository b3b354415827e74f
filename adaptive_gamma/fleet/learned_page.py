"""What was learned of acceptance, for the admin pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from adaptive_gamma.fleet.exposition import Family, Row

if TYPE_CHECKING:
    from adaptive_gamma.fleet import FleetLearning
    from adaptive_gamma.roofline import AcceptanceCurve
    from adaptive_gamma.routing.learn import LearnedCurve

__all__ = ["learned_families", "learned_page", "learned_rates"]

_DIGITS = 4


def learned_page(learning: FleetLearning | None) -> dict[str, Any] | None:
    """``learned`` of ``/policy``: prior and learned curve of each class under each drafter; None where that is off.

    Positions count from 0. A class without evidence has the prior as its curve and empty lists.
    """
    if learning is None:
        return None
    return {
        "drafter": learning.family,
        "rebuilds": learning.rebuilds,
        "table_from": "file" if learning.in_force is learning.file_policy else "learned",
        "drafters": {
            family: {name: _class(each) for name, each in learning.known(family).items()}
            for family in learning.families
        },
    }


def learned_rates(learning: FleetLearning | None) -> Iterator[Row | None]:
    """Samples of ``adaptive_gamma_acceptance``: learned rates of each class under the policy's drafter, as far as
    there is evidence."""
    if learning is None:
        return
    for name, each in learning.known(learning.family).items():
        for position, trials in enumerate(each.trials):
            if trials > 0:
                yield "", (name, str(position)), each.curve.conditional_at(position + 1)


def learned_families(learning: FleetLearning | None) -> Iterator[Family]:
    """Drift, tables built and the state file, on the metrics page."""
    if learning is None:
        return
    known = learning.known(learning.family)
    yield Family(
        "adaptive_gamma_acceptance_drifted",
        "gauge",
        "1 while the learned acceptance of a class lies outside of what the policy file leaves room for, else 0.",
        ("class",),
        [("", (name,), float(each.drifted)) for name, each in known.items()],
    )
    yield Family(
        "adaptive_gamma_policy_rebuilds",
        "counter",
        "Tables built from learned acceptance and put in force.",
        (),
        [("_total", (), learning.rebuilds)],
    )
    yield Family(
        "adaptive_gamma_learn_state_failures",
        "counter",
        "Reads and writes of the file of learned acceptance that failed or were refused.",
        (),
        [("_total", (), learning.state_failures)],
    )


def _class(each: LearnedCurve) -> dict[str, Any]:
    return {
        "prior": _curve(each.prior, len(each.trials)),
        "learned": _curve(each.curve, len(each.trials)),
        "interval": [[round(low, _DIGITS), round(high, _DIGITS)] for low, high in each.interval],
        "error": [round(error, _DIGITS) for error in each.error],
        "trials": [round(trials, 1) for trials in each.trials],
        "inferred": each.inferred,
        "drifted": each.drifted,
    }


def _curve(curve: AcceptanceCurve, positions: int) -> dict[str, Any]:
    positions = max(positions, len(curve.conditional))
    return {
        "conditional": [round(curve.conditional_at(i + 1), _DIGITS) for i in range(positions)],
        "plateau": round(curve.plateau, _DIGITS),
    }
