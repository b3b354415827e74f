"""Memories as plain data, and back with nothing believed unseen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adaptive_gamma.roofline import FloatArray
from adaptive_gamma.routing.learn.counts import ClassCounts, Means, Tally
from adaptive_gamma.routing.learn.mix import MixCounts, MixSums

__all__ = ["restore_counts", "restore_mix", "snapshot_counts", "snapshot_mix"]

_MOST = 1e15
"""No count of drafts is larger."""
_ROUNDING = 1e-6


def snapshot_counts(counts: ClassCounts) -> dict[str, Any]:
    """What one class's memory holds; its parts become one."""
    total, scatter = counts.total(), counts.scatter()
    return {
        "drafts": total.drafts,
        "requests": total.requests,
        "information": total.information,
        "squared": total.squared,
        "tried": total.tried,
        "accepted": total.accepted,
        "means": {
            str(gamma): [means.drafts, means.draft_tokens, means.accepted] for gamma, means in total.means.items()
        },
        "scatter": [scatter.observed, scatter.expected],
    }


def restore_counts(data: object, most_positions: int) -> tuple[Tally, tuple[float, float]]:
    """What :meth:`ClassCounts.restore` takes. Raises ValueError for data that no snapshot can be."""
    fields = _mapping(data)
    tried, accepted = _numbers(fields, "tried"), _numbers(fields, "accepted")
    if len(tried) != len(accepted) or len(tried) > most_positions:
        raise ValueError("tried and accepted must be of one length")
    if any(a > t * (1 + _ROUNDING) + _ROUNDING for a, t in zip(accepted, tried, strict=True)):
        raise ValueError("more accepted than tried")
    means = {}
    for key, values in _mapping(fields.get("means")).items():
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and 1 <= int(key) <= most_positions):
            raise ValueError(f"{key!r} is no gamma")
        drafts, draft_tokens, took = _three(values)
        if not (drafts > 0 and took <= draft_tokens * (1 + _ROUNDING) <= drafts * int(key) * (1 + 3 * _ROUNDING)):
            raise ValueError("totals that cannot be")
        means[int(key)] = Means(drafts, draft_tokens, took)
    tally = Tally(
        tried=tried,
        accepted=[min(a, t) for a, t in zip(accepted, tried, strict=True)],
        means=means,
        drafts=_number(fields.get("drafts")),
        requests=_number(fields.get("requests")),
        information=_number(fields.get("information")),
        squared=_number(fields.get("squared")),
    )
    return tally, _ratio(fields, "scatter")


def snapshot_mix(mix: MixCounts) -> dict[str, Any]:
    """What the memory of mixed counters holds; its parts become one."""
    sums, (looks, parts) = mix.total(), mix.scatter()
    return {
        "products": sums.products.tolist(),
        "targets": sums.targets.tolist(),
        "squares": sums.squares.tolist(),
        "looks": sums.looks.tolist(),
        "weight": sums.weight.tolist(),
        "looks_scatter": [looks.observed, looks.expected],
        "parts_scatter": [parts.observed, parts.expected],
    }


def restore_mix(
    data: object, classes: int, most_positions: int
) -> tuple[MixSums, tuple[float, float], tuple[float, float]]:
    """What :meth:`MixCounts.restore` takes. Raises ValueError for data that no snapshot can be."""
    fields = _mapping(data)
    positions = len(_numbers(fields, "weight"))
    if positions > most_positions:
        raise ValueError("too many positions")
    sums = MixSums(classes, positions)
    sums.weight = _array(fields, "weight", (positions,))
    sums.looks = _array(fields, "looks", (positions,))
    sums.squares = _array(fields, "squares", (positions,))
    sums.targets = _array(fields, "targets", (positions, classes))
    sums.products = _array(fields, "products", (positions, classes, classes))
    if not np.allclose(sums.products, sums.products.transpose(0, 2, 1)):
        raise ValueError("products must be symmetric")
    if positions and np.linalg.eigvalsh(sums.products).min() < -_ROUNDING * (1.0 + sums.weight.max()):
        raise ValueError("products that no drafts can have")
    return sums, _ratio(fields, "looks_scatter"), _ratio(fields, "parts_scatter")


def _mapping(data: object) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError("expected names and values")
    return data


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ValueError(f"expected a number in 0..{_MOST:g}")
    return float(value)


def _numbers(fields: Mapping[str, Any], name: str) -> list[float]:
    values = fields.get(name)
    if not isinstance(values, list):
        raise ValueError(f"{name}: expected a list")
    return [_number(value) for value in values]


def _three(values: object) -> tuple[float, float, float]:
    if not isinstance(values, list) or len(values) != 3:
        raise ValueError("expected three numbers")
    first, second, third = (_number(value) for value in values)
    return first, second, third


def _ratio(fields: Mapping[str, Any], name: str) -> tuple[float, float]:
    """(observed, expected): the first may be negative, where requests differ by less than independent drafts would."""
    values = fields.get(name)
    if not isinstance(values, list) or len(values) != 2:
        raise ValueError(f"{name}: expected two numbers")
    observed, expected = values
    if isinstance(observed, bool) or not isinstance(observed, int | float) or not abs(observed) <= _MOST:
        raise ValueError(f"{name}: expected a number within {_MOST:g}")
    return float(observed), _number(expected)


def _array(fields: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> FloatArray:
    found = np.asarray(_flat(fields.get(name), len(shape)), dtype=np.float64)
    if found.size == 0 and math.prod(shape) == 0:
        return np.zeros(shape)
    if found.shape != shape:
        raise ValueError(f"{name}: expected numbers in the shape {shape}")
    return found


def _flat(value: object, depth: int) -> list[Any]:
    """The nested list with every number checked. Rows of different lengths make numpy raise ValueError."""
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return [_number(item) if depth == 1 else _flat(item, depth - 1) for item in value]
