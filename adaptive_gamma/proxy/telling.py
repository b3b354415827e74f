"""What is told of requests as they end: a line in the access log, a span to a collector of traces, or neither."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptive_gamma.config.settings import AccessLogSettings, TracingSettings
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.fleet.exposition import Family
from adaptive_gamma.observe import LineLog, LineWriter, StreamSink
from adaptive_gamma.proxy.account import RequestAccount
from adaptive_gamma.proxy.tracing import Tracer

if TYPE_CHECKING:
    from adaptive_gamma.config.settings import Settings
    from adaptive_gamma.proxy.intake import Intake

__all__ = ["Prepared", "Telling", "json_line", "text_line"]

_PLAIN_WORD = re.compile(r"[!#-<>-\[\]-~]+")
"""Visible ASCII without a quote, a backslash and an equals sign: needs no quotes in a line of text."""
_STANDARD_OUTPUT = "-"


def json_line(time_s: float, fields: dict[str, Any]) -> bytes:
    """A line of JSON; a value not known is null."""
    words = ",".join([f'"{name}":{_json_word(value)}' for name, value in fields.items()])
    return _escaped(f'{{"time":"{_time(time_s)}",{words}}}')


def text_line(time_s: float, fields: dict[str, Any]) -> bytes:
    """A line of ``name=value``, text in quotes as in JSON where it needs them; a value not known is ``-``."""
    return _escaped(" ".join([_time(time_s), *(f"{name}={_word(value)}" for name, value in fields.items())]))


def _escaped(line: str) -> bytes:
    # JSON's escapes are for all control characters and what is beyond ASCII, but not for this one.
    return line.replace("\x7f", "\\u007f").encode("ascii", "backslashreplace")


def _time(time_s: float) -> str:
    seconds = int(time_s)
    return f"{_second(seconds)}.{int((time_s - seconds) * 1000):03d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _json_word(value: object) -> str:
    if value is None:
        return "null"
    return encode_basestring_ascii(value) if isinstance(value, str) else repr(value)


def _word(value: object) -> str:
    if value is None:
        return "-"
    text = str(value)
    return text if _PLAIN_WORD.fullmatch(text) and text != "-" else encode_basestring_ascii(text)


_LINES: dict[str, Callable[[float, dict[str, Any]], bytes]] = {"json": json_line, "text": text_line}


class Prepared(NamedTuple):
    """What other settings need, open and ready."""

    log: LineWriter | None
    tracer: Tracer | None


class Telling:
    """Tells of requests as the settings say, which may be replaced while serving.

    Args:
        settings: the whole configuration.
        origin: names the file or variable that gave a key.

    Raises:
        ConfigurationError: the log cannot be opened, or what spans need is not installed.
    """

    def __init__(self, settings: Settings, origin: Callable[[str], str] = lambda key: "settings") -> None:
        self.active = False
        """Whether requests need an account at all."""
        self._log_settings, self._tracing_settings = AccessLogSettings(), TracingSettings()
        self._log: LineWriter | None = None
        self._tracer: Tracer | None = None
        self._line: Callable[[float, dict[str, Any]], bytes] = json_line
        self._former: list[LineWriter] = []
        """Logs before this one, for what they have counted; each may still be written."""
        self._former_tracers: list[Tracer] = []
        self.take(settings, self.prepared(settings, origin))

    def prepared(self, settings: Settings, origin: Callable[[str], str] = lambda key: "settings") -> Prepared:
        """What other settings need; pass it to ``take`` then. Raises ConfigurationError."""
        log, tracer = self._log, self._tracer
        if settings.tracing != self._tracing_settings:
            tracer = Tracer.made(settings.tracing, origin("tracing.endpoint"))
        if not _same_place(self._log_settings, settings.access_log):
            try:
                log = _opened(settings.access_log, origin("access_log.path"))
            except ConfigurationError:
                self.discard(Prepared(None, tracer))
                raise
        return Prepared(log, tracer)

    def discard(self, prepared: Prepared) -> None:
        """It is not taken after all."""
        if prepared.log is not None and prepared.log is not self._log:
            prepared.log.finish()
        if prepared.tracer is not None and prepared.tracer is not self._tracer:
            prepared.tracer.finish()

    def take(self, settings: Settings, prepared: Prepared) -> None:
        """Go on with other settings. What was handed over before is still written and sent."""
        before, tracer_before = self._log, self._tracer
        self._log, self._tracer = prepared
        if before is not None and before is not self._log:
            before.finish()
            self._former.append(before)
        if tracer_before is not None and tracer_before is not self._tracer:
            tracer_before.finish()
            self._former_tracers.append(tracer_before)
        self._log_settings, self._tracing_settings = settings.access_log, settings.tracing
        if isinstance(self._log, LineLog):
            self._log.resize(max_bytes=settings.access_log.max_bytes, files=settings.access_log.files)
        self._line = _LINES.get(settings.access_log.format, json_line)
        self.active = self._log is not None or self._tracer is not None

    def begins(self, intake: Intake) -> None:
        """A request's head has come."""
        account = intake.account = RequestAccount(self, intake)
        if self._tracer is not None:
            self._tracer.begins(account)

    def ended(self, account: RequestAccount) -> None:
        """A request has ended."""
        fields = account.fields()
        if account.span is not None:
            account.span.ended(account, fields)
            fields["trace_id"] = account.span.trace_id
        if self._log is not None:
            self._log.add(self._line(account.time_s, fields))

    def status(self) -> dict[str, Any]:
        """``telling`` of ``/status``."""
        log, tracer = self._log, self._tracer
        return {
            "access_log": None
            if log is None
            else {
                "path": log.name,
                "written": log.written,
                "waiting": log.waiting,
                "dropped": log.dropped,
                "errors": log.errors,
            },
            "tracing": None if tracer is None else {"endpoint": tracer.endpoint, **tracer.counts()},
        }

    def families(self) -> Iterator[Family]:
        """What the metrics page says of it."""
        logs = [*self._former, *([] if self._log is None else [self._log])]
        for name, text, value in (
            ("lines_written", "Lines written to the access log.", sum(log.written for log in logs)),
            (
                "lines_dropped",
                "Lines that the access log has lost, as it could not be written for too long.",
                sum(log.dropped for log in logs),
            ),
            ("errors", "Failed attempts to write to the access log.", sum(log.errors for log in logs)),
        ):
            yield Family(f"adaptive_gamma_access_log_{name}", "counter", text, (), [("_total", (), value)])
        totals = dict.fromkeys(("exported", "failed", "dropped"), 0)
        for tracer in (*self._former_tracers, *([] if self._tracer is None else [self._tracer])):
            for result, count in tracer.counts().items():
                totals[result] += count
        yield Family(
            "adaptive_gamma_trace_spans",
            "counter",
            "Spans of requests by what became of them: taken by the collector, refused by it or lost on the way, or "
            "dropped here as too many waited.",
            ("result",),
            [("_total", (result,), count) for result, count in totals.items()],
        )

    def close(self) -> None:
        """Write and send what is waiting; at most for some seconds."""
        for tracer in (*self._former_tracers, *([] if self._tracer is None else [self._tracer])):
            tracer.close()
        for log in (*self._former, *([] if self._log is None else [self._log])):
            log.close()


def _same_place(before: AccessLogSettings, after: AccessLogSettings) -> bool:
    return (before.format, before.path) == (after.format, after.path)


def _dropped_as_text(count: int) -> bytes:
    return b"dropped=%d" % count


def _opened(settings: AccessLogSettings, source: str) -> LineWriter | None:
    if settings.format == "none":
        return None
    dropped: dict[str, Any] = {"dropped_line": _dropped_as_text} if settings.format == "text" else {}
    try:
        if settings.path == _STANDARD_OUTPUT:
            descriptor = 1 if sys.__stdout__ is None else sys.__stdout__.fileno()
            os.fstat(descriptor)
            return LineWriter(StreamSink(descriptor), "standard output", **dropped)
        return LineLog(Path(settings.path), max_bytes=settings.max_bytes, files=settings.files, **dropped)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(source, "access_log.path", f"cannot be written: {reason}") from error
