"""What holds for all replicas of a fleet alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import SecretStr

from adaptive_gamma.config.settings import (
    CapabilitySettings,
    CostCheckSettings,
    HealthSettings,
    LoadSettings,
    ScrapeSettings,
    Settings,
)

__all__ = ["FleetOptions"]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Intervals, limits and thresholds, the cap of replicas without one of their own, and the key for engines."""

    scrape: ScrapeSettings
    health: HealthSettings
    load: LoadSettings
    api_key: SecretStr | None
    """Sent to engines as a bearer token."""
    cost_check: CostCheckSettings = field(default_factory=CostCheckSettings)
    capability: CapabilitySettings = field(default_factory=CapabilitySettings)

    @classmethod
    def of(cls, settings: Settings) -> FleetOptions:
        """What a whole configuration says of them."""
        return cls(
            settings.scrape,
            settings.health,
            settings.load,
            settings.engine_api_key,
            settings.cost_check,
            settings.capability,
        )

    def looks_as(self, other: FleetOptions) -> bool:
        """Whether replicas are asked in the same way at the same intervals; limits and thresholds may differ."""
        return all(
            (mine.interval_s, mine.timeout_s) == (theirs.interval_s, theirs.timeout_s)
            for mine, theirs in ((self.scrape, other.scrape), (self.health, other.health))
        ) and (self.health.path, self.api_key) == (other.health.path, other.api_key)
