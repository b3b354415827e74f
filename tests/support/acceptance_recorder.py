"""Takes down what the proxy learns of single requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from adaptive_gamma.engines import RequestAcceptance
from adaptive_gamma.fleet import DraftCounts, FleetReplica

__all__ = ["AcceptanceRecorder"]


@dataclass
class AcceptanceRecorder:
    """A fleet's ``learning`` that only keeps what it is told."""

    notes: list[tuple[str, str, RequestAcceptance]] = field(default_factory=list)
    """(replica, class, acceptance) of each report, in order."""
    forgotten: list[str] = field(default_factory=list)
    """Replicas that are gone, in order."""

    def note_acceptance(self, replica: FleetReplica, request_class: str, acceptance: RequestAcceptance) -> None:
        self.notes.append((replica.name, request_class, acceptance))

    def note_drafts(self, replica: FleetReplica, counts: DraftCounts, at: float) -> None:
        """What scrapes count is of no interest here."""

    def forget(self, name: str) -> None:
        self.forgotten.append(name)

    @property
    def replicas(self) -> list[str]:
        return [replica for replica, _, _ in self.notes]

    @property
    def classes(self) -> list[str]:
        return [request_class for _, request_class, _ in self.notes]
