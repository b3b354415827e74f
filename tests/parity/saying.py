"""Replicas whose every greedy answer a test decides, with OpenAI's forms of answers around it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.sweep.talking_engine import Exchange, TalkingEngine

__all__ = ["Said", "answer_body", "replica", "words"]

Said = list[tuple[str, float]]
"""Tokens with their log-probabilities."""


def words(prompt: str, count: int = 12) -> Said:
    """What our model says to a prompt: some words that depend on it."""
    return [(f"{prompt[:3]}{n} ", -0.25 - n / 100) for n in range(count)]


def answer_body(said: Said, *, chat: bool = True, likeliest: int = 2, figures: bool = True) -> dict[str, Any]:
    """A whole answer; beside each token stands another, a nat less likely."""
    text = "".join(token for token, _ in said)
    logprobs: dict[str, Any] | None
    if not figures:
        logprobs = None
    elif chat:
        logprobs = {
            "content": [
                {
                    "token": token,
                    "logprob": logprob,
                    "bytes": list(token.encode()),
                    "top_logprobs": [
                        {"token": token, "logprob": logprob, "bytes": list(token.encode())},
                        {"token": "other", "logprob": logprob - 1, "bytes": list(b"other")},
                    ][:likeliest],
                }
                for token, logprob in said
            ]
        }
    else:
        logprobs = {
            "tokens": [token for token, _ in said],
            "token_logprobs": [logprob for _, logprob in said],
            "top_logprobs": [{token: logprob, "other": logprob - 1} for token, logprob in said],
        }
    choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {"choices": [{"index": 0, "finish_reason": "length", "logprobs": logprobs, **choice}]}


def replica(
    say: Callable[[str, int], Said],
    *,
    figures: bool = True,
    before: Callable[[Exchange], Awaitable[bool]] | None = None,
) -> TalkingEngine:
    """A server that says ``say(prompt, number of the request)``. ``before`` may answer itself, and then gives True."""
    count = 0

    async def script(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        if before is not None and await before(exchange):
            return
        chat = exchange.path.endswith("chat/completions")
        prompt = exchange.body["messages"][0]["content"] if chat else exchange.body["prompt"]
        said = say(prompt, count)[: exchange.body["max_tokens"]]
        text = json.dumps(answer_body(said, chat=chat, figures=figures)).encode()
        await exchange.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
        )

    return TalkingEngine(script)
