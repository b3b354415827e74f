"""What stands before the admin port, which has no login: who may name it, and how long and how many may hold it.

A web page may have its own name resolve to 127.0.0.1 and ask this port from inside the browser of whoever looks at it.
The browser sends that name as Host, so a name that anybody could own is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEAD_S", "MOST_CONNECTIONS", "AdminConnection", "HostGuard", "is_own_host"]

HEAD_S = 10.0
"""Seconds in which a request's head must have come, once the connection is made or the head has begun."""
MOST_CONNECTIONS = 256
"""Open at once; one more ends the oldest, so that nobody who holds many keeps a probe out."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")
_NOBODYS = (".localhost", ".svc", ".cluster.local", ".internal", ".home.arpa")
"""Endings under which no one can register a name."""

_Message = MutableMapping[str, Any]
_App = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]]

_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]


def is_own_host(header: str, names: Iterable[str] = ()) -> bool:
    """Whether a Host header may name this port.

    An address may, and a name without a dot or with an ending that nobody can register: none of them can be made to
    point here by a stranger. Of other names only those in ``names`` (lower case).
    """
    found = _HOST.fullmatch(header.strip())
    if found is None:
        return False
    host = found[1].strip("[]").removesuffix(".").lower()
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return ("." not in host and ":" not in host) or host.endswith(_NOBODYS) or host in names


class HostGuard:
    """An ASGI application before another: 421 for a Host that is not ours.

    Args:
        app: what is guarded.
        names: further names of this port, in lower case.
    """

    def __init__(self, app: _App, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = frozenset(names)

    async def __call__(
        self, scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
    ) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                message["headers"] = [*given, *(header for header in _HEADERS if header[0] not in names)]
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if all(is_own_host(host, self._names) for host in hosts):
            await self._app(scope, receive, with_headers)
            return
        problem = "this is not a name of the admin port; a name that should be goes into admin_hosts"
        body = json.dumps({"error": {"message": problem, "type": "invalid_request_error", "code": "unknown_host"}})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await with_headers({"type": "http.response.start", "status": 421, "headers": headers})
        await with_headers({"type": "http.response.body", "body": body.encode("ascii")})


class AdminConnection(H11Protocol):
    """uvicorn's connection, of which too many or too slow ones are ended."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._since = self.loop.time()
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > MOST_CONNECTIONS:
            others = [each for each in self.connections if isinstance(each, AdminConnection) and each is not self]
            min(others, key=lambda each: each._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        """Time runs from a head's first byte, and more bytes do not stop it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
