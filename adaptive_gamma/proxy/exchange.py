"""One request and its answer: which replicas are tried, and how the answer's bytes reach the client."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptive_gamma.errors import ConnectError, NoReplica, UpstreamError, UpstreamTimeout
from adaptive_gamma.proxy.answers import ErrorAnswer, shortened
from adaptive_gamma.proxy.choice import Choice
from adaptive_gamma.proxy.decision_log import DecisionRecord
from adaptive_gamma.proxy.headers import ClientHeaders, engine_headers, response_headers
from adaptive_gamma.proxy.learning import ResponseTap
from adaptive_gamma.proxy.metrics import NO_REPLICA
from adaptive_gamma.proxy.request import StreamCut
from adaptive_gamma.proxy.upstream import UpstreamResponse
from adaptive_gamma.proxy.watch import DisconnectWatch
from adaptive_gamma.routing import RequestNeeds

if TYPE_CHECKING:
    from adaptive_gamma.proxy.data_plane import DataPlane

__all__ = ["Exchange", "Send", "Wire"]

_log = logging.getLogger("adaptive_gamma.proxy")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_REJECTIONS = (429, 503)


class Wire(NamedTuple):
    """The request as it goes to an engine."""

    method: bytes
    target: bytes
    client: ClientHeaders
    body: bytes
    has_body: bool


class _Held(NamedTuple):
    """An answer kept open while another replica is tried."""

    response: UpstreamResponse
    own: list[tuple[bytes, bytes]]
    replica: str
    record: DecisionRecord | None


class Exchange:
    """Carries one request out. ``run`` or ``search`` is called once; the labels tell how far it came."""

    __slots__ = (
        "_began",
        "_held",
        "_needs",
        "_plane",
        "_record",
        "_send",
        "_watch",
        "_wire",
        "outcome",
        "replica",
        "request_class",
        "status",
    )

    def __init__(self, plane: DataPlane, wire: Wire, needs: RequestNeeds, send: Send, watch: DisconnectWatch) -> None:
        self._plane = plane
        self._wire = wire
        self._needs = needs
        self._send = send
        self._watch = watch
        self._began = time.monotonic()
        self._held: _Held | None = None
        self._record: DecisionRecord | None = None
        self.replica = NO_REPLICA
        self.request_class = needs.request_class
        """The class in the policy's words, once decided."""
        self.outcome = "client_closed"
        """What happened, should nothing more be heard: only a client that leaves ends an exchange unsaid."""
        self.status: int | None = None

    async def run(self, path: str, learn: bool) -> None:
        """Try replicas as the decision names them and pass the answer on.

        Raises:
            ErrorAnswer: nothing was sent to the client yet.
            StreamCut: the answer broke off.
        """
        plane = self._plane
        tried: set[str] = set()
        retries = plane.settings.retry.attempts
        reason: str | None = None
        try:
            while True:
                try:
                    choice = plane.chooser.choose(self._needs, tried)
                except NoReplica as error:
                    await self._give_up(error)
                    return
                if reason is not None:
                    plane.metrics.retried(reason)
                self._note(choice, path)
                may_retry = retries > 0 or choice.decision.reason == "fallback"
                reason = await self._try(choice, may_retry, learn)
                if reason is None:
                    return
                tried.add(choice.replica)
                retries -= 1
        except ErrorAnswer as error:
            self.outcome, self.status = error.outcome, error.status
            raise
        finally:
            self._drop_held()
            self._close_record()

    async def search(self, names: list[str]) -> None:
        """Ask the named replicas in turn until one answers other than 404; the last 404 is passed on.

        Raises as ``run`` does.
        """
        try:
            for name in names:
                self.replica = name
                own = self._own_headers(name, None, "search")
                with self._plane.fleet.open_request(name, self._needs.request_class):
                    try:
                        response = await self._ask(name)
                    except ConnectError:
                        continue
                    if response.status == 404:
                        self._hold(response, own)
                        continue
                    try:
                        last = await self._pass(response, own, None)
                    finally:
                        response.close()
                await self._finish(last)
                return
            await self._give_up(None)
        except ErrorAnswer as error:
            self.outcome, self.status = error.outcome, error.status
            raise
        finally:
            self._drop_held()

    # -- one try ------------------------------------------------------------------------------------------------------

    async def _try(self, choice: Choice, may_retry: bool, learn: bool) -> str | None:
        """None when the request is answered, else why another replica should be tried."""
        plane, name = self._plane, choice.replica
        own = self._own_headers(name, choice, choice.reason)
        with plane.fleet.open_request(name, choice.decision.request_class):
            try:
                response = await self._ask(name)
            except ConnectError as error:
                self.outcome = "connect_error"
                if not may_retry:
                    await self._give_up(error)
                    return None
                return "connect_error"
            plane.metrics.first_byte[choice.pool].observe(time.monotonic() - self._began)
            if response.status in _REJECTIONS and may_retry:
                self.outcome, self.status = "rejected", response.status
                self._hold(response, own)
                return f"rejected_{response.status}"
            tap = ResponseTap.wanted(plane.fleet, name, response) if learn else None
            try:
                last = await self._pass(response, own, tap)
            finally:
                response.close()
        await self._finish(last)
        plane.metrics.duration[choice.pool].observe(time.monotonic() - self._began)
        return None

    async def _ask(self, name: str) -> UpstreamResponse:
        plane, wire = self._plane, self._wire
        upstream = plane.upstreams[name]
        headers = engine_headers(
            wire.client, upstream.host_header, plane.engine_key, len(wire.body) if wire.has_body else None
        )
        try:
            response = await upstream.request(wire.method, wire.target, headers, wire.body)
        except ConnectError as error:
            plane.fleet.note_connect_failure(name)
            _log.warning("request %s: replica %s: %s", wire.client.request_id.decode(), name, error)
            raise
        except UpstreamError as error:
            timeout = isinstance(error, UpstreamTimeout)
            _log.warning("request %s: replica %s: %s", wire.client.request_id.decode(), name, error)
            raise ErrorAnswer(
                504 if timeout else 502,
                f"replica {name}: {error}",
                "engine_timeout" if timeout else "engine_broke_off",
                outcome="timeout" if timeout else "protocol_error",
            ) from error
        plane.fleet.note_success(name)
        return response

    async def _pass(self, response: UpstreamResponse, own: list[tuple[bytes, bytes]], tap: ResponseTap | None) -> bytes:
        """Pass the head and all of the body but its last piece, which is returned: it is sent when the engine's
        connection has been given back and the request no longer counts as open."""
        send, read = self._send, response.read
        self.status = response.status
        headers = response_headers(response.headers, own)
        if response.status == 204:
            # RFC 9110, 8.6: no length here. Some engines' frameworks say 0, or that of a body they dropped.
            headers = [pair for pair in headers if pair[0] != b"content-length"]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        try:
            while True:
                data = await read()
                if tap is not None and data is not None:
                    tap.feed(data)
                if data is None or response.complete:
                    break
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except UpstreamError as error:
            self.outcome = "timeout" if isinstance(error, UpstreamTimeout) else "protocol_error"
            _log.warning(
                "request %s: replica %s: %s; the client's connection is cut",
                self._wire.client.request_id.decode(),
                self.replica,
                error,
            )
            raise StreamCut from error
        if tap is not None:
            tap.finish()
        return data or b""

    async def _finish(self, last: bytes) -> None:
        self._watch.disarm()
        self.outcome = _outcome(self.status or 0)
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def _give_up(self, error: NoReplica | ConnectError | None) -> None:
        """No replica is left: pass on the answer that was held, or say why there is none."""
        held, self._held = self._held, None
        if held is not None:
            self.replica = held.replica
            self._close_record()
            self._record = held.record
            try:
                last = await self._pass(held.response, held.own, None)
            finally:
                held.response.close()
            await self._finish(last)
            return
        if isinstance(error, NoReplica) and error.model_unknown:
            message = f"no replica has the model {shortened(self._needs.model or '')!r}"
            raise ErrorAnswer(404, message, "model_not_found", outcome="client_error")
        unreachable = self.replica != NO_REPLICA
        message = "no replica could be reached" if unreachable else str(error)
        raise ErrorAnswer(
            503,
            message,
            "no_replica",
            outcome="connect_error" if unreachable else "rejected",
            headers=((b"retry-after", b"1"),),
        )

    # -- bookkeeping --------------------------------------------------------------------------------------------------

    def _hold(self, response: UpstreamResponse, own: list[tuple[bytes, bytes]]) -> None:
        self._drop_held()
        self._held = _Held(response, own, self.replica, self._record)

    def _drop_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.response.close()

    def _note(self, choice: Choice, path: str) -> None:
        self._close_record()
        plane, decision, model = self._plane, choice.decision, self._needs.model
        self.replica, self.outcome, self.status = choice.replica, "client_closed", None
        self.request_class = decision.request_class
        plane.metrics.decided(decision.request_class, decision.pool, decision.reason)
        self._record = DecisionRecord(
            time_s=time.time(),
            request_id=self._wire.client.request_id.decode("ascii"),
            path=path,
            model=None if model is None else shortened(model),
            mode=plane.chooser.mode,
            decision=decision,
            sent_to=choice.replica,
        )
        plane.decisions.add(self._record)

    def _close_record(self) -> None:
        if self._record is not None:
            self._record.outcome, self._record.status = self.outcome, self.status
            self._record = None

    def _own_headers(self, name: str, choice: Choice | None, reason: str) -> list[tuple[bytes, bytes]]:
        own = [
            (b"x-request-id", self._wire.client.request_id),
            (b"x-adaptive-gamma-replica", name.encode("ascii")),
            (b"x-adaptive-gamma-class", self.request_class.encode("ascii", "replace")),
            (b"x-adaptive-gamma-reason", reason.encode("ascii")),
        ]
        if choice is None:
            own.append((b"x-adaptive-gamma-pool", self._plane.fleet.by_name(name).state.pool.encode("ascii")))
        else:
            own.append((b"x-adaptive-gamma-pool", choice.pool.encode("ascii")))
            if choice.gamma is not None:
                own.append((b"x-adaptive-gamma-gamma", b"%d" % choice.gamma))
        return own


def _outcome(status: int) -> str:
    if status in _REJECTIONS:
        return "rejected"
    if status >= 500:
        return "engine_error"
    return "client_error" if status >= 400 else "ok"
