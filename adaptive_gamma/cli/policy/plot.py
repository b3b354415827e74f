"""A policy as a picture: speed-up over plain against batch, one line a gamma, with what was measured.

The only module that imports matplotlib, the extra ``plot``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import Evidence, Policy, provenance_at
from adaptive_gamma.policy.provenance import NEAR_CONTEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Crossing", "MeasuredSpeedup", "crossings", "measured_speedups", "plot_policy"]

FORMATS = (".png", ".svg")
PANEL = (6.0, 3.9)
MOST_PANELS = 24
_LABEL_WIDTH = 0.03
"""Share of a panel's width that an upright label takes."""
MOST_POINTS = 256
"""Batches a line is drawn through, evenly on the logarithmic axis: finer than a picture shows."""


@dataclass(frozen=True, slots=True)
class MeasuredSpeedup:
    """Tokens/s of an arm over those of the plain arm at the same load; low and high from the runs' extremes."""

    gamma: int
    batch: float
    speedup: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Crossing:
    """The first batch at which another gamma is best, or, with gamma None, from which plain wins."""

    batch: int
    gamma: int | None
    speedup: float


def measured_speedups(evidence: Evidence, request_class: str, context: int) -> list[MeasuredSpeedup]:
    """What the points of a class say near a context: each arm against the plain arm at the load asked for."""
    arms = evidence.points.get(request_class, {})
    plain = {point[0]: point for point in arms.get("plain", []) if _near(point[2], context)}
    found = []
    for arm, points in arms.items():
        if not isinstance(arm, int):
            continue
        for load, batch, seen, seconds, low, high, _ in points:
            reference = plain.get(load)
            if reference is not None and _near(seen, context):
                middle, fastest, slowest = reference[3:6]
                found.append(MeasuredSpeedup(arm, batch, middle / seconds, fastest / high, slowest / low))
    return sorted(found, key=lambda one: (one.gamma, one.batch))


def crossings(policy: Policy, request_class: str, context: int) -> list[Crossing]:
    """Where the best gamma changes, and where plain begins to win."""
    cell = policy.table.classes[request_class][context]
    found = [
        Crossing(first, gamma, policy.speedup(request_class, first, gamma, context))
        for first, _, gamma in cell.best_gamma[1:]
    ]
    if cell.plain_wins_from is not None:
        found.append(Crossing(cell.plain_wins_from, None, 1.0))
    return found


def plot_policy(policy: Policy, classes: Sequence[str], file: str) -> None:
    """Draw to a PNG or SVG file.

    Raises ConfigurationError for another ending, for a file that cannot be written, and where matplotlib is missing.
    """
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        raise ConfigurationError("--plot", "", f"expected a name ending in {' or '.join(FORMATS)}, not {file!r}")
    try:
        # Figure and not pyplot: no window, no global state, no display needed.
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigurationError(
            "--plot",
            "",
            "needs matplotlib, the extra plot: pip install 'adaptive-gamma[plot]'; --html FILE draws the same and "
            "needs nothing more",
        ) from error
    panels = [(name, context) for name in classes for context in policy.context_buckets]
    if len(panels) > MOST_PANELS:
        raise ConfigurationError(
            "--plot", "", f"{len(panels)} classes x contexts do not fit in a picture; choose one with --class"
        )
    columns = len(policy.context_buckets)
    rows = len(classes)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for index, (name, context) in enumerate(panels):
        _panel(axes[index // columns][index % columns], policy, name, context)
    figure.suptitle(policy.name)
    try:
        # Without a date and chance names inside, the same policy gives the same file.
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        with rc_context({"svg.hashsalt": policy.name}):
            figure.savefig(path, dpi=150, metadata=metadata)
    except OSError as error:
        raise ConfigurationError(file, "", f"cannot be written: {error.strerror or error}") from error


def _panel(axes: Axes, policy: Policy, name: str, context: int) -> None:
    from matplotlib import colormaps

    gammas = [gamma for gamma in policy.table.gammas if gamma > 0]
    colours = {gamma: colormaps["viridis"](i / max(len(gammas) - 1, 1) * 0.92) for i, gamma in enumerate(gammas)}
    batches = np.unique(np.geomspace(1, policy.max_batch, MOST_POINTS).round().astype(int))
    for gamma in gammas:
        _line(axes, policy, name, context, gamma, batches, colours[gamma])
    if policy.evidence is not None:
        _points(axes, measured_speedups(policy.evidence, name, context), colours)
    axes.axhline(1.0, color="black", linewidth=0.8)
    labels: dict[int, str] = {}
    for crossing in crossings(policy, name, context):
        if crossing.gamma is None:
            axes.plot(crossing.batch, 1.0, marker="X", color="crimson", markersize=8, zorder=5)
        else:
            axes.plot(crossing.batch, crossing.speedup, marker="D", color="black", markersize=4, zorder=5)
        word = "plain" if crossing.gamma is None else str(crossing.gamma)
        labels[crossing.batch] = f"{labels[crossing.batch]}, {word}" if crossing.batch in labels else word
    _crossing_labels(axes, labels, policy.max_batch)
    slo, cell = policy.inputs.limits.slo_tpot_seconds, policy.table.classes[name][context]
    if slo is not None and cell.within_slo is not None and 0 < cell.within_slo[0] < policy.max_batch:
        axes.axvline(cell.within_slo[0], color="grey", linestyle="-.", linewidth=0.9)
        at = (cell.within_slo[0], axes.get_ylim()[0])
        axes.annotate(f" {slo * 1000:g} ms a token", at, rotation=90, fontsize=7, va="bottom", ha="right")
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.9, policy.max_batch * 1.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title(f"{name}, context {context}", fontsize=10)
    axes.set_xlabel("sequences in the batch")
    axes.set_ylabel("tokens/s over plain")
    axes.grid(alpha=0.25)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.2 * (high - low))
    if gammas:
        _legend(axes, measured=policy.evidence is not None)


def _crossing_labels(axes: Axes, labels: dict[int, str], max_batch: int) -> None:
    """Upright at the top of the panel, above the lines, each at its batch or just right of its neighbour."""
    last = 0.0
    for batch, word in sorted(labels.items()):
        axes.axvline(batch, color="grey", linestyle=":", linewidth=0.7, zorder=1)
        last = max(float(batch), last * (1.2 * max_batch) ** _LABEL_WIDTH)
        axes.annotate(
            f"{word} from {batch}", (last, 0.99), xycoords=axes.get_xaxis_transform(), rotation=90, fontsize=7,
            va="top", ha="right", zorder=6,
        )  # fmt: skip


def _legend(axes: Axes, *, measured: bool) -> None:
    """Beside the panel, where it lies over no data; what dots and dashes mean stands below the gammas."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if measured:
        handles += [
            Line2D([], [], color="grey", marker="o", markeredgecolor="black", markersize=4.5, linestyle="none"),
            Line2D([], [], color="grey", linewidth=1.0, linestyle="--"),
        ]
        labels += ["measured", "extrapolated"]
    axes.legend(
        handles, labels, title="gamma", fontsize=7, title_fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.3, frameon=False,
    )  # fmt: skip


def _line(axes: Axes, policy: Policy, name: str, context: int, gamma: int, batches: Any, colour: Any) -> None:
    """Whole where it lies within what was measured (or nothing was), dashed where it is extrapolated."""
    limit = policy.inputs.limits.capture_limit_tokens
    allowed = np.ones(batches.size, dtype=bool) if limit is None else batches * (gamma + 1) <= limit
    values = np.asarray([policy.speedup(name, int(batch), gamma, context) for batch in batches])
    known = np.ones(batches.size, dtype=bool)
    if policy.evidence is not None:
        evidence = policy.evidence
        known = np.asarray(
            [provenance_at(evidence, name, context, gamma, int(batch)) != "extrapolated" for batch in batches]
        )
    # The first extrapolated batch closes the gap between the two parts of a line.
    joined = known | np.concatenate(([False], known[:-1])) | np.concatenate((known[1:], [False]))
    axes.plot(batches, np.where(allowed & joined, values, np.nan), color=colour, linewidth=1.4, label=str(gamma))
    axes.plot(batches, np.where(allowed & ~known, values, np.nan), color=colour, linewidth=1.0, linestyle="--")


def _points(axes: Axes, measured: Sequence[MeasuredSpeedup], colours: dict[int, Any]) -> None:
    for gamma in sorted({one.gamma for one in measured}):
        seen = [one for one in measured if one.gamma == gamma]
        error = [[one.speedup - one.low for one in seen], [one.high - one.speedup for one in seen]]
        axes.errorbar(
            [one.batch for one in seen],
            [one.speedup for one in seen],
            yerr=error,
            fmt="o",
            color=colours.get(gamma, "grey"),
            markeredgecolor="black",
            markersize=4.5,
            elinewidth=0.8,
            capsize=2,
            zorder=4,
            label="_measured" if gamma in colours else f"{gamma}, measured",
        )


def _near(measured: float, context: int) -> bool:
    return measured == 0 or measured / NEAR_CONTEXT <= context <= measured * NEAR_CONTEXT
