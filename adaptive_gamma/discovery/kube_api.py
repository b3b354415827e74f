"""Two calls of the Kubernetes API: list the EndpointSlices of a Service, and watch them. Bounded in time and size.

Both raise :class:`DiscoveryError` with one of these reasons:

    ``connect`` ``protocol`` ``truncated``   as :mod:`adaptive_gamma.web` says
    ``timeout``       no whole list, or no beginning of a watch, in time
    ``silent``        a watch that said nothing for too long
    ``too_large``     a list or an event beyond its bound
    ``garbled``       what should be JSON and is not, or not of the form expected
    ``expired``       410: what was asked for is too old, everything must be listed anew
    ``unauthorized``  401
    ``forbidden``     403; the message names the rights that are needed
    ``credentials``   a file of token or certificates that cannot be used
    ``status_NNN``    another answer
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from adaptive_gamma._version import __version__
from adaptive_gamma.config import KubernetesSettings, Stamp, stamp_of
from adaptive_gamma.discovery.kube_access import ApiAccess
from adaptive_gamma.errors import DiscoveryError, ExchangeError
from adaptive_gamma.web import WebAnswer, WebClient

__all__ = ["MAX_EVENT_BYTES", "MAX_PAGE_BYTES", "SliceApi", "refusal"]

MAX_PAGE_BYTES = 16 * 1024 * 1024
MAX_EVENT_BYTES = 4 * 1024 * 1024
"""A slice holds at most 1000 endpoints, which is about half a megabyte."""
_SLICES_A_PAGE = 50
_MOST_PAGES = 100
_END_GRACE_S = 5.0
_LONGEST_MESSAGE = 300


class SliceApi:
    """The slices of one Service, as the API server tells of them."""

    def __init__(self, access: ApiAccess, settings: KubernetesSettings, namespace: str, service: str) -> None:
        self._access = access
        self._settings = settings
        self._namespace = namespace
        self._path = f"{access.url}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = f"kubernetes.io/service-name={service}"
        self._client: WebClient | None = None
        self._ca_stamp: Stamp = None

    async def list_all(self) -> tuple[list[dict[str, Any]], str]:
        """All slices, and the version from which to watch."""
        async with self._afresh_after_a_failure():
            return await self._pages()

    async def watch(
        self, version: str, seconds: float, began: Callable[[], None], took: Callable[[dict[str, Any]], None]
    ) -> None:
        """Tell ``took`` of every event after ``version``; returns when the watch has ended as it should.

        Args:
            version: of the list, or of the last event.
            seconds: how long the server is asked to go on; shortly after that the watch is ended from here.
            began: called when the server has agreed.
            took: given each event; what it raises ends the watch.
        """
        query = {
            "labelSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(math.ceil(seconds), 1)),
        }
        loop = asyncio.get_running_loop()
        end = loop.time() + max(math.ceil(seconds), 1) + _END_GRACE_S
        lines = _Lines()
        async with (
            self._afresh_after_a_failure(),
            self._answer(query) as answer,
            aclosing(answer.pieces()) as pieces,
        ):
            began()
            while True:
                silent_at = loop.time() + self._settings.silence_s
                try:
                    async with asyncio.timeout_at(min(silent_at, end)):
                        piece = await anext(pieces, None)
                except TimeoutError:
                    if silent_at <= end:
                        silence = f"the watch said nothing for {self._settings.silence_s:g} s"
                        raise DiscoveryError("silent", silence) from None
                    return
                if piece is None:
                    break
                for line in lines.of(piece):
                    took(_object(line))
            if lines.rest.strip():
                raise DiscoveryError("truncated", "the watch ended in the middle of an event")

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _pages(self) -> tuple[list[dict[str, Any]], str]:
        items: list[dict[str, Any]] = []
        query = {"labelSelector": self._selector, "limit": str(_SLICES_A_PAGE)}
        for _ in range(_MOST_PAGES):
            page = await self._page(query)
            metadata, there = page.get("metadata"), page.get("items")
            if not isinstance(metadata, dict) or not isinstance(there, list | None):
                raise DiscoveryError("garbled", "the list has no metadata or no items")
            items += [item for item in there or () if isinstance(item, dict)]
            version, more = metadata.get("resourceVersion"), metadata.get("continue")
            if not more:
                if not isinstance(version, str) or not version:
                    raise DiscoveryError("garbled", "the list has no resourceVersion")
                return items, version
            query["continue"] = str(more)
        raise DiscoveryError("too_large", f"the list has more than {_MOST_PAGES} pages")

    @asynccontextmanager
    async def _afresh_after_a_failure(self) -> AsyncIterator[None]:
        """No connection outlives a failure: it may be dead without anybody having said so."""
        try:
            yield
        except DiscoveryError:
            await self.close()
            raise

    async def _page(self, query: dict[str, str]) -> dict[str, Any]:
        limit_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(limit_s), self._answer(query) as answer:
                return _object(await _whole(answer, MAX_PAGE_BYTES))
        except TimeoutError:
            raise DiscoveryError("timeout", f"no whole list within {limit_s:g} s") from None

    @asynccontextmanager
    async def _answer(self, query: dict[str, str]) -> AsyncIterator[WebAnswer]:
        """An answer of 200; its head came in time."""
        token = self._access.token()
        client = await self._current_client()
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        limit_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(limit_s) as limit:
                async with client.request("GET", f"{self._path}?{urlencode(query)}", headers=headers) as answer:
                    if answer.status != 200:
                        body = await _beginning(answer)
                        raise refusal(answer.status, body, self._namespace, self._access, token)
                    limit.reschedule(None)
                    yield answer
        except ExchangeError as error:
            raise DiscoveryError(error.reason, error.detail) from error
        except TimeoutError:
            raise DiscoveryError("timeout", f"no answer within {limit_s:g} s") from None

    async def _current_client(self) -> WebClient:
        """The connections, made anew when the certificates have been replaced."""
        ca_file = self._access.ca_file
        stamp = None if ca_file is None else stamp_of(ca_file)
        if self._client is None or stamp != self._ca_stamp:
            await self.close()
            tls = None
            if ca_file is not None and self._access.url.startswith("https:"):
                try:
                    tls = ssl.create_default_context(cafile=ca_file)
                except OSError as error:  # an SSLError is one too
                    why = error.strerror or "it holds no certificate"
                    raise DiscoveryError("credentials", f"the CA file {ca_file} cannot be used: {why}") from None
            headers = {"user-agent": f"adaptive-gamma/{__version__}", "accept": "application/json"}
            self._client = WebClient({**headers, "accept-encoding": "identity"}, keepalive_s=30.0, tls=tls)
            self._ca_stamp = stamp
        return self._client


def refusal(status: int, body: bytes, namespace: str, access: ApiAccess, token: str | None) -> DiscoveryError:
    """What an answer that is not 200 means. The token is in no message, should the server send it back."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    message = said.get("message") if isinstance(said, dict) else None
    message = message if isinstance(message, str) and message.isprintable() else ""
    if token is not None:
        message = message.replace(token, "...")
    if len(message) > _LONGEST_MESSAGE:
        message = message[: _LONGEST_MESSAGE - 3] + "..."
    tail = f": {message}" if message else ""
    if status == 401:
        if access.token_file is None:
            return DiscoveryError("unauthorized", f"the API server wants a token: give token_file{tail}")
        return DiscoveryError("unauthorized", f"the API server does not take the token in {access.token_file}{tail}")
    if status == 403:
        return DiscoveryError(
            "forbidden",
            "the service account needs a Role with the verbs get, list, watch on endpointslices of the API group "
            f"discovery.k8s.io in namespace {namespace}, and a RoleBinding{tail}",
        )
    if status == 410:
        return DiscoveryError("expired", message)
    return DiscoveryError(f"status_{status}", message)


class _Lines:
    """Cuts a stream into lines, none longer than an event may be."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def of(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        *whole, rest = piece.split(b"\n")
        if whole:
            whole[0] = bytes(self.rest) + whole[0]
            self.rest.clear()
        self.rest += rest
        if max(len(self.rest), *map(len, whole), 0) > MAX_EVENT_BYTES:
            raise DiscoveryError("too_large", f"an event of more than {MAX_EVENT_BYTES} bytes")
        return [line for line in whole if line.strip()]


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise DiscoveryError("garbled", "expected JSON") from None
    if not isinstance(value, dict):
        raise DiscoveryError("garbled", "expected a JSON object")
    return value


async def _whole(answer: WebAnswer, most: int) -> bytes:
    body = bytearray()
    async with aclosing(answer.pieces()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > most:
                raise DiscoveryError("too_large", f"a list of more than {most} bytes")
    return bytes(body)


async def _beginning(answer: WebAnswer) -> bytes:
    """The first 64 kB of a body; what breaks off is taken as it came."""
    body = bytearray()
    try:
        async with aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > 65_536:
                    break
    except ExchangeError:
        return b""
    return bytes(body)
