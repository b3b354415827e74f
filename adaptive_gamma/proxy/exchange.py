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
from adaptive_gamma.fleet.choice import Choice
from adaptive_gamma.proxy.answers import ErrorAnswer, error_body
from adaptive_gamma.proxy.engine_body import NOTHING_SENT, EngineBody, engine_body, watch_of
from adaptive_gamma.proxy.headers import Pairs, choice_lines, passed_to_client
from adaptive_gamma.proxy.held import HeldAnswer
from adaptive_gamma.proxy.listening import AnswerTap, answer_tap, fitting, may_report
from adaptive_gamma.proxy.metrics import NO_REPLICA
from adaptive_gamma.proxy.upstream import UpstreamCall
from adaptive_gamma.routing import Pool, RequestNeeds, is_capable
from adaptive_gamma.routing.no_replica import none_left, waited_too_long

if TYPE_CHECKING:
    from adaptive_gamma.fleet.open_requests import OpenOfClass
    from adaptive_gamma.proxy.asking import Kind
    from adaptive_gamma.proxy.client_connection import ClientConnection
    from adaptive_gamma.proxy.data_plane import DataPlane
    from adaptive_gamma.proxy.decision_log import DecisionRecord
    from adaptive_gamma.proxy.intake import Intake
    from adaptive_gamma.routing import Locality
    from adaptive_gamma.routing.json_request import JsonRequest

__all__ = ["Exchange"]

_log = logging.getLogger("adaptive_gamma.proxy")

_REJECTIONS = (429, 503)
_GATEWAY_FAILURES = (502, 504)
"""Answers that count against a replica. Any other may be the request's own doing, a 500 too, and whoever sends such
requests could take the fleet down; an engine that is broken says so on its health page."""


class Exchange:
    """Carries one request out, on the replica the decision names and, where that is safe, on another after it."""

    __slots__ = (
        "_began", "_body", "_call", "_choice", "_client", "_held", "_learn", "_locality", "_needs", "_open", "_outcome",
        "_passing", "_plane", "_pool", "_record", "_replica", "_request", "_request_class", "_retries",
        "_retry_reason", "_sent", "_status", "_tap", "_tried", "_waited", "asking", "learn_from", "takes_gamma",
    )  # fmt: skip

    def __init__(
        self,
        plane: DataPlane,
        client: ClientConnection,
        request: Intake,
        body: bytes,
        needs: RequestNeeds,
        locality: Locality | None = None,
        learn: bool = False,
    ) -> None:
        """``learn`` is whether the answer may tell the engine's gamma."""
        self._plane = plane
        self._body = body
        self._client = client
        self._request = request
        self._needs = needs
        self._locality = locality
        self._learn = learn
        self._began = time.monotonic()
        self._retries = plane.retry_attempts
        self._retry_reason: str | None = None
        """Why another replica is tried now."""
        self._tried: tuple[str, ...] = ()
        self._choice: Choice | None = None
        self._call: UpstreamCall | None = None
        self._open: OpenOfClass | None = None
        self._held: HeldAnswer | None = None
        self._record: DecisionRecord | None = None
        self._tap: AnswerTap | None = None
        self._waited = False
        self._passing = False
        """The head has been passed; what goes wrong now can only be shown by breaking off."""
        self._replica = NO_REPLICA
        self._request_class = needs.request_class
        """The class in the policy's words, once decided."""
        self._outcome = "client_closed"
        self._status: int | None = None
        self._sent: EngineBody = NOTHING_SENT
        self.takes_gamma = False
        """Whether the request may be given a gamma."""
        self.learn_from: Kind | None = None
        """The kind of answer that is asked for, where it may tell how the drafts of one request fared."""
        self.asking: JsonRequest | None = None
        """The request, where the engine may have to be asked for that."""

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
            if error.at_capacity and self._plane.waiting.enter(self):
                self._waited = True
            else:
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
        if self._record is not None:
            self._close_record()
        self._choice = choice
        decided = choice.decided
        self._request_class = decided.request_class
        self._send_to(choice.replica, choice.pool)
        plane.metrics.decided(decided.request_class, decided.pool, decided.reason)
        self._record = plane.decisions.begin(self._request, self._needs, plane.chooser.mode, choice)

    def _send_to(self, name: str, pool: Pool) -> None:
        plane, request, body = self._plane, self._request, self._body
        self._replica, self._pool, self._outcome, self._status = name, pool, "client_closed", None
        upstream = plane.upstreams[name]
        if self.asking is not None or self.takes_gamma:
            self._sent = engine_body(plane, name, request.path, body, self.asking, takes_gamma=self.takes_gamma)
            body = self._sent.body
        readable = body is not self._body
        head = request.engine_head(upstream.host_header, plane.engine_key, len(body), readable=readable)
        self._open = plane.fleet.open_requests(name).opened(self._request_class)
        self._call = call = UpstreamCall(upstream, self, request.method, head, body)
        call.start()

    def _try_another(self, reason: str) -> None:
        self._retries -= 1
        self._retry_reason = reason
        self._tried = (*self._tried, self._replica)
        self._advance()

    def _may_retry(self) -> bool:
        choice = self._choice
        return self._retries > 0 or (choice is not None and choice.decided.reason == "fallback")

    def _wants_another(self, status: int) -> str | None:
        """Why another replica should be asked after an answer with this status, or None."""
        return f"rejected_{status}" if status in _REJECTIONS and self._may_retry() else None

    def _give_up(self, error: NoReplica | ConnectError | None) -> None:
        """No replica is left: pass on the answer that was held, or say why there is none."""
        held, self._held = self._held, None
        if held is not None:
            self._close_record()
            self._replica, self._pool, self._record, self._choice = held.replica, held.pool, held.record, held.choice
            self._call = held.call
            held.pass_to(self)
            if self._client.paused:
                self.client_paused()
            return
        self._refuse(none_left(error, self._needs.model, tried=self._replica != NO_REPLICA))

    # -- the engine's side (AnswerSink) -------------------------------------------------------------------------------

    def on_head(self, status: int, headers: Pairs, *, more: bool) -> None:
        plane, name = self._plane, self._replica
        if self._choice is not None:
            plane.metrics.first_byte[self._pool].observe(time.monotonic() - self._began)
        if status in _GATEWAY_FAILURES:
            plane.fleet.note_failure(name)
        elif (another := self._wants_another(status)) is not None:
            plane.fleet.note_success(name)
            self._hold(status, headers)
            self._outcome, self._status = "rejected", status
            self._try_another(another)
            return
        if self._learn:
            headers = self._tapped(status, headers)
        if self._held is not None:
            self._held.drop()
            self._held = None
        self.pass_head(status, headers, more=more)
        locality = self._locality
        if locality is not None and status == 200 and plane.affinity is not None:
            plane.affinity.record(locality, name, self._needs.prompt_tokens or 0, time.monotonic())

    def pass_head(self, status: int, headers: Pairs, *, more: bool) -> None:
        """Pass an answer on from its head; parts, end or failure follow."""
        self._passing = True
        self._status = status
        # Nothing is sent again from here on, and a stream may be long.
        self._body, self.asking, self._sent = b"", None, NOTHING_SENT
        if self._call is not None:
            self._call.forget_request()
        lines, has_length = passed_to_client(headers, status)
        choice, client = self._choice, self._client
        gamma, reason = (None, "search") if choice is None else (choice.gamma, choice.reason)
        lines.append(self._request.id_lines())
        lines.append(choice_lines(self._replica, self._request_class, reason, self._pool, gamma))
        client.start(status, lines, has_length=has_length, more=more)
        if client.paused:
            # It has not even taken the answer before this one.
            self.client_paused()

    def on_body(self, pieces: list[bytes], *, more: bool) -> None:
        if self._tap is not None:
            pieces = self._tap.feed(pieces)
        self._client.send(pieces, more=more)

    def on_end(self) -> None:
        self._call = None
        plane, status = self._plane, self._status or 0
        if self._choice is not None:
            plane.metrics.duration[self._pool].observe(time.monotonic() - self._began)
        if self._tap is not None and self._tap.removes:
            self._finish_tap()
        # The client need not wait for the accounts.
        self._client.finish()
        if status < 400:
            self._outcome = "ok"
        elif status in _REJECTIONS:
            self._outcome = "rejected"
        else:
            self._outcome = "engine_error" if status >= 500 else "client_error"
        self._end()
        if self._tap is not None:
            self._finish_tap()
        if status not in _GATEWAY_FAILURES:
            plane.fleet.note_success(self._replica)

    def on_failure(self, error: UpstreamError) -> None:
        plane, name = self._plane, self._replica
        self._call = None
        request_id = self._request.client.request_id.decode("ascii")
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
        body = error_body(error.status, error.message, error.code, self._request.path)
        client.answer(error.status, [*self._request.own_fields(len(body)), *error.headers], body)

    def _tapped(self, status: int, headers: Pairs) -> Pairs:
        """Look at the answer as it passes, where it may tell something; the headers that fit what passes."""
        plane, name, request, record, added = self._plane, self._replica, self._request, self._record, self._sent.added
        request_class = watch = None
        if self.takes_gamma:
            watch = watch_of(plane.control, name, request.path, status, self._sent, self._request_class)
        kind = "asked" if added is not None else self.learn_from
        if kind is not None and status == 200 and may_report(plane, name, self._pool, kind):
            request_class = self._request_class
        elif added is None and watch is None and not request.stores and (record is None or record.observed is None):
            choice = self._choice
            if choice is not None and choice.gamma is not None:
                return headers
        tap = self._tap = answer_tap(plane, name, status, headers, request_class, added, watch, record, request)
        return headers if tap is None else fitting(tap, headers)

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
        if self._record is not None:
            self._close_record()
        plane = self._plane
        request_class = NO_REPLICA if self._replica == NO_REPLICA else self._request_class
        plane.metrics.request_ended(self._replica, request_class, self._outcome)
        if self._waited:
            plane.waiting.leave(self)

    def _hold(self, status: int, headers: Pairs) -> None:
        """Keep the answer under way, should every other replica fail; the one held before is dropped."""
        call, self._call = self._call, None
        assert call is not None
        if self._held is not None:
            self._held.drop()
        self._held = HeldAnswer(call, status, headers, self._replica, self._pool, self._record, self._choice)
        self._close_open()

    def _close_open(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.closed()
            self._plane.waiting.room_made()

    # -- bookkeeping --------------------------------------------------------------------------------------------------

    def _close_record(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            record.close(self._outcome, self._status)
