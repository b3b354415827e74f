"""One record of the log is one line, whatever engines, clusters and clients have put into it."""

from __future__ import annotations

import logging
import re
from types import TracebackType
from typing import TypeAlias

__all__ = ["OneLineFormatter", "harmless"]

_Raised: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_IN_TRACE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def harmless(text: str) -> str:
    """A text of several lines without what would steer the terminal that shows it."""
    return _IN_TRACE.sub(_escaped, text)


class OneLineFormatter(logging.Formatter):
    """Control characters, ends of lines among them, and turns of the direction of writing are shown as escapes.

    A traceback keeps its lines, each behind a tab: what an error says cannot be taken for a record of its own.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # the library's name
        return _CONTROL.sub(_escaped, super().formatMessage(record))

    def formatException(self, ei: _Raised) -> str:  # the library's name
        return self._below(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # the library's name
        return self._below(super().formatStack(stack_info))

    @staticmethod
    def _below(text: str) -> str:
        return "\t" + harmless(text).replace("\n", "\n\t")
