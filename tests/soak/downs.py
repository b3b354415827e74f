"""When the proxy held a replica for unhealthy, as its own log tells."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Down", "read_downs"]

_CHANGE = re.compile(r"^(\S+ [\d:]+,\d{3}) \w+ adaptive_gamma\.fleet: replica (\S+) is (up|down)\b", re.MULTILINE)
_CLOCK_S = 0.05
"""The log counts in wall time, its line is written a moment after the change."""


@dataclass(frozen=True)
class Down:
    """From a change for the worse to the change for the better."""

    replica: str
    began: float
    ended: float

    def overlaps(self, start: float, end: float) -> bool:
        return self.began - _CLOCK_S <= end and start <= self.ended + _CLOCK_S


def read_downs(log: str, wall_ahead_s: float, over: float, begun_anew: Iterable[tuple[str, float]] = ()) -> list[Down]:
    """The times in a log.

    Args:
        log: text of the proxy's log.
        wall_ahead_s: wall time less monotonic time.
        over: monotonic time at which the log ends.
        begun_anew: (replica, monotonic time) from which the proxy knows nothing of what was before: it was put back.
    """
    changes = [
        (datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp() - wall_ahead_s, replica, state == "down")
        for at, replica, state in _CHANGE.findall(log)
    ]
    changes += [(at, replica, False) for replica, at in begun_anew]
    downs, since = [], dict[str, float]()
    for at, replica, down in sorted(changes):
        if down:
            since.setdefault(replica, at)
        elif replica in since:
            downs.append(Down(replica, since.pop(replica), at))
    return downs + [Down(replica, at, over) for replica, at in since.items()]
