from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes is the machine's affair: a busy one must not fail a property.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
