"""How many of Envoy's requests were open on a replica when its engine counted what runs.

What an engine counts beyond our own requests came from elsewhere, and is believed to stay until the next scrape. Envoy
is asked every now and then, and not at that very moment. A request that began in between would pass for somebody
else's, and haunt the replica for a scrape's interval after its end. So all count as ours that may have been open then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["OwnLoad"]


@dataclass(slots=True)
class OwnLoad:
    """Of one replica.

    Args:
        kept_s: for how long looks at Envoy are remembered, in seconds: longer than a scrape may take.
    """

    kept_s: float
    _looks: deque[tuple[float, int, int]] = field(default_factory=deque)
    """Time, requests open then, requests begun until then."""

    def look(self, now: float, active: int, begun: int) -> None:
        """What Envoy said. Counts that fell (a restart) begin anew."""
        if self._looks and begun < self._looks[-1][2]:
            self._looks.clear()
        self._looks.append((now, active, begun))
        while len(self._looks) > 1 and self._looks[1][0] <= now - self.kept_s:
            self._looks.popleft()

    def most_at(self, scraped_at: float) -> int | None:
        """The most that can have been open when an engine counted, which it did between the start of its scrape and
        the last look; None where nothing is known."""
        if not self._looks:
            return None
        before = next((look for look in reversed(self._looks) if look[0] <= scraped_at), self._looks[0])
        return before[1] + self._looks[-1][2] - before[2]
