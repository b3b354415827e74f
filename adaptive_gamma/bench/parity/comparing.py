"""How far two answers to one prompt are from each other. Nothing here knows of acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from adaptive_gamma.bench.parity.answers import Token, WholeAnswer

__all__ = ["Distance", "Divergence", "distance", "divergence"]

_AROUND = 40


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two answers part."""

    character: int
    """Position in both texts of the first character that differs."""
    token: int | None
    """Number, from 0 on, of the reference's token that it lies in; None where its tokens are not known."""
    before: str
    """What both say before it, the end of it."""
    reference: str
    """How the reference goes on."""
    candidate: str
    """How the other goes on."""
    margin: float | None
    """How much likelier the reference holds its own token than the other's, in nats; None where it does not say."""
    margin_at_least: bool = False
    """The other's token is not even among the reference's likeliest: the margin is that to the last of these."""


@dataclass(frozen=True, slots=True)
class Distance:
    """One answer against the reference's first one. None is: not known."""

    parted: bool
    divergence: Divergence | None
    margin: float | None
    """In nats; 0 where the two are the same."""
    logprob: float | None
    """Mean absolute difference of the log-probabilities of the tokens both begin with, nats a token."""
    regret: float | None
    """By how much the answer's tokens were not the likeliest by its own engine's account: mean, nats a token."""
    tokens: int
    """Tokens listed in the answer."""
    figures: int
    """... and those of them with a log-probability."""


def distance(reference: WholeAnswer, other: WholeAnswer) -> Distance:
    """Compare an answer with the reference's."""
    parted = divergence(reference, other)
    tokens = other.tokens or ()
    return Distance(
        parted is not None,
        parted,
        0.0 if parted is None else parted.margin,
        _logprob_difference(reference.tokens or (), tokens),
        _regret(tokens),
        len(tokens),
        sum(token.logprob is not None for token in tokens),
    )


def divergence(reference: WholeAnswer, other: WholeAnswer) -> Divergence | None:
    """Where two answers part, or None when they are the same."""
    a, b = reference.text, other.text
    if a == b:
        return None
    at = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    token, margin, at_least = _margin(reference, a[:at].encode(errors="replace"), b.encode(errors="replace"))
    return Divergence(
        at, token, a[max(at - _AROUND, 0) : at], a[at : at + _AROUND], b[at : at + _AROUND], margin, at_least
    )


def _margin(reference: WholeAnswer, shared: bytes, other: bytes) -> tuple[int | None, float | None, bool]:
    """The reference's token at the end of ``shared``, its lead over what ``other`` says there, and whether that lead
    is only a lower bound.

    By texts, since engines may list no tokens of the other answer, or cut the same text otherwise.
    """
    start, whole = 0, reference.text.encode(errors="replace")
    for number, token in enumerate(reference.tokens or ()):
        end = start + len(token.text)
        if not token.text or (end <= len(shared) and shared[start:end] == token.text):
            start = end
            continue
        if whole[start:end] != token.text:
            return None, None, False  # the tokens listed are not those of the text
        if token.logprob is None or not token.others:
            return number, None, False
        rest = other[start:]
        said = [logprob for text, logprob in token.others if text and text != token.text and rest.startswith(text)]
        least = min(logprob for _, logprob in token.others)
        return number, max(token.logprob - max(said, default=least), 0.0), not said
    return None, None, False


def _logprob_difference(first: Sequence[Token], second: Sequence[Token]) -> float | None:
    apart = []
    for a, b in zip(first, second, strict=False):
        if a.text != b.text:
            break
        if a.logprob is not None and b.logprob is not None:
            apart.append(abs(a.logprob - b.logprob))
    return fmean(apart) if apart else None


def _regret(tokens: Sequence[Token]) -> float | None:
    lost = [
        max(max(logprob for _, logprob in token.others) - token.logprob, 0.0)
        for token in tokens
        if token.logprob is not None and token.others
    ]
    return fmean(lost) if lost else None
