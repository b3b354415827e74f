"""A policy for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.table import Table

from adaptive_gamma.policy.provenance import provenance_at
from adaptive_gamma.policy.schema import CellTable
from adaptive_gamma.policy.table import Policy

__all__ = ["policy_summary", "policy_tables", "range_words"]


def policy_summary(policy: Policy) -> str:
    """One line: classes, contexts, gammas, batches."""
    contexts = ", ".join(str(c) for c in policy.context_buckets)
    return (
        f"classes {', '.join(policy.classes)} (default {policy.default_class}); contexts {contexts}; "
        f"gamma {policy.min_gamma}..{policy.max_gamma}; batch 1..{policy.max_batch}"
    )


def range_words(ranges: Iterable[Sequence[int]]) -> str:
    """Ranges (first batch, last batch, gamma) as a person reads them: ``batch 1-3: gamma 4; batch 4: gamma 3``."""
    return "; ".join(f"batch {a}-{b}: gamma {g}" if a != b else f"batch {a}: gamma {g}" for a, b, g in ranges)


def policy_tables(policy: Policy, classes: Sequence[str]) -> Iterator[Table]:
    """For each class and context: speed-up over plain by batch and gamma, the best one marked."""
    for name in classes:
        for context, cell in policy.table.classes[name].items():
            yield _cell_table(policy, name, context, cell)


def _cell_table(policy: Policy, name: str, context: int, cell: CellTable) -> Table:
    wins = (
        f"at no batch up to {policy.max_batch}"
        if cell.plain_wins_from is None
        else f"from batch {cell.plain_wins_from}"
    )
    caption = f"best gamma by load: {range_words(cell.best_gamma)}\nplain wins {wins}"
    slo = policy.inputs.limits.slo_tpot_seconds
    if slo is not None and cell.within_slo is not None:
        speculative, plain = (str(last) if last else "none" for last in cell.within_slo)
        caption += f"\nwithin {slo * 1000:g} ms a token up to batch {speculative}; plain up to {plain}"
    if policy.evidence is not None:
        caption += (
            "\n= measured nearby, ? extrapolated, the others lie between measurements; all numbers are the model's"
        )
    table = Table(
        title=f"{name}, context {context}: speed-up over plain by gamma",
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
    )
    table.add_column("batch", justify="right", no_wrap=True)
    for gamma in policy.table.gammas:
        table.add_column(f"{gamma} ", justify="right", no_wrap=True)
    for batch, row in cell.speedup.items():
        best = policy.best_gamma(name, batch, context)
        cells = [
            "-" if value is None else f"{value:.3f}{_mark(policy, name, context, gamma, batch)}"
            for gamma, value in zip(policy.table.gammas, row, strict=True)
        ]
        marked = [
            f"[bold]{c}*[/bold]" if g == best else f"{c} " for g, c in zip(policy.table.gammas, cells, strict=True)
        ]
        table.add_row(str(batch), *marked)
    return table


def _mark(policy: Policy, name: str, context: int, gamma: int, batch: int) -> str:
    if policy.evidence is None:
        return ""
    marks = {"measured": "=", "interpolated": " ", "extrapolated": "?"}
    return marks[provenance_at(policy.evidence, name, context, gamma, batch)]
