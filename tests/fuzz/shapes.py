"""Strategies that several targets use: a good text with edits, a good tree with odd values, bytes cut in pieces."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

__all__ = ["ODD_VALUES", "altered", "cut", "edited", "edited_bytes"]

_Text = TypeVar("_Text", str, bytes)

ODD_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([-(2**63), 2**53 + 1, 2**64, 10**30, 10**400]),
    st.floats(),
    st.sampled_from([1e-320, 1e308, -0.0, 0.5, 1.0, 1e-9]),
    st.text(max_size=12),
    st.sampled_from(["", "x" * 3000, "a\x00b", "a\r\nb", "\ud800", "\u2028", "1", "1e3", "nan", "auto", "max"]),
    st.lists(st.integers(-2, 9), max_size=4),
    st.recursive(
        st.integers(0, 3) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
)
"""Values that a field may hold by mistake or by malice."""


def _edit(draw: st.DrawFn, text: _Text, seeds: Sequence[_Text], tokens: Sequence[_Text], free: Any) -> _Text:
    start = draw(st.integers(0, len(text)))
    end = min(len(text), start + draw(st.integers(0, 60)))
    how = draw(st.integers(0, 5))
    piece = text[start:end]
    if how == 0:
        new = draw(st.sampled_from(tokens))
    elif how == 1:
        new = draw(free)
    elif how == 2:
        new = piece * draw(st.sampled_from([2, 3, 50]))
    elif how == 3:
        new = piece + draw(st.sampled_from(tokens))
    elif how == 4:
        other = draw(st.sampled_from(seeds))
        at = draw(st.integers(0, len(other)))
        new = other[at : at + draw(st.integers(0, 200))]
    else:
        new = text[:0]
    return text[:start] + new + text[end:]


@st.composite
def edited(draw: st.DrawFn, seeds: Sequence[str], tokens: Sequence[str], most: int = 6) -> str:
    """One of ``seeds`` with up to ``most`` edits."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, most))):
        text = _edit(draw, text, seeds, tokens, st.text(max_size=10))
    return text


@st.composite
def edited_bytes(draw: st.DrawFn, seeds: Sequence[bytes], tokens: Sequence[bytes], most: int = 6) -> bytes:
    """As :func:`edited`, for bytes."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, most))):
        text = _edit(draw, text, seeds, tokens, st.binary(max_size=10))
    return text


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a tree."""
    found: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        node = left.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            found.append((node, key))
            left.append(value)
    return found


def _branches(tree: Any) -> list[tuple[Any, Any]]:
    return (
        list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else [(0, 0)]
    )


@st.composite
def altered(draw: st.DrawFn, trees: Sequence[Any], most: int = 4) -> Any:
    """One of ``trees`` with up to ``most`` odd values in it, or keys that are gone, doubled or new."""
    tree = copy.deepcopy(draw(st.sampled_from(trees)))
    for _ in range(draw(st.integers(0, most))):
        places = _places(tree)
        if not places:
            break
        container, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.integers(0, 5))
        if how == 0:
            del container[key]
        elif how == 1 and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif how == 2 and isinstance(container, dict):
            container[draw(st.text(max_size=8))] = draw(ODD_VALUES)
        elif how == 3:
            container[key] = copy.deepcopy(draw(st.sampled_from(_branches(tree)))[1])
        else:
            container[key] = draw(ODD_VALUES)
    return tree


@st.composite
def cut(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """The bytes in pieces, none of them empty."""
    if not whole:
        return []
    if draw(st.booleans()):
        size = draw(st.integers(1, 7))
        return [whole[at : at + size] for at in range(0, len(whole), size)]
    ends = sorted(draw(st.sets(st.integers(1, len(whole)), max_size=12)) | {len(whole)})
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]
