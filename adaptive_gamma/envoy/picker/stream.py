"""One request's conversation with a gateway: a stream of ext_proc, from its first message to its close."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

import grpc

from adaptive_gamma.envoy.picker.answers import (
    CONTINUE_HEADERS,
    PASS,
    Pick,
    echoed_body,
    picked_at_body,
    picked_at_headers,
    refusal,
    told_client,
)
from adaptive_gamma.envoy.picker.head import RequestHead, subset_of
from adaptive_gamma.envoy.picker.picker import Picker
from adaptive_gamma.envoy.picker.wire import BodyMode, ProcessingRequest
from adaptive_gamma.routing.body_room import HeldBody
from adaptive_gamma.routing.endpoints import Endpoint
from adaptive_gamma.routing.error_answer import ErrorAnswer

__all__ = ["ResponseSide", "is_envoy", "until_picked", "whole"]

ResponseSide = Literal["auto", "close", "pass"]
"""What becomes of a stream once the pick is told: ``close`` ends it, so that no part of the response comes here;
``pass`` answers whatever comes until the gateway ends it; ``auto`` closes where the gateway is an Envoy."""

_BUFFERED = (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL)
_OF_ENVOY = "x-envoy-"
"""How the metadata begin that only Envoy's own client sends with a call."""
_END = grpc.aio.EOF


def is_envoy(metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
    """Whether a call with this metadata comes from an Envoy."""
    return any(name.startswith(_OF_ENVOY) for name, _ in metadata or ())


async def until_picked(picker: Picker, context: Any) -> bytes:
    """Answer one stream up to where the request goes; what is returned is the last answer, to be sent as the stream is
    ended, in one go. A gateway that ends the stream before gets no answer, and ``CANCELLED``.

    ``context`` is the ``grpc.aio.ServicerContext``; its messages are bytes.
    """
    last = await _Conversation(picker, context).last_answer()
    if last is None:
        await context.abort(grpc.StatusCode.CANCELLED, "the stream ended before the request did")
    return last or b""


async def whole(picker: Picker, context: Any) -> None:
    """Answer one stream until the gateway ends it."""
    conversation = _Conversation(picker, context)
    last = await conversation.last_answer()
    if last is not None:
        await context.write(last)
        if not conversation.refused:
            await conversation.rest()


class _Conversation:
    __slots__ = (
        "_body_passes", "_context", "_duplex_response", "_head", "_pick", "_picker", "_subset", "bound", "refused",
    )  # fmt: skip

    def __init__(self, picker: Picker, context: Any) -> None:
        self._picker = picker
        self._context = context
        self._head: RequestHead | None = None
        self._subset: frozenset[str] | None = None
        self._pick: Pick | None = None
        self._body_passes = False
        """The pick was made without the body, parts of which may come yet. Behind any other pick, what comes of a body
        is a second end of it, and no gateway waits for an answer to that."""
        self._duplex_response = False
        self.refused = False
        """Whether the gateway was told to answer in an engine's place."""
        self.bound: asyncio.Timeout

    async def _next(self) -> Any:
        """The next message, or None at the stream's end."""
        received = await self._context.read()
        return None if received is _END else ProcessingRequest.FromString(received)

    async def last_answer(self) -> bytes | None:
        """Up to the answer that says where the request goes, or that it goes nowhere; None where nobody waits for one.

        All answers before that one have been written.
        """
        picker = self._picker
        picker.open_streams += 1
        try:
            async with asyncio.timeout(picker.settings.limits.idle_timeout_s) as bound:
                self.bound = bound
                return await self._request_phase()
        except ErrorAnswer as error:
            return self._refusal(error)
        except TimeoutError:
            message = "the request body did not come in time"
            return self._refusal(ErrorAnswer(408, message, "request_timeout", outcome="client_error"))
        finally:
            picker.open_streams -= 1

    def _refusal(self, error: ErrorAnswer) -> bytes:
        self.refused = True
        self._picker.refused(error)
        return refusal(error, "" if self._head is None else self._head.path)

    async def _request_phase(self) -> bytes | None:
        """The last answer. Raises ErrorAnswer, and TimeoutError where the body's next part does not come."""
        message = await self._next()
        if message is None:
            return None
        kind = message.WhichOneof("request")
        modes = message.protocol_config
        self._duplex_response = modes.response_body_mode == BodyMode.FULL_DUPLEX_STREAMED
        if kind != "request_headers":
            return await self._all_but_last(self._passed(kind, message))
        picker = self._picker
        self._head = head = RequestHead(message.request_headers.headers.headers, picker.class_header)
        self._subset = subset_of(message)
        endpoint = picker.accept(head)
        # A gateway that does not tell is one of before the field was; the protocol wants duplex of those.
        mode = modes.request_body_mode if message.HasField("protocol_config") else BodyMode.FULL_DUPLEX_STREAMED
        if message.request_headers.end_of_stream:
            return self._picked(endpoint, b"", picked_at_headers)
        if mode == BodyMode.FULL_DUPLEX_STREAMED:
            return await self._duplex(endpoint)
        if mode in _BUFFERED:
            return await self._buffered(endpoint)
        self._body_passes = True
        return self._picked(endpoint, None, picked_at_headers)

    async def _buffered(self, endpoint: Endpoint) -> bytes | None:
        """The gateway waits for an answer to the headers before it sends the body, in one message."""
        await self._context.write(CONTINUE_HEADERS)
        message = await self._next()
        if message is None:
            return None
        kind = message.WhichOneof("request")
        if kind != "request_body":
            # Nothing but trailers: the headers have gone, and only the metadata can still tell.
            raise ErrorAnswer(400, "the request has no body", "invalid_json", outcome="client_error")
        body = message.request_body.body
        self._picker.check_size(len(body))
        return self._picked(endpoint, body, picked_at_body, whole=message.request_body.end_of_stream)

    async def _duplex(self, endpoint: Endpoint) -> bytes | None:
        """All of the body comes before anything is answered, and is handed back."""
        held = HeldBody(self._picker.body_room)
        try:
            return await self._handed_back(endpoint, held)
        finally:
            held.let_go()

    async def _handed_back(self, endpoint: Endpoint, held: HeldBody) -> bytes | None:
        size = 0
        loop = asyncio.get_running_loop()
        idle_s = self._picker.settings.limits.idle_timeout_s
        while True:
            message = await self._next()
            if message is None:
                return None
            kind = message.WhichOneof("request")
            if kind == "request_body":
                part = message.request_body
                if part.body:
                    size += len(part.body)
                    self._picker.check_size(size)
                    if (full := held.add(part.body)) is not None:
                        raise full
                ended = part.end_of_stream
            elif kind == "request_trailers":
                ended = False
            else:
                continue
            if ended or kind == "request_trailers":
                break
            self.bound.reschedule(loop.time() + idle_s)
        body = held.whole()
        answers = [self._picked(endpoint, body, picked_at_headers)]
        self.bound.reschedule(None)  # from here on it is the gateway that may be slow to take what is written
        if body or ended:
            answers += echoed_body("request_body", body, end_of_stream=ended)
        if not ended:
            answers.append(PASS["request_trailers"])
        return await self._all_but_last(answers)

    async def _all_but_last(self, answers: list[bytes]) -> bytes | None:
        write = self._context.write
        for answer in answers[:-1]:
            await write(answer)
        return answers[-1] if answers else None

    def _picked(self, endpoint: Endpoint, body: bytes | None, made: Any, *, whole: bool = True) -> bytes:
        head = self._head
        assert head is not None
        self._pick = pick = self._picker.pick(head, endpoint, body, self._subset, whole=whole)
        answer: bytes = made(pick, head.removed, self._picker.authorization)
        return answer

    async def rest(self) -> None:
        """Everything behind the pick passes: what is left of the request, and the response."""
        write = self._context.write
        while (message := await self._next()) is not None:
            for answer in self._passed(message.WhichOneof("request"), message):
                await write(answer)

    def _passed(self, kind: str | None, message: Any) -> list[bytes]:
        """The answers to a message behind the pick."""
        if kind == "response_headers":
            return [told_client(self._pick)]
        if kind == "response_body" and self._duplex_response:
            part = message.response_body
            return echoed_body("response_body", part.body, end_of_stream=part.end_of_stream)
        if kind == "request_body":
            return [PASS[kind]] if self._body_passes or self._head is None else []
        return [] if kind is None else [PASS[kind]]
