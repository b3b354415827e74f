"""The simulated engine as an ASGI application: vLLM's HTTP surface over ranks that step in real time."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal, TypeAlias

from adaptive_gamma.simulation.engine.acceptance import ScriptedAcceptance
from adaptive_gamma.simulation.engine.faults import FaultError, Faults
from adaptive_gamma.simulation.engine.metrics import metrics_page
from adaptive_gamma.simulation.engine.ranks import Generation, Ranks
from adaptive_gamma.simulation.engine.requests import ApiError, GenerationRequest, RequestRules, read_request
from adaptive_gamma.simulation.engine.responses import Answer, request_metrics, sse
from adaptive_gamma.simulation.engine.settings import EngineSettings
from adaptive_gamma.simulation.engine.steps import FinishedRequest, TokenEvent
from adaptive_gamma.simulation.engine.text import answer_text

__all__ = ["SERVER_NAME", "SimulatedEngine"]

SERVER_NAME = "adaptive-gamma-simulated-engine"
"""The ``Server`` header and the owner of the model."""

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_GUARDED = ("/v1", "/v2", "/inference", "/cohere")
_JSON = b"application/json"
_HTML_PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>"
_ENGINE_DEAD = {
    "error": {
        "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
}


class _Disconnected(Exception):
    """The client has left."""


class SimulatedEngine:
    """A simulated vLLM server. Serve it with any ASGI server that runs the lifespan protocol.

    Attributes:
        settings: what it simulates.
        faults: what goes wrong now; change it at any time.
        ranks: the engine itself.
    """

    def __init__(self, settings: EngineSettings, *, faults: Faults | None = None) -> None:
        self.settings = settings
        self.faults = faults if faults is not None else Faults()
        self.ranks = Ranks(settings, time.monotonic)
        core = self.ranks.cores[0]
        self._gamma = core.max_gamma if core.speculative else None
        self._rules = RequestRules(settings.model, settings.limits.max_model_len, core.speculative)
        self._started = int(time.time())
        self._stopping = False
        self._routes: dict[tuple[str, str], Callable[[_Receive, _Send], Awaitable[None]]] = {
            ("GET", "/health"): self._health,
            ("GET", "/ping"): self._health,
            ("POST", "/ping"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/load"): self._load,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
            ("GET", "/simulate/faults"): self._show_faults,
            ("POST", "/simulate/faults"): self._change_faults,
            ("GET", "/simulate/acceptance"): self._show_acceptance,
            ("POST", "/simulate/acceptance"): self._change_acceptance,
        }

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                await self._route(scope, receive, send)
            except ApiError as error:
                await _answer(send, error.status, error.body)
            except _Disconnected:
                return

    def begin_shutdown(self) -> None:
        """Abort all requests and take no more, as vLLM does on SIGTERM by default."""
        self._stopping = True
        self.ranks.abort_all()

    async def _lifespan(self, receive: _Receive, send: _Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.ranks.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.ranks.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _route(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        method, path = scope["method"], scope["path"]
        if path.startswith(_GUARDED) and not self._authorized(scope):
            await _answer(send, 401, {"error": "Unauthorized"})
            return
        handler = self._routes.get((method, path))
        if handler is None:
            known = any(path == name for _, name in self._routes)
            status, text = (405, "Method Not Allowed") if known else (404, "Not Found")
            raise ApiError(status, text, text)
        await handler(receive, send)

    def _authorized(self, scope: _Scope) -> bool:
        key = self.settings.api_key
        if key is None:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, key.encode())

    async def _health(self, receive: _Receive, send: _Send) -> None:
        status = self.faults.health or (503 if self.ranks.failed() else 200)
        await _answer_bytes(send, status, b"", b"text/plain; charset=utf-8")

    async def _version(self, receive: _Receive, send: _Send) -> None:
        await _answer(send, 200, {"version": "simulated"})

    async def _load(self, receive: _Receive, send: _Send) -> None:
        await _answer(send, 200, {"server_load": self.ranks.open_requests})

    async def _models(self, receive: _Receive, send: _Send) -> None:
        model = {
            "id": self.settings.model,
            "object": "model",
            "created": self._started,
            "owned_by": SERVER_NAME,
            "root": self.settings.model,
            "parent": None,
            "max_model_len": self.settings.limits.max_model_len,
            "permission": [],
        }
        await _answer(send, 200, {"object": "list", "data": [model]})

    async def _metrics(self, receive: _Receive, send: _Send) -> None:
        page, status, kind = b"", 200, b"text/plain; version=0.0.4; charset=utf-8"
        if self.settings.statistics:
            page = metrics_page(self.ranks.metrics, created=self.settings.created_series)
        match self.faults.metrics:
            case "html":
                page, kind = _HTML_PAGE, b"text/html; charset=utf-8"
            case "empty":
                page = b""
            case "500":
                status, page, kind = 500, b"Internal Server Error", b"text/plain; charset=utf-8"
            case "cut":
                page = page[: page.rfind(b" ", 0, len(page) // 2)]
            case "silent":
                await _until_disconnect(receive)
                return
        await _answer_bytes(send, status, page, kind)

    async def _show_faults(self, receive: _Receive, send: _Send) -> None:
        await _answer(send, 200, self.faults.as_dict())

    async def _change_faults(self, receive: _Receive, send: _Send) -> None:
        try:
            self.faults.change(await _json_object(receive))
        except FaultError as error:
            raise ApiError(400, str(error), "BadRequestError") from error
        await self._show_faults(receive, send)

    async def _show_acceptance(self, receive: _Receive, send: _Send) -> None:
        await _answer(send, 200, self.ranks.cores[0].acceptance.rates)

    async def _change_acceptance(self, receive: _Receive, send: _Send) -> None:
        asked = await _json_object(receive)
        try:
            self.ranks.set_acceptance(ScriptedAcceptance(self.ranks.cores[0].acceptance.rates | asked))
        except (ValueError, TypeError) as error:
            raise ApiError(400, str(error), "BadRequestError") from error
        await self._show_acceptance(receive, send)

    async def _chat(self, receive: _Receive, send: _Send) -> None:
        await self._generate("chat", receive, send)

    async def _completion(self, receive: _Receive, send: _Send) -> None:
        await self._generate("completion", receive, send)

    async def _generate(self, kind: Literal["chat", "completion"], receive: _Receive, send: _Send) -> None:
        request = read_request(kind, await _body(receive), self._rules)
        if self._stopping:
            raise ApiError(500, "cannot schedule new futures after shutdown", "InternalServerError")
        if self.faults.generation == "500":
            await _answer(send, 500, _ENGINE_DEAD)
            return
        if self.faults.generation == "503":
            busy = "The engine is currently busy and cannot accept new requests."
            raise ApiError(503, busy, "ServiceUnavailableError")
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        answer_id = f"{prefix}-{uuid.uuid4().hex[:16]}"
        generation = self.ranks.submit(
            answer_id,
            request.prompt,
            request.prompt_tokens,
            request.max_tokens,
            ends_by_itself=not request.ignore_eos,
        )
        exchange = _Exchange(self.ranks, generation, receive)
        try:
            answer = Answer(request, answer_id, self.settings.model, int(time.time()))
            if request.stream:
                await self._stream(exchange, request, answer, send)
            else:
                await self._whole(exchange, answer, send)
        finally:
            exchange.close()
            self.ranks.abort(generation)

    async def _whole(self, exchange: _Exchange, answer: Answer, send: _Send) -> None:
        events = 0
        while True:
            event = await exchange.next_event()
            events += 1
            fault = self.faults.generation
            if fault is not None and events > self.faults.after_events:
                if fault == "silent":
                    await exchange.until_disconnect()
                if fault == "cut":
                    await send(_head(200, [(b"content-type", _JSON), (b"content-length", b"1000")]))
                    await _part(send, b'{"id":"')
                    raise _Disconnected
                await _answer(send, 500, _ENGINE_DEAD)
                return
            if event.finished is not None:
                break
        finished = event.finished
        text = exchange.text_between(0, finished.generated)
        body = answer.whole(text, finished.generated, finished.reason, self._request_metrics(finished))
        await _answer(send, 200, body)

    async def _stream(self, exchange: _Exchange, request: GenerationRequest, answer: Answer, send: _Send) -> None:
        event = await exchange.next_event()
        await send(_head(200, [(b"content-type", b"text/event-stream; charset=utf-8")]))
        opening = answer.opening()
        if opening is not None:
            await _part(send, opening)
        given = events = 0
        while True:
            fault = self.faults.generation
            if fault is not None and events >= self.faults.after_events:
                if fault == "silent":
                    await exchange.until_disconnect()
                if fault == "cut":
                    raise _Disconnected
                await _part(send, sse(_ENGINE_DEAD))
                break
            text = exchange.text_between(given, given + event.tokens)
            given += event.tokens
            events += 1
            await _part(send, answer.event(text, given, event.finished.reason if event.finished else None))
            if event.finished is not None:
                closing = answer.closing(given, self._request_metrics(event.finished))
                if closing is not None:
                    await _part(send, closing)
                break
            event = await exchange.next_event()
        exchange.close()
        await _part(send, b"data: [DONE]\n\n", more=False)

    def _request_metrics(self, finished: FinishedRequest) -> dict[str, Any] | None:
        settings = self.settings
        return request_metrics(
            finished, self._gamma, timings=settings.per_request_metrics, acceptance=settings.acceptance_report
        )


class _Exchange:
    """A generation and the client that waits for it; whichever ends first."""

    def __init__(self, ranks: Ranks, generation: Generation, receive: _Receive) -> None:
        self._ranks = ranks
        self._generation = generation
        self._left = False
        self._watch = asyncio.create_task(self._abort_when_left(receive))

    async def next_event(self) -> TokenEvent:
        """The next event; raises ``_Disconnected`` when the client has left."""
        event = await self._generation.next_event()
        if self._left:
            raise _Disconnected
        return event

    async def until_disconnect(self) -> None:
        """Wait for the client to leave, then raise ``_Disconnected``."""
        await self._watch
        raise _Disconnected

    def text_between(self, first: int, last: int) -> str:
        """The words of the answer's tokens ``first`` .. ``last - 1``."""
        request = self._generation.request
        return answer_text(request.request_class, request.seed, first, last - first)

    def close(self) -> None:
        """Stop watching the client."""
        self._watch.cancel()

    async def _abort_when_left(self, receive: _Receive) -> None:
        await _until_disconnect(receive)
        self._left = True
        self._ranks.abort(self._generation)  # gives it a last event, which wakes next_event


async def _until_disconnect(receive: _Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: _Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _json_object(receive: _Receive) -> dict[str, Any]:
    try:
        value = json.loads(await _body(receive))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", "BadRequestError") from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body should be a JSON object", "BadRequestError")
    return value


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _part(send: _Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _answer_bytes(send: _Send, status: int, body: bytes, kind: bytes) -> None:
    await send(_head(status, [(b"content-type", kind), (b"content-length", str(len(body)).encode())]))
    await _part(send, body, more=False)


async def _answer(send: _Send, status: int, payload: object) -> None:
    await _answer_bytes(send, status, json.dumps(payload, separators=(",", ":")).encode(), _JSON)
