"""The data port's way through: a request's head and body become an exchange with an engine, or an answer of our own."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from adaptive_gamma.proxy.answers import ErrorAnswer, error_body, shortened
from adaptive_gamma.proxy.engine_body import may_carry_gamma
from adaptive_gamma.proxy.exchange import Exchange
from adaptive_gamma.proxy.headers import ClientHeaders, Pairs
from adaptive_gamma.proxy.intake import Intake
from adaptive_gamma.proxy.metrics import NO_REPLICA
from adaptive_gamma.proxy.search import SearchExchange
from adaptive_gamma.proxy.told_exchange import ToldExchange, ToldSearch
from adaptive_gamma.routing import RequestNeeds
from adaptive_gamma.routing.endpoints import Endpoint, Handling
from adaptive_gamma.routing.json_request import JsonRequest, parse_json

if TYPE_CHECKING:
    from adaptive_gamma.proxy.client_connection import ClientConnection
    from adaptive_gamma.proxy.data_plane import DataPlane
    from adaptive_gamma.proxy.request_reader import Refusal
    from adaptive_gamma.routing import Locality
    from adaptive_gamma.routing.body_room import BodyRoom

__all__ = ["DataPath"]

# A member read off its class costs as much as a call.
_MODELS, _SEARCH = Handling.MODELS, Handling.SEARCH


class DataPath:
    """Reads requests, classifies them, and has them carried out. Every request is counted once, however it ends."""

    __slots__ = ("_plane",)

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    @property
    def body_room(self) -> BodyRoom:
        """The room that bodies share."""
        return self._plane.body_room

    @property
    def stall_s(self) -> float:
        """How long a client may leave a full send buffer unread or a body unfinished, in seconds."""
        return self._plane.settings.limits.idle_timeout_s

    def accept(
        self, method: bytes, target: bytes, path: str, fields: Pairs, *, is_1_1: bool, peer: bytes | None
    ) -> Intake:
        """Look at a head; ``peer`` is the client's address. Raises UnacceptableHead."""
        plane = self._plane
        endpoint = plane.endpoints.find(path)
        client = ClientHeaders(fields, plane.class_header, peer, is_1_1)
        intake = Intake(method, target, path, client, endpoint)
        if plane.telling.active:
            plane.telling.begins(intake)
        if endpoint is None:
            message = f"there is no {shortened(path)} here"
            intake.refusal = ErrorAnswer(404, message, "path_not_found", outcome="client_error")
        elif method not in endpoint.methods and method != b"OPTIONS":
            message = f"{method.decode('ascii')} is not allowed on {shortened(path)}"
            allow = ((b"allow", endpoint.allow),)
            intake.refusal = ErrorAnswer(405, message, "method_not_allowed", outcome="client_error", headers=allow)
        elif (size := client.content_length) is not None and size > plane.body_bytes:
            intake.refusal = self.body_refusal(size)
        return intake

    def body_refusal(self, size: int) -> ErrorAnswer | None:
        """The answer to a body of so many bytes, when that is too many."""
        limit = self._plane.body_bytes
        if size <= limit:
            return None
        message = f"the request body is over the limit of {limit} bytes"
        return ErrorAnswer(413, message, "body_too_large", outcome="client_error")

    def turned_away(self) -> Refusal:
        """Count a connection that is one too many, and what it is told."""
        self._plane.metrics.request_ended(NO_REPLICA, NO_REPLICA, "rejected")
        return 503, "too many connections are open", "too_many_connections"

    def begin(self, intake: Intake, body: bytes, connection: ClientConnection) -> None:
        """Serve a request that has come whole."""
        plane, endpoint, method = self._plane, intake.endpoint, intake.method
        assert endpoint is not None
        told = intake.account is not None
        if intake.account is not None:
            intake.account.body_came()
        try:
            if endpoint.handling is _MODELS and method != b"OPTIONS":
                page = _models_answer(intake.path, plane.fleet.models_page())
                if page is not None:
                    text = json.dumps(page).encode("utf-8")
                    self.ended(intake, "ok", 200, len(text))
                    connection.answer(200, intake.own_fields(len(text)), text)
                    return
            request = self._request(intake, endpoint, body)
            needs, locality = self._needs(intake, endpoint, request)
        except ErrorAnswer as error:
            self.answer_error(intake, error, connection)
            return
        intake.stores = endpoint.stores and request is not None and request.member("store") is not False
        if endpoint.handling is _SEARCH and method != b"OPTIONS":
            (ToldSearch if told else SearchExchange)(plane, connection, intake, body, needs).begin()
        else:
            kind = ToldExchange if told else Exchange
            exchange = kind(plane, connection, intake, body, needs, locality, endpoint.generates)
            exchange.takes_gamma = endpoint.generates and may_carry_gamma(plane.control, request)
            if request is not None and endpoint.generates and plane.fleet.learning is not None and request.one_choice():
                streams = request.streams
                exchange.learn_from = "stream" if streams else "body"
                exchange.asking = request if streams and plane.asks_for_usage else None
            exchange.begin()

    def answer_error(self, intake: Intake, error: ErrorAnswer, connection: ClientConnection) -> None:
        """Answer a request that no engine gets to see."""
        body = error_body(error.status, error.message, error.code, intake.path)
        self.ended(intake, error.outcome, error.status, len(body), error.code)
        connection.answer(error.status, [*intake.own_fields(len(body)), *error.headers], body)

    def ended(
        self, intake: Intake, outcome: str, status: int | None = None, size: int = 0, code: str | None = None
    ) -> None:
        """Count a request that had no exchange; ``status``, ``size`` of the body and ``code`` are of what it got."""
        self._plane.metrics.request_ended(NO_REPLICA, NO_REPLICA, outcome)
        if intake.account is not None:
            intake.account.sent_bytes, intake.account.code = size, code
            intake.account.ended(outcome, status)

    def _request(self, intake: Intake, endpoint: Endpoint, body: bytes) -> JsonRequest | None:
        """What the body says, where it is JSON. Raises ErrorAnswer."""
        if not endpoint.json or intake.method == b"OPTIONS":
            return None
        return parse_json(body, intake.client.content_encoding)

    def _needs(
        self, intake: Intake, endpoint: Endpoint, request: JsonRequest | None
    ) -> tuple[RequestNeeds, Locality | None]:
        plane, client = self._plane, intake.client
        classify = plane.classifier.classify
        if request is None:
            return RequestNeeds(classify(path=intake.path, header=client.request_class)), None
        generates = endpoint.generates
        request_class = classify(
            path=intake.path,
            model=request.model,
            header=client.request_class,
            text=request.prompt_text if generates else None,
        )
        tokens = request.prompt_tokens
        locality = None
        affinity = plane.affinity
        if affinity is not None and generates:
            session, prefix = client.session or request.user, request.prefix_text()
            if session or prefix:
                locality = affinity.look_up(session, prefix, time.monotonic())
        needs = RequestNeeds(
            request_class,
            tokens,
            request.model,
            request.parameters,
            request.max_output_tokens,
            locality.cached if locality is not None and locality.cached else None,
            plane.stored.holder(request.member("previous_response_id")) if endpoint.stores else None,
        )
        return needs, locality


def _models_answer(path: str, page: dict[str, Any] | None) -> dict[str, Any] | None:
    """The list of models, or the one the path names; None while no list is known. Raises ErrorAnswer."""
    _, _, name = path.partition("/v1/models/")
    if page is None or not name:
        return page
    entry: dict[str, Any] | None = next((entry for entry in page["data"] if entry["id"] == name), None)
    if entry is None:
        message = f"no replica has the model {shortened(name)!r}"
        raise ErrorAnswer(404, message, "model_not_found", outcome="client_error")
    return entry
