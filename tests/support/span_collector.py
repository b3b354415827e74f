"""A collector of traces that takes OTLP over HTTP, as OpenTelemetry's does, in threads of its own."""

from __future__ import annotations

import gzip
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

__all__ = ["CollectedSpan", "SpanCollector"]


@dataclass
class CollectedSpan:
    """One span as it was sent."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: int
    status: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class SpanCollector:
    """``with SpanCollector() as collector``; ``status`` is what it answers, and ``gate`` what it waits for before."""

    status: int = 200
    gate: threading.Event = field(default_factory=threading.Event)
    spans: list[CollectedSpan] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def __enter__(self) -> SpanCollector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.gate.wait(30)
                if collector.status == 200 and self.path == "/v1/traces":
                    collector.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
                self.send_response(collector.status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, body: bytes) -> None:
        """Read a batch."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        CollectedSpan(
                            span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.kind,
                            span.status.code, span.start_time_unix_nano, span.end_time_unix_nano,
                            _attributes(span.attributes), resource,
                        )
                    )  # fmt: skip

    def wait(self, count: int, within_s: float = 20.0) -> list[CollectedSpan]:
        """So many spans, once they are here. For the use outside of an event loop."""
        deadline = time.monotonic() + within_s
        while len(self.spans) < count:
            assert time.monotonic() < deadline, self.spans
            time.sleep(0.02)
        return self.spans


def _attributes(listed: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in listed}
