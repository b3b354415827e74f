"""What takes more than one key to judge: inputs that fit together, and a table that follows from them."""

from __future__ import annotations

from itertools import pairwise

from adaptive_gamma.errors import PolicyError, nearest
from adaptive_gamma.policy.build import SPEEDUP_DIGITS, Grid, listed_batches
from adaptive_gamma.policy.schema import CellTable, PolicyDocument, PolicyInputs

__all__ = ["check_inputs", "check_table"]

_ROUNDING = 0.5 * 10.0**-SPEEDUP_DIGITS * (1.0 + 1e-6)
_REBUILD = "rebuild the table with `adaptive-gamma policy build --inputs FILE`"


def check_inputs(inputs: PolicyInputs, source: str) -> None:
    """Raises PolicyError where two inputs contradict each other."""
    limits = inputs.limits
    if limits.min_gamma > limits.max_gamma:
        raise PolicyError(
            source,
            "inputs.limits.min_gamma",
            f"expected at most max_gamma ({limits.max_gamma}), not {limits.min_gamma}",
        )
    for smaller, larger in pairwise(limits.context_buckets):
        if larger <= smaller:
            raise PolicyError(
                source, "inputs.limits.context_buckets", f"expected rising contexts, but {larger} follows {smaller}"
            )
    if inputs.default_class not in inputs.classes:
        raise PolicyError(
            source,
            "inputs.default_class",
            f"expected one of {', '.join(inputs.classes)}, not {inputs.default_class!r}",
            nearest(inputs.default_class, inputs.classes),
        )


def check_table(document: PolicyDocument, grid: Grid, source: str) -> None:
    """Raises PolicyError at the first cell that contradicts the limits, or differs from what the inputs give."""
    table = document.table
    _same_keys(list(table.gammas), list(grid.gammas), source, "table.gammas")
    _same_keys(list(table.classes), list(grid.curves), source, "table.classes")
    built = grid.table()
    for name, contexts in table.classes.items():
        _same_keys(list(contexts), list(grid.contexts), source, f"table.classes.{name}")
        for context, cell in contexts.items():
            key = f"table.classes.{name}.{context}"
            _check_ranges(cell.best_gamma, document.inputs, source, f"{key}.best_gamma")
            _check_cell(cell, built.classes[name][context], grid, (name, context), source, key)


def _check_ranges(ranges: list[list[int]], inputs: PolicyInputs, source: str, key: str) -> None:
    limits = inputs.limits
    expected_start = 1
    for i, entry in enumerate(ranges):
        at = f"{key}[{i}]"
        if len(entry) != 3:
            raise PolicyError(source, at, f"expected [first batch, last batch, gamma], not {entry}")
        first, last, gamma = entry
        if first != expected_start:
            if i == 0:
                raise PolicyError(source, at, f"expected the first range to start at batch 1, not {first}")
            what = (
                "overlaps the range before it" if first < expected_start else "leaves a gap after the range before it"
            )
            raise PolicyError(source, at, f"starts at batch {first} and {what}; expected {expected_start}")
        if last < first:
            raise PolicyError(source, at, f"ends at batch {last}, before it starts at {first}")
        if gamma > limits.max_gamma or gamma < 0:
            raise PolicyError(source, at, f"gamma {gamma} is outside 0..max_gamma ({limits.max_gamma})")
        if gamma > 0 and limits.capture_limit_tokens is not None:
            tokens = last * (gamma + 1)
            if tokens > limits.capture_limit_tokens:
                raise PolicyError(
                    source,
                    at,
                    f"gamma {gamma} at batch {last} is {tokens} tokens, beyond the capture limit of "
                    f"{limits.capture_limit_tokens} (gamma <= limit / batch - 1)",
                )
        expected_start = last + 1
    if expected_start != limits.max_batch + 1:
        raise PolicyError(source, key, f"ends at batch {expected_start - 1}; expected max_batch ({limits.max_batch})")


def _check_cell(stored: CellTable, built: CellTable, grid: Grid, cell: tuple[str, int], source: str, key: str) -> None:
    for i, (found, wanted) in enumerate(zip(stored.best_gamma, built.best_gamma, strict=False)):
        if found != wanted:
            raise PolicyError(source, f"{key}.best_gamma[{i}]", f"is {found}, but the inputs give {wanted}; {_REBUILD}")
    if len(stored.best_gamma) != len(built.best_gamma):
        raise PolicyError(
            source,
            f"{key}.best_gamma",
            f"has {len(stored.best_gamma)} ranges, but the inputs give {len(built.best_gamma)}; {_REBUILD}",
        )
    if stored.plain_wins_from != built.plain_wins_from:
        raise PolicyError(
            source,
            f"{key}.plain_wins_from",
            f"is {_shown(stored.plain_wins_from)}, but the inputs give {_shown(built.plain_wins_from)}; {_REBUILD}",
        )
    if stored.within_slo != built.within_slo:
        raise PolicyError(
            source, f"{key}.within_slo", f"is {stored.within_slo}, but the inputs give {built.within_slo}; {_REBUILD}"
        )
    _same_keys(list(stored.speedup), listed_batches(grid.best.shape[2]), source, f"{key}.speedup")
    exact = grid.speedup[list(grid.curves).index(cell[0]), grid.contexts.index(cell[1])]
    for batch, row in stored.speedup.items():
        if len(row) != len(grid.gammas):
            raise PolicyError(
                source,
                f"{key}.speedup.{batch}",
                f"has {len(row)} values; expected one for each of {len(grid.gammas)} gammas",
            )
        for g, (gamma, value) in enumerate(zip(grid.gammas, row, strict=True)):
            wanted_value = built.speedup[batch][g]
            same = (
                value is wanted_value
                if value is None or wanted_value is None
                else abs(value - float(exact[g, batch - 1])) <= _ROUNDING
            )
            if not same:
                raise PolicyError(
                    source,
                    f"{key}.speedup.{batch}[{g}]",
                    f"is {_shown(value)} (gamma {gamma}), but the inputs give {_shown(wanted_value)}; {_REBUILD}",
                )


def _same_keys(found: list[int] | list[str], expected: list[int] | list[str], source: str, key: str) -> None:
    for entry in found:
        if entry not in expected:
            listing = ", ".join(str(e) for e in expected)
            raise PolicyError(
                source, key, f"{entry!r} is not among {listing}", nearest(str(entry), [str(e) for e in expected])
            )
    for entry in expected:
        if entry not in found:
            raise PolicyError(source, key, f"{entry!r} is missing; {_REBUILD}")


def _shown(value: float | None) -> str:
    if value is None:
        return "null"
    return str(value) if isinstance(value, int) else f"{value:g}"
