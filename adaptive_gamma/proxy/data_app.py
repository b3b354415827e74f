"""The data port as a raw ASGI application: nothing between a request's bytes and an engine but what is written here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

from adaptive_gamma.proxy.answers import ErrorAnswer, error_body, own_headers, shortened
from adaptive_gamma.proxy.data_plane import DataPlane
from adaptive_gamma.proxy.endpoints import Endpoint, Handling
from adaptive_gamma.proxy.exchange import Exchange, Send, Wire
from adaptive_gamma.proxy.headers import ClientHeaders, read_client_headers
from adaptive_gamma.proxy.http_protocol import CUT
from adaptive_gamma.proxy.metrics import NO_REPLICA
from adaptive_gamma.proxy.request import ClientGone, Receive, StreamCut, parse_json, read_body
from adaptive_gamma.proxy.watch import DisconnectWatch
from adaptive_gamma.routing import RequestNeeds

__all__ = ["DataApp"]

Scope = MutableMapping[str, Any]


class DataApp:
    """Reads a request, classifies it, has it decided, and passes the engine's answer as it comes."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Every request is counted once, however it ends."""
        if scope["type"] != "http":
            raise RuntimeError(f"the data port does not speak {scope['type']}")
        plane = self._plane
        peer = scope.get("client")
        client = read_client_headers(scope["headers"], plane.class_header, peer[0] if peer else None)
        labels = _Labels()
        try:
            endpoint = self._endpoint(scope)
            body = await read_body(receive, plane.settings.limits.body_bytes, client.content_length)
            await self._serve(scope, receive, send, endpoint, client, body, labels)
        except ErrorAnswer as answer:
            labels.outcome = answer.outcome
            await _answer_error(answer, client.request_id, scope["method"], send)
        except ClientGone:
            labels.outcome = "client_closed"
        except StreamCut:
            cut = scope.get("extensions", {}).get(CUT)
            if cut is None:
                # Another server than ours closes the connection when the application fails.
                raise
            cut["call"]()
        finally:
            outcome = labels.take()
            plane.metrics.request_ended(labels.replica, labels.request_class, outcome)

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        endpoint: Endpoint,
        client: ClientHeaders,
        body: bytes,
        labels: _Labels,
    ) -> None:
        plane = self._plane
        method = scope["method"]
        if endpoint.handling is Handling.MODELS and method != "OPTIONS":
            page = plane.fleet.models_page()
            if page is not None:
                await _answer_json(page, client.request_id, send)
                labels.outcome = "ok"
                return
        needs = self._needs(scope["path"], endpoint, method, client, body)
        query = scope["query_string"]
        target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
        has_body = method == "POST" or bool(body)
        wire = Wire(method.encode("ascii"), target, client, body, has_body)
        watch = DisconnectWatch(receive)
        exchange = labels.exchange = Exchange(plane, wire, needs, send, watch)
        try:
            if endpoint.handling is Handling.SEARCH and method != "OPTIONS":
                await exchange.search(self._search_order())
            else:
                await exchange.run(scope["path"], learn=endpoint.generates)
        except asyncio.CancelledError:
            if not watch.absorb():
                raise
        finally:
            watch.disarm()

    def _endpoint(self, scope: Scope) -> Endpoint:
        path, method = scope["path"], scope["method"]
        endpoint = self._plane.endpoints.find(path)
        if endpoint is None:
            raise ErrorAnswer(404, f"there is no {shortened(path)} here", "path_not_found", outcome="client_error")
        if method not in endpoint.methods and method != "OPTIONS":
            raise ErrorAnswer(
                405,
                f"{method} is not allowed on {shortened(path)}",
                "method_not_allowed",
                outcome="client_error",
                headers=((b"allow", endpoint.allow),),
            )
        return endpoint

    def _needs(self, path: str, endpoint: Endpoint, method: str, client: ClientHeaders, body: bytes) -> RequestNeeds:
        classify = self._plane.classifier.classify
        if not endpoint.json or method == "OPTIONS":
            return RequestNeeds(classify(path=path, header=client.request_class))
        request = parse_json(body, client.content_encoding)
        request_class = classify(
            path=path,
            model=request.model,
            header=client.request_class,
            text=request.prompt_text if endpoint.generates else None,
        )
        return RequestNeeds(
            request_class, request.prompt_tokens, request.model, request.parameters, request.max_output_tokens
        )

    def _search_order(self) -> list[str]:
        """Healthy replicas; all of them where none is."""
        states = self._plane.fleet.states
        return [state.name for state in states if state.healthy] or [state.name for state in states]


class _Labels:
    """What a request is counted as."""

    __slots__ = ("exchange", "outcome", "replica", "request_class")

    def __init__(self) -> None:
        self.replica = self.request_class = NO_REPLICA
        self.outcome: str | None = None
        self.exchange: Exchange | None = None

    def take(self) -> str:
        """The outcome; replica and class are filled in."""
        exchange = self.exchange
        if exchange is not None:
            if exchange.replica != NO_REPLICA:
                self.replica, self.request_class = exchange.replica, exchange.request_class
            self.outcome = self.outcome or exchange.outcome
        return self.outcome or "client_closed"


async def _answer_error(answer: ErrorAnswer, request_id: bytes, method: str, send: Send) -> None:
    body = error_body(answer.status, answer.message, answer.code)
    headers = [*own_headers(b"application/json", len(body)), (b"x-request-id", request_id), *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


async def _answer_json(page: dict[str, Any], request_id: bytes, send: Send) -> None:
    body = json.dumps(page).encode("utf-8")
    headers = [*own_headers(b"application/json", len(body)), (b"x-request-id", request_id)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
