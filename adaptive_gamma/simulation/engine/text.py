"""Filler words for answers, and an estimate of a prompt's length. Deterministic; no meaning intended."""

from __future__ import annotations

from adaptive_gamma.routing import canonical_class

__all__ = ["answer_text", "estimate_tokens"]

_WORDS = {
    "structured": (
        " def", " return", " value", " =", " self", ".items", "()", " for", " key", " in", " result", "[key]", " if",
        " not", " None", ":", "\n    ", " total", " +=", " 1", " else", " raise", " ValueError", "(name)", " yield",
        " index", " <", " len", "(rows)", " import", " path", "\n", " class", " Node", " left", " right", " while",
    ),
    "chat": (
        " the", " morning", " was", " quiet", " and", " we", " walked", " along", " a", " narrow", " road", ",",
        " past", " old", " gardens", " where", " someone", " had", " left", " a", " letter", ".", " It", " spoke",
        " of", " rain", " and", " of", " patient", " people", " who", " wait", " for", " spring", ".", " Thank", " you",
    ),
    "unsure": (
        " this", " answer", " comes", " from", " a", " simulated", " engine", ";", " its", " words", " mean",
        " nothing", " and", " fill", " the", " place", " of", " tokens", ",", " one", " word", " each", ".",
    ),
}  # fmt: skip
_BYTES_PER_TOKEN = 4


def answer_text(request_class: str, seed: int, first: int, count: int) -> str:
    """The words of tokens ``first`` .. ``first + count - 1`` of the answer with this seed, one word a token."""
    words = _WORDS.get(canonical_class(request_class), _WORDS["unsure"])
    text = "".join(
        words[(seed + index * (index // len(words) + 1)) % len(words)] for index in range(first, first + count)
    )
    return text.lstrip(" ") if first == 0 else text


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is: one per four bytes of UTF-8, at least one."""
    return max(1, -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN))
