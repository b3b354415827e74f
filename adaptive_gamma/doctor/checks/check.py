"""What a check is: a pure function over a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from adaptive_gamma.doctor.case import Case
from adaptive_gamma.doctor.finding import Finding, Unseen

__all__ = ["Check", "Need", "Said"]

Said: TypeAlias = Finding | Unseen
Need: TypeAlias = Literal["log", "server", "bench", "plain"]


@dataclass(frozen=True, slots=True)
class Check:
    """A question, the codes of what may be found, and the function that looks.

    It says nothing where all is well and where nothing is known, and gives an ``Unseen`` where something that the user
    could give was missing.
    """

    name: str
    question: str
    codes: tuple[str, ...]
    look: Callable[[Case], Iterator[Said]]
    needs: Need | None = None
    """Without this there is nothing that it could look at; None: logs and servers both tell of it."""
