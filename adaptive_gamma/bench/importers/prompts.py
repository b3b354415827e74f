"""Tells prompts that nobody sends: random tokens and other fillers, on which acceptance means nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["made_up_by_lengths", "made_up_by_name"]

_WORD = re.compile(r"(?<![a-z])(random|synthetic|dummy|generated[_-]shared[_-]prefix|prefix[_-]repetition)(?![a-z])")
LEAST_REQUESTS = 8
SAME_SHARE = 0.8
NEAR = 0.05


def made_up_by_name(names: Iterable[str | None]) -> str | None:
    """Why a data set, label or file name says that the prompts are made up, or None."""
    for name in names:
        if name and (found := _WORD.search(name.lower())):
            return f"{name!r} says {found[1]!r}"
    return None


def made_up_by_lengths(lengths: Sequence[float] | None) -> str | None:
    """Why the prompts' lengths in tokens say that they are made up, or None: people do not write to one length."""
    if lengths is None or len(lengths) < LEAST_REQUESTS:
        return None
    usual, _ = Counter(lengths).most_common(1)[0]
    same = sum(abs(length - usual) <= NEAR * usual for length in lengths)
    if same < SAME_SHARE * len(lengths):
        return None
    return f"{same} of {len(lengths)} prompts have {usual:g} tokens, as only made-up ones do"
