"""The figures of a run as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.soak.proxy import WHOLE_RELOAD
from tests.soak.run import Result
from tests.soak.watch import percentile

__all__ = ["report"]

_VERDICTS = ("ok", "planned", "excused", "left", "lost")
_PHASES = {
    "head": "before the head",
    "flow": "in the stream",
    "silence": "engine silent",
    "unread": "client not reading",
}


def _table(rows: Iterable[Sequence[object]]) -> list[str]:
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def _times(name: str, seconds: list[float]) -> list[str]:
    shares = (0.5, 0.9, 0.99, 1.0)
    return [name, str(len(seconds)), *(_number(percentile(seconds, share) * 1000) for share in shares)]


def report(result: Result) -> str:
    """The whole page."""
    options, sums = result.options, result.tally
    lines = [
        f"soak: {options.streams} clients, {result.seconds:.0f} s, {options.engines} engines, seed {options.seed}",
        "",
        f"requests: {sums.requests} ({sums.requests / max(result.seconds, 1e-9):.1f}/s), "
        f"{sums.bytes_checked / 1e6:,.0f} MB of answers checked, {sums.reused} on reused client connections",
    ]
    whole: Counter[str] = Counter()
    rows: list[Sequence[object]] = [("kind", *_VERDICTS)]
    for label, verdicts in sorted(sums.verdicts.items()):
        rows.append((label, *(verdicts[v] or "" for v in _VERDICTS)))
        whole += verdicts
    lines += _table([*rows, ("all", *(whole[v] for v in _VERDICTS))])
    lines += ["", "excused: " + (", ".join(f"{n} x {why}" for why, n in sums.excuses.most_common()) or "none")]
    lines += ["", "outcome: counted by the proxy, and the least and most that these requests allow"]
    lines += _table(
        [("outcome", "counted", "least", "most")]
        + [
            (name, f"{result.counted.get(name, 0):g}", str(sums.certain[name]), str(sums.possible[name]))
            for name in sorted({*result.counted, *sums.certain})
        ]
        + [("all", f"{sum(result.counted.values()):g}", str(sums.requests - sums.hidden), str(sums.requests))]
    )
    lines += ["", "from a client's leaving to its engine's noticing, ms"]
    lines += _table(
        [("left", "count", "p50", "p90", "p99", "max")]
        + [_times(name, sums.noticed_s.get(phase, [])) for phase, name in _PHASES.items()]
    )
    lines.append(f"  reached an engine only after the client had left: {sums.forwarded_late}")
    return "\n".join([*lines, *_surroundings(result), *_conclusion(result), ""])


def _surroundings(result: Result) -> list[str]:
    watch, start, end = result.watch, result.start, result.end
    assert watch is not None
    assert start is not None
    assert end is not None
    troubles = ", ".join(f"{count} x {kind}" for kind, count in sorted(result.troubles.items())) or "none"
    reloads = ", ".join(f"{count} x {what}" for what, count in sorted(result.reloads.items())) or "none"
    retries = ", ".join(f"{reason} {count:g}" for reason, count in sorted(result.retries.items()))
    whole = "" if WHOLE_RELOAD else " (this build reads the policy only)"
    pages = [_times(path, seconds) for path, seconds in sorted(watch.page_seconds.items())]
    rise = [sample for sample in watch.samples if sample.at <= end.at]
    judged = "" if result.options.minutes >= 5 else " (too short a run to judge)"
    lag = [percentile(watch.own_lag, share) * 1000 for share in (0.5, 0.99, 1.0)]
    cpu_s = end.cpu_s - start.cpu_s
    return [
        "",
        f"engines: {troubles}; {result.raced} requests met a closing connection, {result.idle_closes} idle ones closed",
        f"SIGHUP: {reloads}{whole}; shown after p50 {_number(percentile(result.reload_seconds, 0.5), 2)} s",
        f"retries: {retries}; {result.connections:g} connections opened to engines",
        "",
        "admin pages, ms",
        *_table([("page", "count", "p50", "p90", "p99", "max"), *pages]),
        f"  peaks: in flight {watch.peak_in_flight:g}, queued {watch.peak_queued:g}, series {watch.most_series}, "
        f"affinity entries {'not shown' if result.affinity is None else f'{watch.peak_affinity:g}'}",
        f"  the soak's own event loop was late by p50 {lag[0]:.1f}, p99 {lag[1]:.1f}, max {lag[2]:.1f} ms",
        "",
        "left open after the load (the proxy's gauges, then each engine's own count of what it works on)",
        "  " + ", ".join(f"{name} {'not shown' if n is None else f'{n:g}'}" for name, n in result.left_open.items()),
        "",
        "the proxy's process",
        *_table(
            [
                ("", "start", "highest", "end", "slope in 10 min"),
                (
                    "resident, MB",
                    _number(start.resident_mb),
                    _number(max(s.resident_mb for s in rise)),
                    _number(end.resident_mb),
                    _number(result.memory_slope) + judged,
                ),
                (
                    "descriptors",
                    start.descriptors,
                    max(s.descriptors for s in rise),
                    end.descriptors,
                    _number(result.descriptor_slope),
                ),
            ]
        ),
        f"  CPU {cpu_s:.1f} s, {cpu_s / max(result.seconds, 1e-9):.2f} cores; exit code {result.exit_code}",
    ]


def _conclusion(result: Result) -> list[str]:
    if not result.reasons:
        return ["", "PASSED: nothing lost, nothing left open, every byte as written"]
    return ["", f"FAILED, {len(result.reasons)} reasons:", *(f"  - {reason}" for reason in result.reasons)]
