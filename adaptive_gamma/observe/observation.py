"""One request that was observed: what the decision would have done with it, where it went, and how long it took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["VERSION", "Observation", "Place"]

VERSION = 1
_POOLS = ("plain", "speculative")
_LARGEST = 1e11
"""No time in seconds and no count is larger: a line that says otherwise is not one of ours."""
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class Place(NamedTuple):
    """A replica as a place for the request, predicted when it was decided."""

    replica: str
    pool: str
    """``plain`` or ``speculative``."""
    gamma: int | None
    load: int
    tpot_s: float
    """Time per output token, in seconds."""
    cost_s: float
    """The same with the request's share of its own prefill and the delay it puts on the others there."""
    prefill_s: float


class Observation(NamedTuple):
    """One request. Predictions are of the moment it was decided, times are as they came."""

    time_s: float
    """Unix seconds at which it was decided."""
    request_id: str
    path: str
    request_class: str
    reason: str
    """Why the decision would have sent it where it would."""
    decided: Place
    sent: Place
    prompt_tokens: int | None
    """Estimated."""
    expected_tokens: int
    """Output tokens expected of it."""
    outcome: str
    status: int | None
    stream: bool
    """Whether the answer was an event stream, so that its first byte marks the first token."""
    first_byte_s: float | None
    """From the decision to the first byte of the answer's body."""
    total_s: float
    """From the decision to the end of the answer."""
    output_tokens: int | None
    """As the engine counted them; None where the answer does not say."""

    def line(self) -> bytes:
        """The JSON object of a log's line, without the line's end."""
        row = self._asdict()
        row["decided"], row["sent"] = self.decided._asdict(), self.sent._asdict()
        row["time_s"] = round(self.time_s, 3)
        for name in ("first_byte_s", "total_s"):
            if row[name] is not None:
                row[name] = round(row[name], 6)
        return _encode({"v": VERSION, **row}).encode("ascii")

    @classmethod
    def from_mapping(cls, row: Mapping[str, Any]) -> Observation:
        """From the object of a line. Raises ValueError for what is not one."""
        if row.get("v") != VERSION:
            raise ValueError(f"expected version {VERSION}, not {row.get('v')!r}")
        try:
            total, first = float(row["total_s"]), row["first_byte_s"]
            found = cls(
                float(row["time_s"]),
                str(row["request_id"]),
                str(row["path"]),
                str(row["request_class"]),
                str(row["reason"]),
                _place(row["decided"]),
                _place(row["sent"]),
                _count(row["prompt_tokens"]),
                int(row["expected_tokens"]),
                str(row["outcome"]),
                _count(row["status"]),
                bool(row["stream"]),
                None if first is None else float(first),
                total,
                _count(row["output_tokens"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not an observation: {error!r}") from error
        times = (found.time_s, total, found.first_byte_s or 0.0)
        if not all(0 <= value <= _LARGEST for value in times) or not 1 <= found.expected_tokens <= _LARGEST:
            raise ValueError("not an observation: a time or a count is out of range")
        return found


def _place(row: Mapping[str, Any]) -> Place:
    if row["pool"] not in _POOLS:
        raise ValueError(f"no pool {row['pool']!r}")
    place = Place(
        str(row["replica"]),
        row["pool"],
        _count(row["gamma"]),
        int(row["load"]),
        float(row["tpot_s"]),
        float(row["cost_s"]),
        float(row["prefill_s"]),
    )
    if not all(0 <= value <= _LARGEST for value in place[4:]) or place.tpot_s == 0:
        raise ValueError("a prediction is out of range")
    return place


def _count(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError("expected a count")
    return value
