"""One look for all pictures: legible on a light and on a dark page, small, and the same bytes each time."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

__all__ = ["COLOURS", "GREY", "figure", "log_batches", "name_lines", "svg"]

GREY = "#7a7a7a"
"""Of text and axes: at least 4:1 against white and against the dark page."""
COLOURS = ("#1f77b4", "#d2691e", "#2e8b57", "#b5508f", "#8a6d00")

_DECIMALS = re.compile(r"(?<![\w#])-?\d+\.\d{3,}")

_DOCTYPE = re.compile(r"<!DOCTYPE.*?>\s*", re.S)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>\s*", re.S)

_STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "adaptive-gamma",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "path.simplify": True,
}


def figure(panels: int = 1, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure with its panels side by side."""
    with matplotlib.rc_context(_STYLE):
        made = Figure(figsize=(7.2, height), layout="constrained")
        axes = made.subplots(1, panels, squeeze=False)[0]
        for each in axes:
            each.grid(True)
    return made, list(axes)


def log_batches(axes: Axes, batches: Sequence[int], label: str = "sequences running on one replica") -> None:
    """Batches on a logarithmic axis with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(batches), [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set_xlabel(label)


def name_lines(axes: Axes, **options: Any) -> None:
    """The legend."""
    with matplotlib.rc_context(_STYLE):
        axes.legend(fontsize=9, labelcolor=GREY, **options)


def svg(made: Figure, title: str) -> bytes:
    """The figure as SVG, without the date and the version of what drew it, with a title for those who cannot see it."""
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        made.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = _METADATA.sub(f"\n <title>{escape(title)}</title>\n", _DOCTYPE.sub("", buffer.getvalue()), count=1)
    return (_rounded(text) + "\n").encode()


def _rounded(text: str) -> str:
    """Coordinates to a hundredth of a point: small files, and the same on any processor."""
    return "\n".join(_DECIMALS.sub(_two_decimals, line.rstrip()) for line in text.splitlines())


def _two_decimals(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
