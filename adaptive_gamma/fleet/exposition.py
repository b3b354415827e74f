"""Metric families as plain data, and their text form (exposition format 0.0.4), made in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

from prometheus_client import Metric
from prometheus_client.registry import Collector

__all__ = ["Family", "FamilyCollector", "Row", "page_of", "pieces"]

Row = tuple[str, Sequence[str], float]
"""A sample: what its name adds to the family's, its label values, its value."""

_STEPS = 128
"""Rows in a piece: some 0.1 ms of work."""


class Family(NamedTuple):
    """A family of samples. A row of None says that a step of work was done that has given no sample yet."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...]
    rows: Iterable[Row | None]


def pieces(families: Iterable[Family]) -> Iterator[str]:
    """The page in pieces that each take a fraction of a millisecond to make, some of them empty."""
    for name, kind, text, labels, rows in families:
        # In this format the name of a counter carries its suffix.
        title = f"{name}_total" if kind == "counter" else name
        yield f"# HELP {title} {text}\n# TYPE {title} {kind}\n"
        remaining = iter(rows)
        while steps := list(islice(remaining, _STEPS)):
            yield "".join([_line(name, labels, row) for row in steps if row is not None])


async def page_of(families: Iterable[Family]) -> bytes:
    """The page, made in steps of a fraction of a millisecond, between which the event loop goes on.

    Not in a thread: the interpreter runs one thread at a time and hands over every 5 ms, so that each turn of the loop
    would wait for that long, and counters that change under the reader would need locks.
    """
    made = []
    for piece in pieces(families):
        made.append(piece)
        await asyncio.sleep(0)
    return "".join(made).encode()


def _line(name: str, labels: tuple[str, ...], row: Row) -> str:
    suffix, values, value = row
    return _form(name + suffix, _names(labels, values)) % (*map(_escaped, values), float(value))


def _names(labels: tuple[str, ...], values: Sequence[str]) -> tuple[str, ...]:
    """The label names of a sample: a histogram's buckets have one more than its sums."""
    return (*labels, "le") if len(values) > len(labels) else labels


@lru_cache(maxsize=256)
def _form(name: str, labels: tuple[str, ...]) -> str:
    """A line with places for the label values and the value."""
    pairs = ",".join([f'{label}="%s"' for label in labels])
    return f"{name}{{{pairs}}} %r\n" if labels else f"{name} %r\n"


@lru_cache(maxsize=4096)
def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class FamilyCollector(Collector):
    """The same families for a registry of prometheus_client, which readers in this process may walk."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for name, kind, text, labels, rows in self._families:
            metric = Metric(name, text, kind)
            for row in rows:
                if row is not None:
                    suffix, values, value = row
                    names = _names(labels, values)
                    metric.add_sample(name + suffix, dict(zip(names, values, strict=True)), value)
            yield metric
