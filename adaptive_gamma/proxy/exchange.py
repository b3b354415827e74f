"""One request and its answer: which replicas are tried, and how the answer's bytes reach the client.

All of it is callbacks: nothing here waits. The engine's connection calls with a head, parts of a body, an end or a
failure; the client's connection calls when the client leaves or reads too slowly. In-flight counts, the record in the
decision log and the request's outcome are closed in one place, ``_end``.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from adaptive_gamma.errors import ConnectError, NoReplica, UpstreamError, UpstreamTimeout
from adaptive_gamma.proxy.answers import (
    ErrorAnswer,
    error_body,
    http_date,
    own_headers,
    request_id_fields,
    shortened,
    speaks_messages,
)
from adaptive_gamma.proxy.choice import Choice
from adaptive_gamma.proxy.decision_log import DecisionRecord
from adaptive_gamma.proxy.headers import Pairs, engine_headers, own_lines, passed_to_client
from adaptive_gamma.proxy.held import HeldAnswer
from adaptive_gamma.proxy.learning import ResponseTap
from adaptive_gamma.proxy.metrics import NO_REPLICA
from adaptive_gamma.proxy.no_replica import none_left, waited_too_long
from adaptive_gamma.proxy.upstream import UpstreamCall
from adaptive_gamma.routing import RequestNeeds, is_capable

if TYPE_CHECKING:
    from adaptive_gamma.engines import StreamAsk
    from adaptive_gamma.fleet.open_requests import OpenRequest
    from adaptive_gamma.proxy.client_connection import ClientConnection
    from adaptive_gamma.proxy.data_plane import DataPlane
    from adaptive_gamma.proxy.request import JsonRequest
    from adaptive_gamma.proxy.wire import Wire
    from adaptive_gamma.routing import Locality

__all__ = ["Exchange"]

_log = logging.getLogger("adaptive_gamma.proxy")

_REJECTIONS = (429, 503)
_GATEWAY_FAILURES = (502, 504)
"""Answers that count against a replica. Any other may be the request's own doing, a 500 too, and whoever sends such
requests could take the fleet down; an engine that is broken says so on its health page."""


class Exchange:
    """Carries one request out, on the replica the decision names and, where that is safe, on another after it."""

    __slots__ = (
        "_added", "_began", "_body", "_call", "_choice", "_client", "_held", "_needs", "_open", "_outcome", "_passing",
        "_path", "_plane", "_pool", "_record", "_replica", "_request_class", "_retries", "_retry_reason", "_status",
        "_tap", "_tried", "_wire", "asking", "learn", "learn_acceptance", "locality",
    )  # fmt: skip

    def __init__(
        self, plane: DataPlane, client: ClientConnection, wire: Wire, body: bytes, needs: RequestNeeds, path: str
    ) -> None:
        self._plane = plane
        self._body = body
        self._client = client
        self._wire = wire
        self._needs = needs
        self._path = path
        self._began = time.monotonic()
        self._retries = plane.settings.retry.attempts
        self._retry_reason: str | None = None
        """Why another replica is tried now."""
        self._tried: tuple[str, ...] = ()
        self._choice: Choice | None = None
        self._call: UpstreamCall | None = None
        self._open: OpenRequest | None = None
        self._held: HeldAnswer | None = None
        self._record: DecisionRecord | None = None
        self._tap: ResponseTap | None = None
        self._passing = False
        """The head has been passed; what goes wrong now can only be shown by breaking off."""
        self._replica = NO_REPLICA
        self._request_class = needs.request_class
        """The class in the policy's words, once decided."""
        self._outcome = "client_closed"
        self._status: int | None = None
        self._added: StreamAsk | None = None
        """What the engine was asked in the client's place."""
        self.learn = self.learn_acceptance = False
        """Whether the answer may tell the engine's gamma, and how the drafts of one request fared."""
        self.asking: JsonRequest | None = None
        """The request, where the engine may have to be asked for that."""
        self.locality: Locality | None = None

    def begin(self) -> None:
        """Start; from here on the client's connection knows this exchange, until it ends."""
        self._client.exchange = self
        self._advance()

    # -- the client's side --------------------------------------------------------------------------------------------

    def client_gone(self) -> None:
        """The client left: the engine must stop."""
        self._outcome = "client_closed"
        if self._tap is not None:
            self._tap.finish(whole=False)
        self._end()

    def client_paused(self) -> None:
        """The client does not keep up."""
        if self._call is not None:
            self._call.pause()

    def client_resumed(self) -> None:
        if self._call is not None:
            self._call.resume()

    def on_fault(self) -> None:
        """A fault of ours; it is logged elsewhere."""
        if self._client.exchange is not self:
            return  # it came after the end
        if self._passing:
            self._break_off("internal_error")
        else:
            self._refuse(ErrorAnswer(500, "the proxy failed", "internal_error", outcome="internal_error"))

    # -- which replica ------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        try:
            choice = self._plane.chooser.choose(self._needs, self._tried)
        except NoReplica as error:
            if not (error.at_capacity and self._plane.waiting.enter(self)):
                self._give_up(error)
            return
        self._take(choice)

    def try_again(self) -> bool:
        """From the waiting room: whether a replica has room now. Also True when this request has ended otherwise."""
        try:
            choice = self._plane.chooser.choose(self._needs, self._tried)
        except NoReplica as error:
            if error.at_capacity:
                return False
            self._give_up(error)
            return True
        self._take(choice)
        return True

    @property
    def waits_for(self) -> object:
        """What tells requests apart in the waiting room: those alike find room or none together."""
        needs, states = self._needs, self._plane.fleet.states
        return needs.model, tuple(state.name for state in states if not is_capable(needs, state)), self._tried

    def waited_too_long(self) -> None:
        """From the waiting room."""
        if self._held is not None:
            self._give_up(None)
            return
        self._refuse(waited_too_long(self._plane.settings.load.queue_timeout_s))

    def _take(self, choice: Choice) -> None:
        plane = self._plane
        if self._retry_reason is not None:
            plane.metrics.retried(self._retry_reason)
            self._retry_reason = None
        self._choice = choice
        self._note(choice)
        self._send_to(choice.replica, choice.decision.request_class)

    def _send_to(self, name: str, request_class: str) -> None:
        plane, wire = self._plane, self._wire
        self._replica, self._outcome, self._status = name, "client_closed", None
        self._pool = plane.fleet.by_name(name).state.pool
        upstream = plane.upstreams[name]
        body, self._added = self._body, None
        if self.asking is not None and (asked := plane.asked(name, self._path, self.asking, body)) is not None:
            body, self._added = asked
        length, readable = len(body) if wire.has_body else None, self._added is not None
        headers = engine_headers(wire.client, upstream.host_header, plane.engine_key, length, readable=readable)
        self._open = plane.fleet.open_request(name, request_class).begin()
        self._call = upstream.call(self, wire.method, wire.target, headers, body)
        self._call.start()

    def _try_another(self, reason: str) -> None:
        self._retries -= 1
        self._retry_reason = reason
        self._tried = (*self._tried, self._replica)
        self._advance()

    def _may_retry(self) -> bool:
        choice = self._choice
        return self._retries > 0 or (choice is not None and choice.decision.reason == "fallback")

    def _wants_another(self, status: int) -> str | None:
        """Why another replica should be asked after an answer with this status, or None."""
        return f"rejected_{status}" if status in _REJECTIONS and self._may_retry() else None

    def _give_up(self, error: NoReplica | ConnectError | None) -> None:
        """No replica is left: pass on the answer that was held, or say why there is none."""
        held, self._held = self._held, None
        if held is not None:
            self._close_record()
            self._replica, self._record, self._choice = held.replica, held.record, held.choice
            self._call = held.call
            held.pass_to(self)
            if self._client.paused:
                self.client_paused()
            return
        self._refuse(none_left(error, self._needs.model, tried=self._replica != NO_REPLICA))

    # -- the engine's side (AnswerSink) -------------------------------------------------------------------------------

    def on_head(self, status: int, headers: Pairs, *, more: bool) -> None:
        plane, name, choice = self._plane, self._replica, self._choice
        if status in _GATEWAY_FAILURES:
            plane.fleet.note_failure(name)
        if choice is not None:
            plane.metrics.first_byte[choice.pool].observe(time.monotonic() - self._began)
        another = self._wants_another(status)
        if another is not None:
            plane.fleet.note_success(name)
            self._hold(status, headers)
            self._outcome, self._status = "rejected", status
            self._try_another(another)
            return
        if self.learn:
            request_class = self._request_class if self.learn_acceptance else None
            self._tap = tap = ResponseTap.wanted(
                plane.fleet, name, status, headers, request_class=request_class, log=plane.reports, added=self._added
            )
            if tap is not None and tap.removes:
                headers = [pair for pair in headers if pair[0] != b"content-length"]
        if self.locality is not None and status == 200 and plane.affinity is not None:
            plane.affinity.record(self.locality, name, self._needs.prompt_tokens or 0, time.monotonic())
        held, self._held = self._held, None
        if held is not None:
            held.drop()
        self.pass_head(status, headers, more=more)

    def pass_head(self, status: int, headers: Pairs, *, more: bool) -> None:
        """Pass an answer on from its head; parts, end or failure follow."""
        self._passing = True
        self._status = status
        # Nothing is sent again from here on, and a stream may be long.
        self._body, self.asking = b"", None
        if self._call is not None:
            self._call.forget_request()
        self._client.start(status, passed_to_client(headers, http_date()), self._own_fields(), more=more)
        if self._client.paused:
            # It has not even taken the answer before this one.
            self.client_paused()

    def on_body(self, pieces: list[bytes], *, more: bool) -> None:
        if self._tap is not None:
            pieces = self._tap.feed(pieces)
        self._client.send(pieces, more=more)

    def on_end(self) -> None:
        self._call = None
        self._finish_tap()
        status = self._status or 0
        if status not in _GATEWAY_FAILURES:
            self._plane.fleet.note_success(self._replica)
        if status in _REJECTIONS:
            self._outcome = "rejected"
        elif status >= 500:
            self._outcome = "engine_error"
        else:
            self._outcome = "client_error" if status >= 400 else "ok"
        if self._choice is not None:
            self._plane.metrics.duration[self._choice.pool].observe(time.monotonic() - self._began)
        client = self._client
        self._end()
        client.finish()

    def on_failure(self, error: UpstreamError) -> None:
        plane, name = self._plane, self._replica
        self._call = None
        request_id = self._wire.client.request_id.decode("ascii")
        if isinstance(error, ConnectError):
            _log.warning("request %s: replica %s: %s", request_id, name, error)
            plane.fleet.note_connect_failure(name)
            self._close_open()
            self._outcome = "connect_error"
            self._unreachable(error)
            return
        plane.fleet.note_failure(name)
        outcome = "timeout" if isinstance(error, UpstreamTimeout) else "protocol_error"
        if self._passing:
            _log.warning("request %s: replica %s: %s; the client's connection is cut", request_id, name, error)
            self._break_off(outcome)
            return
        _log.warning("request %s: replica %s: %s", request_id, name, error)
        timeout = outcome == "timeout"
        code = "engine_timeout" if timeout else "engine_broke_off"
        self._refuse(ErrorAnswer(504 if timeout else 502, f"replica {name}: {error}", code, outcome=outcome))

    def _unreachable(self, error: ConnectError) -> None:
        if self._may_retry():
            self._try_another("connect_error")
        else:
            self._give_up(error)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _refuse(self, error: ErrorAnswer) -> None:
        """Answer in the engine's place."""
        self._outcome, self._status = error.outcome, error.status
        client = self._client
        self._end()
        body = error_body(error.status, error.message, error.code, self._path)
        ids = request_id_fields(self._wire.client.request_id, self._path)
        client.answer(error.status, [*own_headers(b"application/json", len(body)), *ids, *error.headers], body)

    def _finish_tap(self, *, whole: bool = True) -> None:
        """Nothing more comes of the answer: learn from it what it says, and pass on what was held back of it."""
        tap, self._tap = self._tap, None
        if tap is not None and (rest := tap.finish(whole=whole)):
            self._client.send([rest], more=whole)

    def _break_off(self, outcome: str) -> None:
        self._outcome = outcome
        self._finish_tap(whole=False)
        client = self._client
        self._end()
        client.break_off()

    def _end(self) -> None:
        """Close every account this request has. The client's connection is told by the caller."""
        self._client.exchange = None
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        held, self._held = self._held, None
        if held is not None:
            held.drop()
        self._close_open()
        self._close_record()
        plane = self._plane
        known = self._replica != NO_REPLICA
        plane.metrics.request_ended(self._replica, self._request_class if known else NO_REPLICA, self._outcome)
        plane.waiting.leave(self)

    def _hold(self, status: int, headers: Pairs) -> None:
        """Keep the answer under way, should every other replica fail; the one held before is dropped."""
        call, self._call = self._call, None
        assert call is not None
        if self._held is not None:
            self._held.drop()
        self._held = HeldAnswer(call, status, headers, self._replica, self._record, self._choice)
        self._close_open()

    def _close_open(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.end()
            self._plane.waiting.room_made()

    # -- bookkeeping --------------------------------------------------------------------------------------------------

    def _note(self, choice: Choice) -> None:
        self._close_record()
        plane, decision, model = self._plane, choice.decision, self._needs.model
        self._request_class = decision.request_class
        plane.metrics.decided(decision.request_class, decision.pool, decision.reason)
        self._record = DecisionRecord(
            time_s=time.time(),
            request_id=self._wire.client.request_id.decode("ascii"),
            path=self._path,
            model=None if model is None else shortened(model),
            mode=plane.chooser.mode,
            decision=decision,
            sent_to=choice.replica,
        )
        plane.decisions.add(self._record)

    def _close_record(self) -> None:
        if self._record is not None:
            self._record.outcome, self._record.status = self._outcome, self._status
            self._record = None

    def _own_fields(self) -> bytes:
        choice = self._choice
        gamma, reason = (None, "search") if choice is None else (choice.gamma, choice.reason)
        request_id = self._wire.client.request_id
        lines = own_lines(request_id, self._replica, self._request_class, reason, self._pool, gamma)
        return lines + b"request-id: %b\r\n" % request_id if speaks_messages(self._path) else lines
