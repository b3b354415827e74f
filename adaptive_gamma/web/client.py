"""The only module that knows the HTTP client library, but for the clients that the demo plays.

A call gives an answer, or raises :class:`ExchangeError` with one of these reasons:

    ``connect``      no connection
    ``protocol``     the bytes are not HTTP, or the connection broke before the body
    ``truncated``    the connection closed in the middle of the body

Time limits are the caller's (``asyncio.timeout``), over as much of an exchange as it likes.
"""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

from adaptive_gamma.errors import ExchangeError

__all__ = ["WebAnswer", "WebClient"]


class WebAnswer:
    """An answer whose head is here; its body is read piece by piece."""

    __slots__ = ("_response",)

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status_code

    def header(self, name: str) -> str | None:
        """The value of a header, the values of several joined by commas; None where there is none."""
        value: str | None = self._response.headers.get(name)
        return value

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, not decompressed."""
        try:
            async for piece in self._response.aiter_raw():
                yield piece
        except httpx.HTTPError as error:
            raise ExchangeError("truncated", str(error)) from error


class WebClient:
    """Connections kept open between calls. No proxy, no credentials and no redirects but those asked for.

    Args:
        headers: sent with every request.
        keepalive_s: how long an unused connection is kept.
        tls: what the other side's certificate is checked by; None is the system's store.
    """

    def __init__(
        self, headers: Mapping[str, str], *, keepalive_s: float = 4.0, tls: ssl.SSLContext | None = None
    ) -> None:
        library_log = logging.getLogger("httpx")
        if library_log.level == logging.NOTSET:
            library_log.setLevel(logging.WARNING)  # a line per call at INFO, thousands a minute for a fleet
        self._client = httpx.AsyncClient(  # nosec B113  # every caller has a time limit of its own
            headers=dict(headers),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=keepalive_s),
            verify=_system_tls() if tls is None else tls,
            timeout=None,
            trust_env=False,
            follow_redirects=False,
        )

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> AsyncIterator[WebAnswer]:
        """Send a request. With the block the connection is given back, or closed where the body was not read whole.

        Raises ExchangeError before the block begins; see :meth:`WebAnswer.pieces` for the body.
        """
        try:
            request = self._client.build_request(method, url, headers=headers, content=content)
            response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.InvalidURL, UnicodeError) as error:  # the last: a name no resolver takes
            raise ExchangeError("connect", str(error)) from error
        except httpx.HTTPError as error:
            raise ExchangeError("protocol", str(error)) from error
        try:
            yield WebAnswer(response)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


@functools.cache
def _system_tls() -> ssl.SSLContext:
    """One for all clients: reading the certificate store takes some 30 ms."""
    return httpx.create_ssl_context()
