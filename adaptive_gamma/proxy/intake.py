"""A request whose head has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_gamma.proxy.answers import ErrorAnswer, own_headers, request_id_fields, speaks_messages
from adaptive_gamma.proxy.headers import ClientHeaders, Pairs
from adaptive_gamma.routing.endpoints import Endpoint

if TYPE_CHECKING:
    from adaptive_gamma.proxy.account import RequestAccount

__all__ = ["Intake"]


class Intake:
    """What is known of a request before its body.

    Args:
        method: in capitals.
        target: path and query, as they go to an engine.
        path: decoded.
        client: what the header section said.
        endpoint: what the path stands for; None where that is nothing.
    """

    __slots__ = ("account", "client", "endpoint", "method", "path", "refusal", "stores", "target")

    def __init__(
        self, method: bytes, target: bytes, path: str, client: ClientHeaders, endpoint: Endpoint | None
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.client = client
        self.endpoint = endpoint
        self.refusal: ErrorAnswer | None = None
        """Set when the head alone tells that it is not served."""
        self.account: RequestAccount | None = None
        """What is told of it in the end, where something is."""
        self.stores = False
        """Whether the answer may create a response that later requests go on from."""

    def own_fields(self, body_length: int) -> Pairs:
        """The fields of an answer of our own to it, in JSON."""
        return [*own_headers(b"application/json", body_length), *request_id_fields(self.client.request_id, self.path)]

    def id_lines(self) -> bytes:
        """The fields that tell a client the id of its request, as whole lines."""
        request_id = self.client.request_id
        line = b"x-request-id: %b\r\n" % request_id
        return b"%brequest-id: %b\r\n" % (line, request_id) if speaks_messages(self.path) else line

    def engine_head(self, host: bytes, engine_key: bytes | None, body_length: int, *, readable: bool = False) -> bytes:
        """The head as it is sent to an engine.

        Args:
            host: the engine's.
            engine_key: sent in place of the client's credentials.
            body_length: in bytes.
            readable: the answer will be read here, so the engine must not compress it.
        """
        client = self.client
        passed = client.passed
        if readable:
            passed = [line for line in passed if not line.startswith(b"accept-encoding:")]
        credentials = client.credentials if engine_key is None else [b"authorization: Bearer %b\r\n" % engine_key]
        has_body = body_length or self.method == b"POST"
        return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%bx-request-id: %b\r\n%b\r\n" % (
            self.method,
            self.target,
            host,
            b"".join(passed),
            b"".join(credentials),
            client.request_id,
            b"content-length: %d\r\n" % body_length if has_body else b"",
        )
