"""Asking an engine through the pool of connections alone, as a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from adaptive_gamma.errors import UpstreamError
from adaptive_gamma.proxy import Upstream, UpstreamCall

__all__ = ["Asked"]


class Asked:
    """A call under way: ``head`` and ``whole`` may be awaited; what came is kept."""

    def __init__(
        self,
        pool: Upstream,
        body: bytes = b"{}",
        *,
        method: bytes = b"POST",
        target: bytes = b"/v1/completions",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[int] = loop.create_future()
        self.whole: asyncio.Future[bytes] = loop.create_future()
        self.pieces: list[bytes] = []
        self.headers: list[tuple[bytes, bytes]] = []
        fields = [(b"host", b"engine"), (b"content-length", b"%d" % len(body)), *headers]
        lines = [b"%b: %b\r\n" % field for field in fields]
        self.call = UpstreamCall(
            pool, self, method, b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, b"".join(lines)), body
        )
        self.call.start()

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], *, more: bool) -> None:
        self.headers = headers
        self.head.set_result(status)

    def on_body(self, pieces: list[bytes], *, more: bool) -> None:
        self.pieces += pieces

    def on_end(self) -> None:
        self.whole.set_result(b"".join(self.pieces))

    def on_failure(self, error: UpstreamError) -> None:
        for future in (self.head, self.whole):
            if not future.done():
                future.set_exception(error)
        # Only one of the two may be awaited.
        self.head.exception()

    def on_fault(self) -> None:
        raise AssertionError("these methods do not fail")
