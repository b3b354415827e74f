"""What ``serve`` is told: the tree of settings and the loader that refuses what it does not know."""

from adaptive_gamma.config.class_names import check_class_names
from adaptive_gamma.config.load import load_settings, variable_of
from adaptive_gamma.config.settings import (
    AffinitySettings,
    ClassifySettings,
    ClassRule,
    ControlSettings,
    CostCheckSettings,
    DecisionSettings,
    DrainSettings,
    HealthSettings,
    LearnSettings,
    LimitSettings,
    LoadSettings,
    ReplicaSettings,
    RetrySettings,
    ScrapeSettings,
    Settings,
)

__all__ = [
    "AffinitySettings",
    "ClassRule",
    "ClassifySettings",
    "ControlSettings",
    "CostCheckSettings",
    "DecisionSettings",
    "DrainSettings",
    "HealthSettings",
    "LearnSettings",
    "LimitSettings",
    "LoadSettings",
    "ReplicaSettings",
    "RetrySettings",
    "ScrapeSettings",
    "Settings",
    "check_class_names",
    "load_settings",
    "variable_of",
]
