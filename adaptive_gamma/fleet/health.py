"""Whether a replica may get requests: a state machine over probes and over what requests met on their way."""

from __future__ import annotations

__all__ = ["HealthMonitor"]


class HealthMonitor:
    """Up until ``down_after`` failures in a row, then down until ``up_after`` successful probes in a row.

    Two rows are counted. One holds probes that failed and connections that requests could not make; they add up, so a
    replica that refuses connections goes down before the next probe. The other holds answers that failed: a health
    page that says all is well does not end it, only an answer does. A request that was answered ends that row and
    forgets the refused connections, but not the failed probes: an engine whose health page says it is broken may well
    still answer something. For the same reason only probes bring a replica up again.
    """

    __slots__ = (
        "_answer_failures",
        "_connect_failures",
        "_down_after",
        "_probe_failures",
        "_successes",
        "_up",
        "_up_after",
        "changes",
    )

    def __init__(self, *, down_after: int = 3, up_after: int = 2) -> None:
        self._up = True
        self._probe_failures = 0
        self._connect_failures = 0
        self._answer_failures = 0
        self._successes = 0
        self.set_limits(down_after=down_after, up_after=up_after)
        self.changes = 0
        """How often the state has changed."""

    def set_limits(self, *, down_after: int, up_after: int) -> None:
        """Use other lengths of rows from the next event on."""
        if down_after < 1 or up_after < 1:
            raise ValueError("down_after and up_after must be at least 1")
        self._down_after = down_after
        self._up_after = up_after

    @property
    def up(self) -> bool:
        return self._up

    @property
    def failures(self) -> int:
        """Failures in a row, as they count towards going down: those of the longer row."""
        return max(self._probe_failures + self._connect_failures, self._answer_failures)

    def probed(self, ok: bool) -> bool:
        """A health probe came back. True when the state changed."""
        if not ok:
            self._probe_failures += 1
            return self._failed()
        self._probe_failures = self._connect_failures = 0
        if self._up:
            return False
        self._successes += 1
        if self._successes < self._up_after:
            return False
        return self._change(up=True)

    def connect_failed(self) -> bool:
        """A request could not connect. True when the state changed."""
        self._connect_failures += 1
        return self._failed()

    def answer_failed(self) -> bool:
        """A request got an answer that speaks against the engine, or half of one. True when the state changed."""
        self._answer_failures += 1
        return self._failed()

    def answered(self) -> None:
        """A request got an answer."""
        self._connect_failures = self._answer_failures = 0

    def _failed(self) -> bool:
        self._successes = 0
        if not self._up or self.failures < self._down_after:
            return False
        return self._change(up=False)

    def _change(self, *, up: bool) -> bool:
        self._up = up
        self._probe_failures = self._connect_failures = self._answer_failures = self._successes = 0
        self.changes += 1
        return True
