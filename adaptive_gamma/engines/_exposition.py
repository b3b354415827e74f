"""A reader of Prometheus text pages that keeps only the series it is asked for.

A vLLM page holds some 500 samples, nearly all of them histogram buckets; a controller needs about 25. Splitting the
page and parsing only the lines whose sample name is wanted costs about a hundredth of a full parse, which lets one
event loop read a fleet every second.

The reader is strict where it reads (a wanted line that is not well formed fails the page) and indifferent where it
does not. It knows the text format 0.0.4 and the parts of OpenMetrics 1.0 that engines send: ``# EOF``, exemplars,
counters with and without ``_total``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from adaptive_gamma.engines._bounds import LARGEST_COUNT
from adaptive_gamma.errors import ScrapeError

__all__ = ["Exposition", "Sample", "read_exposition"]

_NUMBER = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[iI][nN][fF](?:inity)?|[nN][aA][nN])"
_REST = re.compile(
    r'[ \t]*(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\}[ \t]*|[ \t])'
    rf"(?P<value>{_NUMBER})(?:[ \t]+-?[0-9]+(?:\.[0-9]+)?)?[ \t]*(?:#.*)?\Z"
)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*+)"[ \t]*(?:,[ \t]*|\Z)')
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPE = re.compile(r'\\([\\"n])')
_COMMENT = re.compile(r"#[ \t]*(?:HELP|TYPE|UNIT|EOF)\b")
_LINES_LOOKED_AT = 200
"""How far a page without a wanted series is searched for a sign that it is a metrics page at all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page."""

    labels: Mapping[str, str]
    value: float


class Exposition:
    """The wanted samples of a page, by sample name, in page order."""

    __slots__ = ("_samples",)

    def __init__(self, samples: Mapping[str, tuple[Sample, ...]]) -> None:
        self._samples = samples

    def __contains__(self, name: str) -> bool:
        return name in self._samples

    def samples(self, *names: str) -> tuple[Sample, ...]:
        """The samples of the first of ``names`` that the page has; empty when it has none of them."""
        for name in names:
            found = self._samples.get(name)
            if found:
                return found
        return ()

    def total(self, *names: str) -> float | None:
        """The sum over all label sets of the first of ``names`` present.

        None when the page has none of them, or when a part of the sum is not a number that can be a count (negative,
        not finite, above 2**53): a sum with an unknown part is unknown. None too when the sum itself is above 2**53.
        """
        values = [sample.value for sample in self.samples(*names)]
        if not values or not all(map(_is_amount, values)):
            return None
        total = math.fsum(values)
        return total if _is_amount(total) else None

    def highest(self, *names: str) -> float | None:
        """The largest value over all label sets of the first of ``names`` present; None as for :meth:`total`."""
        values = [sample.value for sample in self.samples(*names)]
        if not values or not all(map(_is_amount, values)):
            return None
        return max(values)

    def totals_by(self, label: str, *names: str) -> dict[str, float] | None:
        """Sums of the first of ``names`` present, by the value of ``label``; None as for :meth:`total`, or when a
        sample lacks the label."""
        found = self.samples(*names)
        sums: dict[str, float] = {}
        for sample in found:
            key = sample.labels.get(label)
            if key is None or not _is_amount(sample.value):
                return None
            sums[key] = sums.get(key, 0.0) + sample.value
        return sums if sums and all(map(_is_amount, sums.values())) else None


def read_exposition(text: str, wanted: frozenset[str]) -> Exposition:
    """Read the samples whose full sample name (with ``_total``, ``_sum``, ``_count``) is in ``wanted``.

    Names match whole: the histogram ``x_tokens_total`` has samples ``x_tokens_total_count`` and so on, which are not
    the counter ``x_tokens_total``; ``x_created`` is not ``x``. A label set that occurs twice counts once, last value.

    Raises:
        ScrapeError: ``empty``: nothing but white space; ``not_metrics``: another kind of page, or a wanted line that
            is not well formed; ``truncated``: the last line does not end, as the format demands, so its number may
            be cut; ``no_series``: a metrics page without a wanted sample.
    """
    if not text or text.isspace():
        raise ScrapeError("empty")
    if text.lstrip()[0] in "<{[":
        raise ScrapeError("not_metrics", "the page looks like HTML or JSON")
    complete = text.endswith(("\n", "# EOF"))
    lines = text.split("\n")
    if not complete:
        if any(_is_exposition(line) for line in lines[:_LINES_LOOKED_AT]) or text.startswith("#"):
            raise ScrapeError("truncated", "the last line has no end")
        raise ScrapeError("not_metrics", "no line is a sample")

    kept: dict[str, dict[tuple[tuple[str, str], ...], Sample]] = {}
    for number, line in enumerate(lines, 1):
        brace = line.find("{")
        name = line[:brace] if brace > 0 else line
        if name not in wanted:
            if name[:1] == "#" or not (" " in name or "\t" in name):
                continue
            name = name.split(None, 1)[0] if not name.isspace() else ""
            if name not in wanted:
                continue
            line = line.lstrip()
        sample = _sample(line[len(name) :], number)
        kept.setdefault(name, {})[tuple(sorted(sample.labels.items()))] = sample
    if not kept:
        if any(_is_exposition(line) for line in lines[:_LINES_LOOKED_AT]):
            raise ScrapeError("no_series", "a metrics page without the series of this engine")
        raise ScrapeError("not_metrics", "no line is a sample")
    return Exposition({name: tuple(samples.values()) for name, samples in kept.items()})


def _is_amount(value: float) -> bool:
    return 0 <= value <= LARGEST_COUNT  # false for NaN


def _sample(rest: str, number: int) -> Sample:
    match = _REST.match(rest.rstrip())
    if match is None:
        raise ScrapeError("not_metrics", f"line {number} is not a sample")
    labels = match["labels"]
    return Sample(_labels(labels, number) if labels else {}, float(match["value"]))


def _labels(text: str, number: int) -> dict[str, str]:
    labels: dict[str, str] = {}
    position, end = 0, len(text.rstrip(" \t"))
    while position < end:
        match = _LABEL.match(text, position)
        if match is None:
            raise ScrapeError("not_metrics", f"line {number} has labels that cannot be read")
        value = match[2]
        labels[match[1]] = _ESCAPE.sub(_unescape, value) if "\\" in value else value
        position = match.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _is_exposition(line: str) -> bool:
    line = line.strip()
    if _COMMENT.match(line):
        return True
    name = _NAME.match(line)
    return name is not None and _REST.match(line, name.end()) is not None
