"""What a format's module hands over: a row whose arm is not settled yet, and what the file says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.row import SweepRow

__all__ = ["Format", "RawRow", "ServerFacts", "Stated"]


@dataclass(frozen=True, slots=True)
class Stated:
    """What a file says of the engine's speculation, in words of its own: not what a missing key may mean.

    speculative: False only where the file says that there is no drafter; where: the field that says so.
    """

    gamma: int | None
    speculative: bool | None
    where: str


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row with its gamma open, unless the format itself is sure of it (``settled``).

    stated: what the file says of the arm; made_up_prompts: why the prompts are none that a person would send, or None.
    """

    row: SweepRow
    stated: Stated | None = None
    made_up_prompts: str | None = None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a file beside the results says about the server of that folder."""

    document: Document
    row: SweepRow
    stated: Stated | None
    below: bool
    """Whether it holds for folders below as well."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``recognises`` looks at a document's value only; ``rows`` may raise SweepError for a bad document."""

    name: str
    recognises: Callable[[Any], bool]
    rows: Callable[[Document, Findings], Iterator[RawRow]] | None = None
    facts: Callable[[Document, Findings], ServerFacts] | None = None
    ignored: str | None = None
    """Why a document of this kind holds nothing to import."""
