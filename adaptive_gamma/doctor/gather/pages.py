"""One server's pages over HTTP, each within bounds of size and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from pydantic import SecretStr

from adaptive_gamma._version import __version__
from adaptive_gamma.errors import ExchangeError
from adaptive_gamma.web import WebClient

__all__ = ["MAX_PAGE_BYTES", "NoPage", "Pages"]

MAX_PAGE_BYTES = 4 * 1024 * 1024


class NoPage(Exception):
    """A page that was not had. ``status`` where there was an answer."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        self.reason = reason
        self.status = status
        super().__init__(reason)


class Pages:
    """Asks one server. Redirects are not followed, proxies of the environment not used.

    Args:
        url: scheme, host and port, and a path before all pages where there is one.
        timeout_s: for each page, connecting included.
        api_key: sent as a bearer token where given.
    """

    def __init__(self, url: str, timeout_s: float, api_key: SecretStr | None = None) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        headers = {"user-agent": f"adaptive-gamma/{__version__}", "accept-encoding": "identity"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key.get_secret_value()}"
        self._client = WebClient(headers)

    async def text(self, path: str) -> str:
        """GET a page.

        Raises:
            NoPage: no whole 2xx answer of at most ``MAX_PAGE_BYTES`` in time.
        """
        return (await self._call("GET", path, None, self._timeout_s)).decode("utf-8", "replace")

    async def json(self, path: str) -> object:
        """GET a page of JSON. Raises NoPage, for what is no JSON too."""
        return _parsed(await self._call("GET", path, None, self._timeout_s))

    async def ask(self, path: str, body: Mapping[str, object], timeout_s: float) -> object:
        """POST a JSON object, for a JSON answer. Raises NoPage."""
        return _parsed(await self._call("POST", path, json.dumps(body).encode(), timeout_s))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _call(self, method: str, path: str, content: bytes | None, timeout_s: float) -> bytes:
        body = bytearray()
        more = {} if content is None else {"content-type": "application/json"}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client.request(method, self.url + path, headers=more, content=content) as answer,
            ):
                if not 200 <= answer.status < 300:
                    raise NoPage(f"answered {answer.status}", answer.status)
                if (encoding := answer.header("content-encoding") or "identity") != "identity":
                    raise NoPage(f"is compressed ({encoding[:40]}), which was not asked for")
                async for piece in answer.pieces():
                    body += piece
                    if len(body) > MAX_PAGE_BYTES:
                        raise NoPage(f"has more than {MAX_PAGE_BYTES} bytes")
        except TimeoutError:
            raise NoPage(f"gave no whole answer within {timeout_s:g} s") from None
        except ExchangeError as error:
            words = {"connect": "cannot be connected to", "truncated": "broke off in the middle of the answer"}
            problem = words.get(error.reason, "does not speak HTTP, or broke off")
            raise NoPage(f"{problem}: {error.detail}" if error.detail else problem) from error
        return bytes(body)


def _parsed(body: bytes) -> object:
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        raise NoPage("is no JSON") from None
    return value
