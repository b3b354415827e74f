"""The report as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from adaptive_gamma.observe.estimate import BLOCKS_FROM

__all__ = ["report_text"]

_WIDTH = 100
_ROWS = (
    ("request_s", "time of a request, s", 1.0),
    ("request_s_corrected", "  predictions corrected", 1.0),
    ("tpot_s", "time per output token, ms", 1e3),
    ("tpot_s_corrected", "  predictions corrected", 1e3),
    ("with_delay_to_others_s", "predicted, with delay to others, s", 1.0),
)


def report_text(report: Mapping[str, Any]) -> str:
    """The report for a person."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    count = report["requests"]
    yield from _incomplete(report)
    if not count:
        yield "No request was observed that ended well: nothing can be said."
        return
    first, last = report["period"]["first_s"], report["period"]["last_s"]
    yield f"{_many(count)} observed from {_time(first)} to {_time(last)} ({_length(last - first)})."
    moved = report["would_have_moved"]
    between = ", ".join(f"{number} {pools}" for pools, number in moved["between"].items())
    yield (
        f"The decision would have sent {moved['requests']} of them ({moved['share']:.1%}) elsewhere"
        f"{': ' + between if between else ''}."
    )
    yield "Reasons: " + ", ".join(f"{reason} {number}" for reason, number in report["reasons"].items()) + "."
    yield ""
    yield from _table("all requests", report["overall"])
    if len(report["classes"]) > 1:
        for name, figures in report["classes"].items():
            yield ""
            yield from _table(f"{name}: {figures['requests']}, of which {figures['would_have_moved']}", figures)
    yield ""
    yield from _paragraph(_verdict(report))
    yield ""
    yield from _paragraph(_held(report["predictions"], count))
    yield ""
    yield from _paragraph(_resampled(report["resampling"]))
    yield ""
    yield "What cannot be known from this:"
    for sentence in report["unknowable"]:
        yield from textwrap.wrap(sentence, _WIDTH, initial_indent="- ", subsequent_indent="  ")


def _incomplete(report: Mapping[str, Any]) -> Iterator[str]:
    if report["left_out"]:
        ends = ", ".join(f"{outcome} {number}" for outcome, number in report["left_out"].items())
        yield f"Left out, as they did not end well: {ends}."
    if report["dropped_lines"]:
        yield f"INCOMPLETE: the log says that {report['dropped_lines']} observations could not be written."
    if report["unreadable_lines"]:
        yield f"{report['unreadable_lines']} lines could not be read."


def _table(title: str, figures: Mapping[str, Any]) -> Iterator[str]:
    yield f"{title:<38}{'as it went':>12}{'had it acted':>14}{'change':>10}{'95 % interval':>22}"
    for key, label, unit in _ROWS:
        row = figures[key]
        if row is None:
            if not key.endswith("_corrected"):
                yield f"{label:<38}{'not known':>12}"
            continue
        interval = f"{row['low']:+.1%} .. {row['high']:+.1%}"
        went, acted = row["as_it_went"] * unit, row["had_it_acted"] * unit
        yield f"{label:<38}{went:>12.4g}{acted:>14.4g}{row['change']:>+10.1%}{interval:>22}"


def _verdict(report: Mapping[str, Any]) -> str:
    corrected, overall = report["predictions"]["corrected"], report["overall"]
    figure = overall["request_s_corrected" if corrected else "request_s"]
    word = report["verdict"]
    if word == "the_same":
        return "Acting would have changed nothing: the fallback rule sent requests where the decision would have."
    if word == "not_shown" or figure is None:
        return (
            "No change can be shown: the interval of the predicted change of a request's time holds both faster and "
            "slower. Observe for longer, or over hours with another load."
        )
    low, high = sorted((abs(figure["low"]), abs(figure["high"])))
    text = (
        f"Acting is predicted to have made requests {word} by {abs(figure['change']):.1%} ({low:.1%} to {high:.1%}) on "
        "average."
    )
    plain = overall["request_s"]
    if corrected and plain is not None and (plain["change"] > 0) != (figure["change"] > 0):
        text += (
            " The policy's own predictions, uncorrected, say the opposite: it is wrong about one pool against the "
            "other, and should be calibrated before it acts."
        )
    if not corrected:
        predictions = report["predictions"]
        seen = " and ".join(f"{pool['measured']} in the {name} pool" for name, pool in predictions["pools"].items())
        text += (
            f" This rests on the policy alone: requests whose tokens are known were {seen}, and "
            f"{predictions['measured_needed_per_pool']} in each are needed to correct its predictions."
        )
    return text


def _held(predictions: Mapping[str, Any], count: int) -> str:
    parts = []
    for name, pool in predictions["pools"].items():
        if not pool["measured"]:
            parts.append(f"{name}: nothing measured")
            continue
        low, high = pool["middle_80_percent"]
        parts.append(
            f"{name}: {pool['observed_over_predicted']:.2f} times the prediction, the middle 80 % of requests "
            f"{low:.2f} to {high:.2f} ({pool['measured']} measured)"
        )
    text = "Observed time against what was predicted of where requests went: " + "; ".join(parts) + "."
    measured = sum(pool["measured"] for pool in predictions["pools"].values())
    if measured < count:
        text += (
            f" The rows of the time per output token hold these {measured} of {count} requests only: the answers of "
            "the others do not tell how many tokens they have, as streams do not unless usage is asked for."
        )
    if predictions["corrected"]:
        text += " The corrected rows scale each pool by its figure."
    if predictions["priced_without_gamma"]:
        text += (
            f" {predictions['priced_without_gamma']} requests met a replica whose gamma was not known and which was "
            "priced as plain."
        )
    return text


def _resampled(resampling: Mapping[str, Any]) -> str:
    blocks, length = resampling["blocks"], resampling["block_s"]
    kind = "requests, each by itself" if length is None else f"blocks of {_length(length)}"
    text = f"Intervals: bootstrap over {blocks} {kind}, {resampling['draws']} draws."
    if length is None:
        why = f"{BLOCKS_FROM} are needed for blocks of time" if blocks < BLOCKS_FROM else "all came at one time"
        text += (
            f" There are {blocks}, and {why}: requests open together count as independent; the true interval is wider."
        )
    return text


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH)


def _many(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _length(seconds: float) -> str:
    for unit, name in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit or (seconds >= unit and name == "min"):
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
