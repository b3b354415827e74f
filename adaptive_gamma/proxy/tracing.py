"""Spans of requests for a collector of OpenTelemetry, over OTLP/HTTP. The only module that knows its library.

A request's span is the child of what the client's ``traceparent`` names, and the parent of what the engine makes of
it. Whether it is sent to the collector the incoming flag says; where there is none, chance does.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, cast

from adaptive_gamma._version import __version__
from adaptive_gamma.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from adaptive_gamma.config.settings import TracingSettings
    from adaptive_gamma.proxy.account import RequestAccount

__all__ = ["RequestSpan", "Tracer"]

_log = logging.getLogger("adaptive_gamma.proxy")

_MOST_WAITING = 8192
_CLOSE_MS = 5000
_GATHER_MS = 1000
_TRACEPARENT = b"traceparent:"
_TRACESTATE = b"tracestate:"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/completion": "text_completion",
    "/v1/embeddings": "embeddings",
}
_NO_FAULT = frozenset({"ok", "client_closed", "client_error", "rejected"})
_OWN = (
    "class",
    "replica",
    "pool",
    "gamma",
    "reason",
    "outcome",
    "draft_tokens",
    "accepted_tokens",
    "queue_s",
    "ttft_s",
)


class _Counted:
    """Passes spans on to an exporter and counts what became of them. Called in the exporter's own thread."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self.exported = self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        result = None
        try:
            result = self._exporter.export(spans)
        finally:
            if result is not None and result.name == "SUCCESS":
                self.exported += len(spans)
            else:
                self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


class Tracer:
    """Makes spans and has them sent; see ``made``."""

    def __init__(self, settings: TracingSettings) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace import SpanKind, StatusCode, get_current_span
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        assert settings.endpoint is not None
        self.endpoint = settings.endpoint
        headers = {name.lower(): secret.get_secret_value() for name, secret in settings.headers.items()}
        self._counted = _Counted(
            OTLPSpanExporter(endpoint=settings.endpoint, headers=headers, timeout=settings.timeout_s)
        )
        # A queue that is full is noticed here, before the library's would say so in the log of each span.
        processor = BatchSpanProcessor(
            cast("SpanExporter", self._counted),  # it has an exporter's methods; its class is not there to inherit
            max_queue_size=2 * _MOST_WAITING,
            schedule_delay_millis=_GATHER_MS,
        )
        resource = Resource.create({"service.name": settings.service_name, "service.version": __version__})
        self._provider = TracerProvider(
            resource=resource, sampler=ParentBased(TraceIdRatioBased(settings.sample)), shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("adaptive_gamma", __version__)
        # Looked up once: an import costs something each time.
        self._server, self._current_span, self.error = SpanKind.SERVER, get_current_span, StatusCode.ERROR
        self._context = TraceContextTextMapPropagator()
        self._ended = self._dropped = 0
        self._closing: threading.Thread | None = None

    @classmethod
    def made(cls, settings: TracingSettings, source: str) -> Tracer | None:
        """One that sends to the endpoint of the settings, or None where they name none.

        Raises:
            ConfigurationError: what it needs is not installed.
        """
        if settings.endpoint is None:
            return None
        try:
            return cls(settings)
        except ImportError as error:
            raise ConfigurationError(
                source, "tracing.endpoint", f"needs the extra otel: pip install 'adaptive-gamma[otel]' ({error})"
            ) from error

    def begins(self, account: RequestAccount) -> None:
        """Make the span of a request, and have the engine see it as its parent."""
        client = account.intake.client
        parents = [line for line in client.passed if line.startswith(_TRACEPARENT)]
        states = [line for line in client.passed if line.startswith(_TRACESTATE)]
        carrier = {}
        if len(parents) == 1:  # several name none
            carrier = {"traceparent": _value(parents[0]), "tracestate": ",".join(map(_value, states))}
        parent = self._context.extract(carrier)
        followed = self._current_span(parent).get_span_context().is_valid
        method = account.intake.method.decode("ascii", "replace")
        method = method if method in _METHODS else "_OTHER"
        span = self._tracer.start_span(
            method, context=parent, kind=self._server, start_time=int(account.time_s * 1e9), attributes={}
        )
        account.span = RequestSpan(self, span, method)
        about = span.get_span_context()
        if not about.is_valid or (followed and not span.is_recording()):
            return  # switched off by OpenTelemetry's own variables, or not sampled: the parent stays the one it was
        kept = client.passed
        if parents or (states and not followed):
            gone = (_TRACEPARENT,) if followed else (_TRACEPARENT, _TRACESTATE)
            kept = [line for line in client.passed if not line.startswith(gone)]
        flags = b"01" if about.trace_flags.sampled else b"00"
        own = b"traceparent: 00-%032x-%016x-%b\r\n" % (about.trace_id, about.span_id, flags)
        client.passed = [*kept, own]

    def take(self, span: Span, end_ns: int) -> None:
        """A span is complete: hand it to the thread that sends."""
        waiting = self._ended - self._counted.exported - self._counted.failed
        if waiting >= _MOST_WAITING:
            self._dropped += 1
            return
        self._ended += 1
        span.end(end_time=end_ns)

    def counts(self) -> dict[str, int]:
        """Spans by what became of them."""
        return {"exported": self._counted.exported, "failed": self._counted.failed, "dropped": self._dropped}

    def finish(self) -> None:
        """Take no more spans; what is waiting is still sent, by and by."""
        if self._closing is None:
            self._closing = threading.Thread(target=self._provider.shutdown, name="end of tracing", daemon=True)
            self._closing.start()

    def close(self) -> None:
        """Send what is waiting; at most for some seconds."""
        self.finish()
        assert self._closing is not None
        self._closing.join(_CLOSE_MS / 1000)
        if self._closing.is_alive():
            _log.warning("spans of requests may be lost: %s does not take them", self.endpoint)


class RequestSpan:
    """The span of one request."""

    __slots__ = ("_method", "_span", "_tracer", "trace_id")

    def __init__(self, tracer: Tracer, span: Span, method: str) -> None:
        self._tracer = tracer
        self._span = span
        self._method = method
        self.trace_id = f"{span.get_span_context().trace_id:032x}"

    def ended(self, account: RequestAccount, fields: dict[str, Any]) -> None:
        """Put on it what the account says, by OpenTelemetry's names where there are any, and end it."""
        span = self._span
        if not span.is_recording():
            return
        intake = account.intake
        served = intake.endpoint is not None
        attributes: dict[str, Any] = {
            "http.request.method": self._method,
            "url.scheme": "http",
            "url.path": fields["path"],
            "http.route": intake.path if served and "/" not in _rest(intake.path) else None,
            "http.response.status_code": fields["status"],
            "http.response.body.size": fields["bytes"],
            "gen_ai.operation.name": _OPERATIONS.get(intake.path),
            "gen_ai.request.model": fields["model"],
            "gen_ai.usage.input_tokens": fields["prompt_tokens"],
            "gen_ai.usage.output_tokens": fields["output_tokens"],
            "adaptive_gamma.request_id": fields["request_id"],
            "adaptive_gamma.tries": fields["tries"],
            **{f"adaptive_gamma.{name}": fields[name] for name in _OWN},
        }
        outcome, status = fields["outcome"], fields["status"]
        if outcome not in _NO_FAULT:
            attributes["error.type"] = fields["error"] or (str(status) if status else outcome)
            span.set_status(self._tracer.error, outcome)
        if attributes["http.route"] is not None:
            span.update_name(f"{self._method} {attributes['http.route']}")
        span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        self._tracer.take(span, int((account.time_s + fields["total_s"]) * 1e9))


def _rest(path: str) -> str:
    """What follows a path whose end is the name of a thing, which is no route."""
    for prefix in ("/v1/models/", "/v1/responses/"):
        if path.startswith(prefix):
            return "/"
    return ""


def _value(line: bytes) -> str:
    return line.partition(b":")[2].strip().decode("latin-1")
