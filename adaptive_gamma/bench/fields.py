"""Reads the values of a result file's objects: right type, finite, not negative, or an error that names the field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from adaptive_gamma.bench.source import Source, printable
from adaptive_gamma.errors import SweepError

__all__ = ["Fields"]

SECONDS_PER_TOKEN = (1e-6, 600.0)
TOKENS_PER_SECOND = (1e-6, 1e9)
MOST_REQUESTS_AT_ONCE = 1_000_000
MOST_LENGTH = 1e8
"""Tokens of one request."""
MOST_TOKENS = 10**13
"""Tokens, requests or steps of one run."""
MOST_SECONDS = 1e7


class Fields:
    """The fields of one JSON object. An absent or null field is None; one that makes no sense is a SweepError."""

    def __init__(self, values: Mapping[str, Any], source: Source, inside: str = "") -> None:
        self.values = values
        self.source = source
        self.inside = inside

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def error(self, key: str, problem: str, suggestion: str | None = None) -> SweepError:
        """An error that names this object's field ``key``."""
        return SweepError(str(self.source), printable(f"{self.inside}{key}", 200), problem, suggestion)

    def number(self, key: str, *, scale: float = 1.0, least: float = 0.0) -> float | None:
        """A finite number of at least ``least``, times ``scale``."""
        value = self.values.get(key)
        return None if value is None else scale * self._finite(key, value, least)

    def seconds_per_token(self, key: str, *, scale: float = 1.0) -> float | None:
        """A time per token in seconds, 1 us to 600 s; ``scale`` is the file's unit in seconds."""
        return self._within(key, SECONDS_PER_TOKEN, scale, "a time per token")

    def tokens_per_second(self, key: str) -> float | None:
        """A throughput, above 0."""
        return self._within(key, TOKENS_PER_SECOND, 1.0, "tokens a second")

    def seconds(self, key: str, *, scale: float = 1.0) -> float | None:
        """A time of one request or run in seconds; ``scale`` is the file's unit in seconds."""
        return self._within(key, (0.0, MOST_SECONDS), scale, "a time")

    def length(self, key: str) -> float | None:
        """A mean length of prompts, answers or contexts, in tokens."""
        return self._within(key, (0.0, MOST_LENGTH), 1.0, "a length in tokens")

    def load(self, key: str) -> float | None:
        """A measured mean of requests in flight."""
        return self._within(key, (0.0, MOST_REQUESTS_AT_ONCE), 1.0, "requests at once")

    def concurrency(self, key: str) -> int | None:
        """The requests in flight that were asked for, 1 or more."""
        if self._within(key, (1.0, MOST_REQUESTS_AT_ONCE), 1.0, "requests at once") is None:
            return None
        return self.count(key)

    def count(self, key: str, *, least: int = 0, most: int = MOST_TOKENS) -> int | None:
        """A whole number of ``least`` to ``most``; 3.0 is 3."""
        value = self.values.get(key)
        if value is None:
            return None
        number = self._finite(key, value, least)
        if number > most:
            raise self.error(key, f"expected at most {most:g}, got {value:g}")
        if number != int(number):
            raise self.error(key, f"expected a whole number, got {value!r:.60}")
        return int(value)

    def text(self, key: str) -> str | None:
        """A string that can be written as UTF-8; an empty one is None."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"expected a text, got {value!r:.60}")
        if value and not _is_unicode(value):
            raise self.error(key, f"holds half a surrogate pair: {value!r:.60}")
        return value or None

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, f"expected true or false, got {value!r:.60}")
        return value

    def numbers(self, key: str) -> tuple[float, ...] | None:
        """A list of finite numbers that are not negative."""
        items = self._list(key)
        if items is None:
            return None
        if _are_sound(items):
            return tuple(items)
        return tuple(self._finite(f"{key}[{i}]", item, 0.0) for i, item in enumerate(items))

    def counts(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers that are not negative."""
        items = self._list(key)
        if items is None:
            return None
        inner = Fields({f"{key}[{i}]": item for i, item in enumerate(items)}, self.source, self.inside)
        return tuple(inner.required_count(name) for name in inner.values)

    def required_count(self, key: str) -> int:
        """A whole number that must be there."""
        value = self.count(key)
        if value is None:
            raise self.error(key, "is missing")
        return value

    def object(self, key: str) -> Fields | None:
        """A nested object."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, f"expected an object, got {value!r:.60}")
        return Fields(value, self.source, f"{self.inside}{key}.")

    def objects(self, key: str) -> Iterator[Fields]:
        """The objects of a list; none when the list is absent."""
        for index, item in enumerate(self._list(key) or ()):
            if not isinstance(item, dict):
                raise self.error(f"{key}[{index}]", f"expected an object, got {item!r:.60}")
            yield Fields(item, self.source, f"{self.inside}{key}[{index}].")

    def _list(self, key: str) -> list[Any] | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self.error(key, f"expected a list, got {value!r:.60}")
        return value

    def _within(self, key: str, bounds: tuple[float, float], scale: float, what: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        number = self._finite(key, value, 0.0)
        # What is written is compared, so that a bound itself passes in any unit.
        low, high = bounds[0] / scale, bounds[1] / scale
        if not low <= number <= high:
            raise self.error(key, f"expected {what} of {low:.6g} to {high:.6g}, got {number:g}")
        return number * scale

    def _finite(self, key: str, value: Any, least: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected a number, got {value!r:.60}")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(key, f"is not finite: {value}")
        if abs(value) > 2**63:
            raise self.error(key, "is a number without sense: beyond 2**63")
        if value < least:
            raise self.error(key, f"is negative: {value}" if least == 0 else f"must be at least {least:g}, got {value}")
        return float(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _are_sound(items: list[Any]) -> bool:
    """Whether all items pass at a glance: a detailed file lists one number a request, and a sweep has many files."""
    if not set(map(type, items)) <= {int, float} or (items and max(items) > 2**63):
        return False
    return math.isfinite(math.fsum(items)) and min(items, default=0) >= 0
