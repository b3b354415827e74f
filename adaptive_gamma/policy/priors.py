"""What is believed of a drafter family before any traffic. The figures are data: ``adaptive_gamma.policy.library``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from adaptive_gamma.policy.schema import ClassPrior, DrafterInput, TwoParameters

__all__ = ["DrafterFamily", "DrafterPrior", "MeasuredAcceptance", "Standing"]

Standing: TypeAlias = Literal["measured", "derived", "assumed"]
"""measured: gives the figures listed for the class; derived: solved from one accepted length; assumed: neither."""


@dataclass(frozen=True, slots=True)
class DrafterPrior:
    """Acceptance of one class."""

    first: float
    """Acceptance at position 1."""
    plateau: float
    """Conditional acceptance at every later position."""
    pseudo_drafts: float
    """Weight against counted drafts."""
    standing: Standing
    source: str


@dataclass(frozen=True, slots=True)
class MeasuredAcceptance:
    """A published figure that a prior rests on."""

    target: str
    task: str
    request_class: str | None
    """The class whose prior it counts for; None for a mix."""
    unconditional: tuple[float, ...]
    """Share of all drafts accepted at each position, as far as published."""
    accepted_length: dict[int, float]
    """gamma: tokens per step, the target's own token included."""
    source: str


@dataclass(frozen=True, slots=True)
class DrafterFamily:
    """A kind of drafter: what it costs and what it gets accepted."""

    name: str
    aliases: tuple[str, ...]
    drafter: DrafterInput
    priors: dict[str, DrafterPrior]
    """By class."""
    measured: tuple[MeasuredAcceptance, ...] = ()

    @property
    def source(self) -> str:
        """Where the priors come from, class by class."""
        return "; ".join(f"{name}: {prior.source}" for name, prior in self.priors.items())

    def classes(self) -> dict[str, ClassPrior]:
        """The priors as a policy's classes."""
        return {
            name: ClassPrior(
                reading="unconditional",
                two_parameter=TwoParameters(first=prior.first, plateau=prior.plateau),
                pseudo_drafts=prior.pseudo_drafts,
                source=prior.source if prior.standing == "measured" else f"{prior.standing}: {prior.source}",
            )
            for name, prior in self.priors.items()
        }
