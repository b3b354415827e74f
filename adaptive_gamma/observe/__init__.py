"""Observing before acting: what is kept of each request, the log it is kept in, and what can be concluded from it."""

from adaptive_gamma.observe.line_log import LineLog, LineWriter
from adaptive_gamma.observe.line_sink import StreamSink
from adaptive_gamma.observe.observation import Observation, Place
from adaptive_gamma.observe.reading import Since, parse_since, read_lines, read_log
from adaptive_gamma.observe.report import build_report
from adaptive_gamma.observe.words import report_text

__all__ = [
    "LineLog",
    "LineWriter",
    "Observation",
    "Place",
    "Since",
    "StreamSink",
    "build_report",
    "parse_since",
    "read_lines",
    "read_log",
    "report_text",
]
