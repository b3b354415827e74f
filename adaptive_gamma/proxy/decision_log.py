"""The last decisions, newest first, for the admin page ``/decisions``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from adaptive_gamma.proxy.answers import shortened
from adaptive_gamma.proxy.observing import ObservationKeeper, Observed

if TYPE_CHECKING:
    from adaptive_gamma.fleet.choice import Choice
    from adaptive_gamma.proxy.intake import Intake
    from adaptive_gamma.routing import RequestNeeds, Verdict

__all__ = ["DecisionLog", "DecisionRecord"]


@dataclass(slots=True)
class DecisionRecord:
    """One routed request. ``outcome`` and ``status`` stay None while it is under way."""

    time_s: float
    """Unix seconds."""
    request_id: bytes
    path: str
    model: str | None
    mode: str
    decided: Verdict
    sent_to: str
    """The replica it went to; another one than decided while only observing."""
    outcome: str | None = None
    status: int | None = None
    observed: Observed | None = None
    """Where it is only observed."""

    def close(self, outcome: str, status: int | None) -> None:
        """The request has ended so. A rejection passed on after all ends a second time, and is observed once."""
        first = self.outcome is None
        self.outcome, self.status = outcome, status
        if first and self.observed is not None:
            self.observed.ended(self)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form: the decision's own, and what became of the request."""
        return {
            "time": datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds"),
            "request_id": self.request_id.decode("ascii"),
            "path": self.path,
            "model": self.model,
            "mode": self.mode,
            "sent_to": self.sent_to,
            "outcome": self.outcome,
            "status": self.status,
            "decision": self.decided.decision().as_dict(),
            "counterfactual": None if self.observed is None else self.observed.as_dict(),
        }


class DecisionLog:
    """Keeps the last ``keep`` records; a retried request has one for each try. Observations go to their keeper."""

    def __init__(self, keep: int, observations: ObservationKeeper) -> None:
        self._records: deque[DecisionRecord] = deque(maxlen=keep)
        self._observations = observations

    def begin(self, request: Intake, needs: RequestNeeds, mode: str, choice: Choice) -> DecisionRecord:
        """Keep the record of a request that is on its way; ``mode`` is the proxy's."""
        model = needs.model
        record = DecisionRecord(
            time.time(),
            request.client.request_id,
            request.path,
            None if model is None else shortened(model),
            mode,
            choice.decided,
            choice.replica,
        )
        if choice.foregone is not None and request.endpoint is not None and request.endpoint.generates:
            record.observed = Observed(choice.foregone, needs.prompt_tokens, self._observations, time.monotonic)
        self._records.append(record)
        return record

    def resize(self, keep: int) -> None:
        """Keep another number of records from here on; of those there are, the newest stay."""
        if keep != self._records.maxlen:
            self._records = deque(self._records, maxlen=keep)

    def __len__(self) -> int:
        return len(self._records)

    def rows(self, limit: int) -> Iterator[dict[str, Any]]:
        """At most ``limit`` records as JSON objects, newest first, each made when it is asked for."""
        records = list(islice(reversed(self._records), limit))
        return (record.as_dict() for record in records)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """:meth:`rows` as a list."""
        return list(self.rows(limit))
