"""Takes the contestants through the measurements, in turns."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from .contestants import DIRECT, Contestant
from .data_path import GROUPS, Bench, Sample, Windows
from .load_tools import LoadTools
from .processes import BenchmarkError
from .table import Samples

__all__ = ["run_groups"]


def run_groups(
    tools: LoadTools,
    entrants: Sequence[Contestant],
    groups: Sequence[str],
    windows: Windows,
    repetitions: int,
    tell: Callable[[str], None],
) -> Samples:
    """Measure each group of each contestant, ``repetitions`` times.

    Contestants take turns within a group, so that a ratio compares what ran within a minute; only one is alive at a
    time, and each has fresh processes, the mock engine's included. One that fails leaves NaN and its reason.
    """
    samples: dict[tuple[str, str], list[list[Sample]]] = defaultdict(list)
    began = time.monotonic()
    for repetition in range(repetitions):
        for name in groups:
            for entrant in entrants:
                if entrant.label == DIRECT and not GROUPS[name].direct:
                    continue
                tell(f"{time.monotonic() - began:4.0f} s  {repetition + 1}/{repetitions} {name} {entrant.label}")
                samples[name, entrant.label].append(_once(tools, entrant, name, windows, tell))
    return samples


def _once(
    tools: LoadTools,
    entrant: Contestant,
    name: str,
    windows: Windows,
    tell: Callable[[str], None],
) -> list[Sample]:
    group = GROUPS[name]
    try:
        with tools.mock_engine() as engine, entrant.start(engine, tools.folder) as serving:
            return group.measure(Bench(tools, engine, serving, windows))
    except (BenchmarkError, OSError) as error:
        tell(f"{name} {entrant.label}: {error}")
        return [Sample(math.nan, "failed, see above")] * len(group.kinds)
