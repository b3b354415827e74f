"""Rows into cells: what the runs of one arm at one load say together, and which of them must not be believed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from adaptive_gamma.bench.file_keys import file_key
from adaptive_gamma.bench.importers.finding import Findings, ImportFinding
from adaptive_gamma.bench.row import SweepRow
from adaptive_gamma.errors import SweepError

__all__ = ["Cell", "CellKey", "Cells", "Spread", "sweep_cells"]

MOST_DISAGREEMENT = 0.25
MOST_FAILED = 0.5
"""Share of failed requests beyond which the survivors' times say nothing of the load."""
NOTED_FAILED = 0.1
SAME_LENGTH = 0.1
"""Relative difference of mean lengths below which two runs count as alike."""
MANY_RUNS = 5
"""From so many runs on, their quartiles are compared and no longer the two that differ most."""


@dataclass(frozen=True, slots=True)
class CellKey:
    """What the runs of a cell have in common. Lengths are those of the cell's first run."""

    engine: str | None
    model: str | None
    drafter: str | None
    gamma: int
    speculative: bool
    concurrency: int
    request_class: str | None
    input_tokens: float | None
    output_tokens: float | None


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the runs of a cell."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None where there are no values."""
        return cls(median(values), min(values), max(values), len(values)) if values else None


@dataclass(frozen=True, slots=True)
class Cell:
    """Runs of one arm at one load."""

    key: CellKey
    rows: tuple[SweepRow, ...]
    tpot_s: Spread
    """Of the runs' median time per output token."""
    output_tokens_per_s: Spread | None
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells to be believed, single steps that were timed directly, and what was left out and why."""

    cells: tuple[Cell, ...]
    steps: tuple[SweepRow, ...]
    findings: tuple[ImportFinding, ...]


def sweep_cells(rows: Iterable[SweepRow], *, most_disagreement: float = MOST_DISAGREEMENT) -> Cells:
    """Group rows into cells.

    Left out, each by name: rows without a gamma, a load or a time per token; rows most of whose requests failed; cells
    whose runs disagree by more than ``most_disagreement`` (of fewer than five runs the two extremes, of more the
    quartiles, over the smaller); and arms measured at other lengths than the plain arm (or, without one, the arm of
    least gamma) at the same load.

    Raises SweepError for rows of more than one engine or drafter: their step times have nothing in common.
    """
    findings = Findings()
    kept = [row for row in rows if _is_usable(row, findings)]
    engine, drafter = _only(kept, "engine"), _only([row for row in kept if row.gamma != 0], "drafter")
    kept = [replace(row, engine=engine, drafter=drafter if row.speculative else None) for row in kept]
    steps = tuple(row for row in kept if row.step is not None)
    grouped: dict[CellKey, list[SweepRow]] = defaultdict(list)
    for row in kept:
        if row.step is None:
            grouped[_key(row, grouped)].append(row)
    grouped = _at_equal_lengths(grouped, findings)
    cells = []
    for key in sorted(grouped, key=_order):
        cell = _cell(key, grouped[key], most_disagreement, findings)
        if cell is not None:
            cells.append(cell)
    return Cells(tuple(cells), steps, tuple(findings.items))


def _is_usable(row: SweepRow, findings: Findings) -> bool:
    if row.gamma is None or row.speculative is None:
        open_question = "which gamma it ran with" if row.gamma is None else "whether the engine has a drafter"
        per_sequence = None if row.step is None else row.step.tokens_per_sequence
        of_step = "" if per_sequence is None else f" (a step of {per_sequence:g} tokens a sequence)"
        findings.refused(
            row.source,
            f"not known {open_question}{of_step}; say it with --arm LABEL=plain or LABEL=GAMMA",
            "gamma" if row.gamma is None else "speculative",
        )
        return False
    if row.step is not None:
        return True
    if not (row.tpot_p50_s or row.tpot_mean_s):
        findings.refused(row.source, "no time per output token", file_key(row, "tpot_p50_s"))
        return False
    if row.concurrency_asked is None and not row.concurrency:
        findings.refused(row.source, "neither asked nor measured", file_key(row, "concurrency"))
        return False
    failed = row.failed / max(row.completed + row.failed, 1)
    if failed > MOST_FAILED:
        findings.refused(row.source, f"{failed:.0%} of the requests failed; the others' times say nothing", "failed")
        return False
    if failed > NOTED_FAILED:
        findings.note(row.source, f"{failed:.0%} of the requests failed; the run counts that much less", "failed")
    return True


def _only(rows: Sequence[SweepRow], field: str) -> str | None:
    """The one value that rows give, None where none gives any; rows that do not say are taken to be alike."""
    first: dict[str, SweepRow] = {}
    for row in rows:
        value = getattr(row, field)
        if value is not None:
            first.setdefault(value, row)
    if len(first) > 1:
        one, other = list(first.items())[:2]
        raise SweepError(
            str(other[1].source),
            field,
            f"{other[0]!r} here, {one[0]!r} in {one[1].source}: one policy is for one {field}; give one's files only",
        )
    return next(iter(first), None)


def _load(row: SweepRow) -> int:
    if row.concurrency_asked is not None:
        return row.concurrency_asked
    return max(round(row.concurrency or 1.0), 1)


def _key(row: SweepRow, grouped: Mapping[CellKey, object]) -> CellKey:
    key = CellKey(
        engine=row.engine,
        model=None,
        drafter=row.drafter,
        gamma=row.gamma or 0,
        speculative=bool(row.speculative),
        concurrency=_load(row),
        request_class=row.request_class,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
    )
    for known in grouped:
        if replace(known, input_tokens=key.input_tokens, output_tokens=key.output_tokens, model=None) == key and (
            _alike(known, key)
        ):
            return known
    return replace(key, model=row.model)


def _alike(one: CellKey, other: CellKey) -> bool:
    return all(
        a is b or (a is not None and b is not None and abs(a - b) <= SAME_LENGTH * max(a, b))
        for a, b in ((one.input_tokens, other.input_tokens), (one.output_tokens, other.output_tokens))
    )


def _order(key: CellKey) -> tuple[object, ...]:
    return (key.request_class or "", key.input_tokens or 0, key.speculative, key.gamma, key.concurrency)


def _at_equal_lengths(grouped: Mapping[CellKey, list[SweepRow]], findings: Findings) -> dict[CellKey, list[SweepRow]]:
    """The cells without those of arms that have no counterpart of equal lengths in the reference arm."""
    places: dict[tuple[str | None, int], list[CellKey]] = defaultdict(list)
    for key in grouped:
        places[key.request_class, key.concurrency].append(key)
    kept = {}
    for keys in places.values():
        arms = sorted({(key.speculative, key.gamma) for key in keys})
        reference = [key for key in keys if (key.speculative, key.gamma) == arms[0]]
        for key in keys:
            if any(_alike(key, other) for other in reference):
                kept[key] = grouped[key]
                continue
            other = reference[0]
            findings.refused(
                grouped[key][0].source,
                f"{_lengths(key)} tokens in and out at concurrency {key.concurrency}, but the {_arm(other)} arm has "
                f"{_lengths(other)} ({grouped[other][0].source}): arms are compared at equal lengths only",
                file_key(grouped[key][0], _unlike(key, other)),
            )
    return kept


def _unlike(one: CellKey, other: CellKey) -> str:
    same_output = replace(other, output_tokens=one.output_tokens)
    return "output_tokens" if _alike(one, same_output) else "input_tokens"


def _lengths(key: CellKey) -> str:
    shown = ["unknown" if value is None else f"{value:.0f}" for value in (key.input_tokens, key.output_tokens)]
    return "/".join(shown)


def _arm(key: CellKey) -> str:
    return f"gamma {key.gamma}" if key.speculative else "plain"


def _cell(key: CellKey, rows: Sequence[SweepRow], most: float, findings: Findings) -> Cell | None:
    for field, values in (
        ("tpot_p50_s", [(row.tpot_p50_s or row.tpot_mean_s or 0.0, row) for row in rows]),
        ("output_tokens_per_s", [(row.output_tokens_per_s, row) for row in rows if row.output_tokens_per_s]),
    ):
        numbers = sorted(((value, index) for index, (value, _) in enumerate(values) if value is not None))
        if len(numbers) < 2:
            continue
        figures = [value for value, _ in numbers]
        low, high = (figures[0], figures[-1]) if len(figures) < MANY_RUNS else quantiles(figures, n=4)[::2]
        if high - low > most * low:
            lowest, highest = values[numbers[0][1]], values[numbers[-1][1]]
            findings.refused(
                highest[1].source,
                f"{highest[0]:g} here, {lowest[0]:g} in {lowest[1].source}: {len(figures)} runs of one cell "
                f"({_arm(key)}, concurrency {key.concurrency}) disagree by {high / low - 1.0:.0%}, more than "
                f"{most:.0%}",
                file_key(highest[1], field if getattr(highest[1], field) is not None else "tpot_mean_s"),
            )
            return None
    times = Spread.of([row.tpot_p50_s or row.tpot_mean_s or 0.0 for row in rows])
    assert times is not None  # a cell has a row, and each row has a time
    return Cell(
        key=key,
        rows=tuple(rows),
        tpot_s=times,
        output_tokens_per_s=Spread.of([row.output_tokens_per_s for row in rows if row.output_tokens_per_s]),
        completed=sum(row.completed for row in rows),
        failed=sum(row.failed for row in rows),
    )
