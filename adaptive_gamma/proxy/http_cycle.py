"""One request and its response on a client connection: uvicorn's cycle with the cut and the answers without a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from adaptive_gamma.proxy.http_protocol import StrictHttpProtocol

__all__ = ["Cycle", "OldCycle"]

_WITHOUT_BODY = (204, 304)


class Cycle(RequestResponseCycle):
    """One request and its response."""

    protocol: StrictHttpProtocol
    until_close = False
    """HTTP/1.0 response without a length: its body ends with the connection."""

    def cut(self) -> None:
        """Close in the middle of the response, so that the client sees it was cut."""
        self.disconnected = True
        self.protocol.cut(reset=self.until_close)

    async def send(self, message: Any) -> None:
        begins = not self.response_started
        await super().send(message)
        if begins and self.response_started and message["status"] in _WITHOUT_BODY:
            # Its Content-Length is that of the body another status would have; none is to come.
            self.expected_content_length = 0

    async def send_500_response(self) -> None:
        """The answer to a fault of ours; the fault itself has been logged."""
        self.protocol.refuse(500, "the proxy failed", "internal_error")


class OldCycle(Cycle):
    """A request of HTTP/1.0, which knows no chunks."""

    async def send(self, message: Any) -> None:
        if not self.response_started:
            names = {name.lower() for name, _ in message.get("headers", ())}
            self.until_close = (
                b"content-length" not in names
                and self.scope["method"] != "HEAD"
                and message["status"] not in _WITHOUT_BODY
            )
            if self.until_close:
                self.chunked_encoding = False
        elif self.until_close:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
