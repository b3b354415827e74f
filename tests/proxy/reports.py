"""Answers of scripted engines that report on their drafts, and the proxy that learns from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from tests.support.acceptance_recorder import AcceptanceRecorder
from tests.support.gated_engine import EngineExchange, GatedEngine, Script
from tests.support.running_proxy import RunningProxy, running_proxy

__all__ = ["DONE", "HELLO", "REPORT", "STREAM", "chunk", "event_stream", "learning_proxy", "stream_body", "usage_chunk"]

REPORT: dict[str, Any] = {
    "mean_acceptance_length": 1.8,
    "draft_acceptance_rate": 4 / 15,
    "acceptance_histogram": [2, 2, 1, 0],
    "num_spec_steps": 5,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 15,
    "num_spec_tokens": 3,
}
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
STREAM: dict[str, Any] = {**HELLO, "stream": True}
DONE = b"data: [DONE]\n\n"
_SSE = ("content-type", "text/event-stream; charset=utf-8")


def chunk(text: str, **more: Any) -> bytes:
    """A content chunk as vLLM writes it."""
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None, "token_ids": None}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body | more, separators=(",", ":")).encode() + b"\n\n"


def usage_chunk(report: object = REPORT) -> bytes:
    """The chunk that closes a stream whose client asked for usage."""
    metrics = None if report is None else {"time_to_first_token_ms": None, "speculative_decoding": report}
    usage = {"prompt_tokens": 1, "total_tokens": 4, "completion_tokens": 3}
    return chunk("", choices=[], usage=usage, metrics=metrics)


def asks_for_usage(exchange: EngineExchange) -> bool:
    """As the engine understands the request."""
    options = json.loads(exchange.request.body).get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def stream_body(usage: bool, report: object = REPORT) -> bytes:
    """A whole stream."""
    return chunk("one") + chunk("two") + (usage_chunk(report) if usage else b"") + DONE


def event_stream(
    report: object = REPORT, *, cut: Sequence[int] | None = None, headers: Sequence[tuple[str, str]] = ()
) -> Script:
    """An engine that streams, with the usage chunk where the request asks for it.

    Args:
        report: what it reports; None reports nothing.
        cut: HTTP chunks end after these many bytes; None: one for each event.
        headers: further ones.
    """

    async def script(exchange: EngineExchange) -> None:
        if exchange.request.method != "POST":
            exchange.answer(404, b"")
            return
        body = stream_body(asks_for_usage(exchange), report)
        exchange.head(200, [_SSE, *headers, ("transfer-encoding", "chunked")])
        if cut is None:
            for event in body.split(b"\n\n")[:-1]:
                exchange.chunk(event + b"\n\n")
        else:
            edges = [0, *sorted({at for at in cut if 0 < at < len(body)}), len(body)]
            for start, end in pairwise(edges):
                exchange.chunk(body[start:end])
        exchange.end()

    return script


@asynccontextmanager
async def learning_proxy(
    engine: GatedEngine, *, gamma: int | str = 3, kind: str = "vllm", **settings: Any
) -> AsyncIterator[tuple[RunningProxy, AcceptanceRecorder]]:
    """The proxy in front of one engine, learning acceptance."""
    settings.setdefault("replicas", [{"name": "r0", "url": engine.url, "engine": kind, "gamma": gamma}])
    async with running_proxy([engine], **settings) as proxy:
        proxy.plane.fleet.learning = recorder = AcceptanceRecorder()
        yield proxy, recorder
