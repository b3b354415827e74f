"""HTTP towards engines, for everything but the requests themselves: metrics pages, health, model lists, gammas.

A call gives bytes or raises :class:`ScrapeError` with one of these reasons, before its time is up whatever
the engine does:

    ``timeout``      no whole answer in time, connecting included
    ``connect``      no connection
    ``status_NNN``   an answer other than the 2xx; redirects are answers, never followed
    ``too_large``    more bytes than asked for
    ``truncated``    the connection closed in the middle of the body
    ``protocol``     the bytes are not HTTP, or the connection broke before the body
    ``encoding``     a compressed page, which was not asked for
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import SecretStr

from adaptive_gamma._version import __version__
from adaptive_gamma.errors import ExchangeError, ScrapeError
from adaptive_gamma.web import WebClient

__all__ = ["MAX_PAGE_BYTES", "EngineClient"]

MAX_PAGE_BYTES = 4 * 1024 * 1024
_KEEPALIVE_S = 4.0
"""Below the 5 s after which uvicorn and llama.cpp close an idle connection, so that no call meets a closing one."""


class EngineClient:
    """The connections to one replica; a replica that hangs holds up only itself.

    One client a replica and not one for all: the library walks its whole pool for every call, which for 64 replicas
    costs five times what the calls themselves do.

    Args:
        base_url: scheme, host and port.
        api_key: sent as a bearer token where given. Never logged.
    """

    def __init__(self, base_url: str, api_key: SecretStr | None = None) -> None:
        self._base_url = base_url
        headers = {
            "user-agent": f"adaptive-gamma/{__version__}",
            "accept": "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1",
            "accept-encoding": "identity",
        }
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key.get_secret_value()}"
        self._headers = headers
        self._connections = _Connections(headers)

    async def fetch(self, path: str, *, timeout_s: float, max_bytes: int = MAX_PAGE_BYTES) -> bytes:
        """GET a page.

        Raises:
            ScrapeError: no whole 2xx answer of at most ``max_bytes`` within ``timeout_s`` seconds.
        """
        _, body = await self._call("GET", path, None, timeout_s, max_bytes, any_status=False)
        return body

    async def exchange(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float, max_bytes: int
    ) -> tuple[int, bytes]:
        """Send a request, with a JSON body where one is given, and return status and body of whatever is answered.

        Raises:
            ScrapeError: no whole answer of at most ``max_bytes`` within ``timeout_s`` seconds.
        """
        return await self._call(method, path, body, timeout_s, max_bytes, any_status=True)

    async def _call(
        self, method: str, path: str, content: bytes | None, timeout_s: float, max_bytes: int, *, any_status: bool
    ) -> tuple[int, bytes]:
        body = bytearray()
        connections = self._connections
        connections.users += 1
        more = {} if content is None else {"content-type": "application/json"}
        url = self._base_url + path
        try:
            async with (
                asyncio.timeout(timeout_s),
                connections.client.request(method, url, headers=more, content=content) as answer,
            ):
                status = answer.status
                if not (any_status or 200 <= status < 300):
                    raise ScrapeError(f"status_{status}")
                encoding = answer.header("content-encoding") or "identity"
                if encoding.lower() != "identity":
                    raise ScrapeError("encoding", encoding)
                async for piece in answer.pieces():
                    body += piece
                    if len(body) > max_bytes:
                        raise ScrapeError("too_large", f"more than {max_bytes} bytes")
        except TimeoutError:
            if self._connections is connections:
                # The library keeps a connection for ever whose call was cancelled between its making and its use.
                self._connections = _Connections(self._headers)
            raise ScrapeError("timeout", f"no whole answer within {timeout_s:g} s") from None
        except ExchangeError as error:
            raise ScrapeError(error.reason, error.detail) from error
        finally:
            connections.users -= 1
            if connections is not self._connections and not connections.users:
                await connections.client.close()
        return status, bytes(body)

    async def pages(self, paths: Sequence[str], *, timeout_s: float) -> dict[str, str]:
        """GET several pages at once; the first must answer, of the others those that fail are left out.

        Raises:
            ScrapeError: as :meth:`fetch`, for the first page.
        """
        answers = await asyncio.gather(*(self._attempt(path, timeout_s) for path in paths))
        pages: dict[str, str] = {}
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, bytes):
                pages[path] = answer.decode("utf-8", errors="replace")
            elif not pages:
                raise answer
        return pages

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.client.close()

    async def _attempt(self, path: str, timeout_s: float) -> bytes | ScrapeError:
        try:
            return await self.fetch(path, timeout_s=timeout_s)
        except ScrapeError as error:
            return error


class _Connections:
    """A pool of connections, and how many calls use it."""

    __slots__ = ("client", "users")

    def __init__(self, headers: dict[str, str]) -> None:
        self.client = WebClient(headers, keepalive_s=_KEEPALIVE_S)
        self.users = 0
