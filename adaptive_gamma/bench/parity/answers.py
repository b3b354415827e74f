"""One answer: its text, and of each token what the engine says it thought of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.bench.sweep.words import fit_to_show
from adaptive_gamma.errors import ProtocolError

__all__ = ["Token", "WholeAnswer", "read_answer"]

_LEAST_LOGPROB = -1e4
"""Engines write -9999 or less for a token they have no figure of."""
_ROUNDING = 1e-6
"""By so much a probability of 1 may be exceeded in single precision."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as an engine reports it."""

    text: bytes
    logprob: float | None
    """None where the engine gave no figure, or one that stands for none."""
    others: tuple[tuple[bytes, float], ...] = ()
    """The likeliest tokens at its place, itself among them where it is one."""


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """An answer that came to its end."""

    text: str
    tokens: tuple[Token, ...] | None
    """None where the engine listed no tokens."""
    finish_reason: str | None


def read_answer(body: bytes, *, asked_for_others: bool) -> WholeAnswer:
    """Read the body of a chat or completions answer.

    Args:
        body: JSON.
        asked_for_others: whether the likeliest tokens were asked for. Then a log-probability of exactly 0 without
            them is a blank: llama.cpp writes that for tokens that it took over from a draft.

    Raises:
        ProtocolError: it is no such answer.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        what = "an HTML page" if body.lstrip()[:1] == b"<" else "no JSON"
        raise ProtocolError(f"answered with {what} ({fit_to_show(body[:60].decode(errors='replace'))})") from error
    if isinstance(values, dict) and values.get("error"):
        raise ProtocolError(f"answered with an error: {fit_to_show(str(values['error']))}")
    choices = values.get("choices") if isinstance(values, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise ProtocolError("answered without a choice")
    reason = choice.get("finish_reason")
    return WholeAnswer(
        _text(choice),
        _tokens(choice.get("logprobs"), asked_for_others),
        reason if isinstance(reason, str) else None,
    )


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    if isinstance(message, dict):
        parts = [message.get(name) for name in ("reasoning_content", "reasoning", "content")]
        calls = message.get("tool_calls")
        found = [part for part in parts if isinstance(part, str)] + ([json.dumps(calls)] if calls else [])
        if not found:
            raise ProtocolError("answered with a message without text")
        return "".join(found)
    text = choice.get("text")
    if not isinstance(text, str):
        raise ProtocolError("answered with a choice without text")
    return text


def _tokens(logprobs: object, asked_for_others: bool) -> tuple[Token, ...] | None:
    if not isinstance(logprobs, dict):
        return None
    content = logprobs.get("content")
    if isinstance(content, list):
        found = [_chat_token(entry, asked_for_others) for entry in content]
    else:
        found = _completion_tokens(logprobs, asked_for_others)
    return tuple(found) if found else None


def _chat_token(entry: object, asked_for_others: bool) -> Token:
    if not isinstance(entry, dict):
        raise ProtocolError("answered with a list of tokens that holds something else")
    listed = entry.get("top_logprobs")
    others = []
    for other in listed if isinstance(listed, list) else ():
        if isinstance(other, dict) and (logprob := _logprob(other.get("logprob"))) is not None:
            others.append((_bytes_of(other), logprob))
    return _token(_bytes_of(entry), entry.get("logprob"), others, asked_for_others)


def _completion_tokens(logprobs: Mapping[str, Any], asked_for_others: bool) -> list[Token]:
    tokens, figures, tops = (logprobs.get(name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(tokens, list) or not isinstance(figures, list) or len(tokens) != len(figures):
        return []
    listed: Sequence[object] = tops if isinstance(tops, list) and len(tops) == len(tokens) else [None] * len(tokens)
    found = []
    for text, figure, top in zip(tokens, figures, listed, strict=True):
        others = []
        for name, value in top.items() if isinstance(top, dict) else ():
            if (logprob := _logprob(value)) is not None:
                others.append((str(name).encode(errors="replace"), logprob))
        found.append(_token(str(text).encode(errors="replace"), figure, others, asked_for_others))
    return found


def _token(text: bytes, figure: object, others: list[tuple[bytes, float]], asked_for_others: bool) -> Token:
    logprob = _logprob(figure)
    if logprob == 0.0 and asked_for_others and not others:
        logprob = None
    return Token(text, logprob, tuple(others))


def _logprob(value: object) -> float | None:
    """None where the engine gave no figure, or one that stands for none.

    Raises ProtocolError for what no logarithm of a probability can be: judged by it, a broken engine would look right.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value != value or value > _ROUNDING:  # NaN is no number; an integer may be larger than any float
        raise ProtocolError(
            f"answered with a log-probability of {fit_to_show(str(value))}, which none can be: they are at most 0"
        )
    return float(value) if value > _LEAST_LOGPROB else None


def _bytes_of(entry: Mapping[str, Any]) -> bytes:
    """A token's bytes; one may hold a part of a character."""
    listed = entry.get("bytes")
    if isinstance(listed, list) and all(isinstance(byte, int) and 0 <= byte <= 255 for byte in listed):
        return bytes(listed)
    return str(entry.get("token", "")).encode(errors="replace")
