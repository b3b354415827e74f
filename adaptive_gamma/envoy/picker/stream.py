"""One request's conversation with a gateway: a stream of ext_proc, from its first message to its close."""

from __future__ import annotations

import asyncio
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
from adaptive_gamma.routing.endpoints import Endpoint
from adaptive_gamma.routing.error_answer import ErrorAnswer

__all__ = ["ResponseSide", "process"]

ResponseSide = Literal["auto", "close", "pass"]
"""What becomes of a stream once the pick is told: ``close`` ends it, so that no part of the response comes here;
``pass`` answers whatever comes until the gateway ends it; ``auto`` closes where the gateway is an Envoy."""

_BUFFERED = (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL)
_OF_ENVOY = "x-envoy-"
"""How the metadata begin that only Envoy's own client sends with a call."""
_END = grpc.aio.EOF


def _is_envoy(context: Any) -> bool:
    return any(name.startswith(_OF_ENVOY) for name, _ in context.invocation_metadata() or ())


async def process(picker: Picker, side: ResponseSide, context: Any) -> None:
    """Answer one stream. ``context`` is the ``grpc.aio.ServicerContext``; its messages are bytes."""
    conversation = _Conversation(picker, context)
    picker.open_streams += 1
    try:
        async with asyncio.timeout(picker.settings.limits.idle_timeout_s) as bound:
            conversation.bound = bound
            goes_on = await conversation.request_phase()
    except ErrorAnswer as error:
        await conversation.refuse(error)
        return
    except TimeoutError:
        message = "the request body did not come in time"
        await conversation.refuse(ErrorAnswer(408, message, "request_timeout", outcome="client_error"))
        return
    finally:
        picker.open_streams -= 1
    if goes_on and (side == "pass" or (side == "auto" and not _is_envoy(context))):
        await conversation.rest()


class _Conversation:
    __slots__ = ("_body_passes", "_context", "_duplex_response", "_head", "_pick", "_picker", "_subset", "bound")

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
        self.bound: asyncio.Timeout

    async def _next(self) -> Any:
        """The next message, or None at the stream's end."""
        received = await self._context.read()
        return None if received is _END else ProcessingRequest.FromString(received)

    async def refuse(self, error: ErrorAnswer) -> None:
        self._picker.refused(error)
        await self._context.write(refusal(error, "" if self._head is None else self._head.path))

    async def request_phase(self) -> bool:
        """Up to the answer that says where the request goes; whether the stream may go on behind it.

        Raises ErrorAnswer, and TimeoutError where the body's next part does not come.
        """
        message = await self._next()
        if message is None:
            return False
        kind = message.WhichOneof("request")
        modes = message.protocol_config
        self._duplex_response = modes.response_body_mode == BodyMode.FULL_DUPLEX_STREAMED
        if kind != "request_headers":
            await self._pass_on(kind, message)
            return True
        picker = self._picker
        self._head = head = RequestHead(message.request_headers.headers.headers, picker.class_header)
        self._subset = subset_of(message)
        endpoint = picker.accept(head)
        # A gateway that does not tell is one of before the field was; the protocol wants duplex of those.
        mode = modes.request_body_mode if message.HasField("protocol_config") else BodyMode.FULL_DUPLEX_STREAMED
        if message.request_headers.end_of_stream:
            await self._context.write(self._picked(endpoint, b"", picked_at_headers))
        elif mode == BodyMode.FULL_DUPLEX_STREAMED:
            return await self._duplex(endpoint)
        elif mode in _BUFFERED:
            return await self._buffered(endpoint)
        else:
            self._body_passes = True
            await self._context.write(self._picked(endpoint, None, picked_at_headers))
        return True

    async def _buffered(self, endpoint: Endpoint) -> bool:
        """The gateway waits for an answer to the headers before it sends the body, in one message."""
        await self._context.write(CONTINUE_HEADERS)
        message = await self._next()
        if message is None:
            return False
        kind = message.WhichOneof("request")
        if kind != "request_body":
            # Nothing but trailers: the headers have gone, and only the metadata can still tell.
            raise ErrorAnswer(400, "the request has no body", "invalid_json", outcome="client_error")
        body = message.request_body.body
        self._picker.check_size(len(body))
        whole = message.request_body.end_of_stream
        await self._context.write(self._picked(endpoint, body, picked_at_body, whole=whole))
        return True

    async def _duplex(self, endpoint: Endpoint) -> bool:
        """All of the body comes before anything is answered, and is handed back."""
        parts: list[bytes] = []
        size = 0
        loop = asyncio.get_running_loop()
        idle_s = self._picker.settings.limits.idle_timeout_s
        while True:
            message = await self._next()
            if message is None:
                return False
            kind = message.WhichOneof("request")
            if kind == "request_body":
                part = message.request_body
                if part.body:
                    parts.append(part.body)
                    size += len(part.body)
                    self._picker.check_size(size)
                ended = part.end_of_stream
            elif kind == "request_trailers":
                ended = False
            else:
                continue
            if ended or kind == "request_trailers":
                break
            self.bound.reschedule(loop.time() + idle_s)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        write = self._context.write
        await write(self._picked(endpoint, body, picked_at_headers))
        self.bound.reschedule(None)  # from here on it is the gateway that may be slow to take what is written
        if body or ended:
            for piece in echoed_body("request_body", body, end_of_stream=ended):
                await write(piece)
        if not ended:
            await write(PASS["request_trailers"])
        return True

    def _picked(self, endpoint: Endpoint, body: bytes | None, made: Any, *, whole: bool = True) -> bytes:
        head = self._head
        assert head is not None
        self._pick = pick = self._picker.pick(head, endpoint, body, self._subset, whole=whole)
        answer: bytes = made(pick, head.removed, self._picker.authorization)
        return answer

    async def rest(self) -> None:
        """Everything behind the pick passes: what is left of the request, and the response."""
        while (message := await self._next()) is not None:
            await self._pass_on(message.WhichOneof("request"), message)

    async def _pass_on(self, kind: str | None, message: Any) -> None:
        write = self._context.write
        if kind == "response_headers":
            await write(told_client(self._pick))
        elif kind == "response_body" and self._duplex_response:
            part = message.response_body
            for piece in echoed_body("response_body", part.body, end_of_stream=part.end_of_stream):
                await write(piece)
        elif kind == "request_body":
            if self._body_passes or self._head is None:
                await write(PASS[kind])
        elif kind is not None:
            await write(PASS[kind])
