"""What ``serve`` is told: the tree of settings and the loader that refuses what it does not know."""

from adaptive_gamma.config.class_names import check_class_names
from adaptive_gamma.config.file_watch import FileChanges, Stamp, stamp_of, stamps_of
from adaptive_gamma.config.load import load_settings, variable_of
from adaptive_gamma.config.settings import (
    AffinitySettings,
    CapabilitySettings,
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
    ObserveSettings,
    ReloadSettings,
    ReplicaSettings,
    RetrySettings,
    ScrapeSettings,
    Settings,
)

__all__ = [
    "AffinitySettings",
    "CapabilitySettings",
    "ClassRule",
    "ClassifySettings",
    "ControlSettings",
    "CostCheckSettings",
    "DecisionSettings",
    "DrainSettings",
    "FileChanges",
    "HealthSettings",
    "LearnSettings",
    "LimitSettings",
    "LoadSettings",
    "ObserveSettings",
    "ReloadSettings",
    "ReplicaSettings",
    "RetrySettings",
    "ScrapeSettings",
    "Settings",
    "Stamp",
    "check_class_names",
    "load_settings",
    "stamp_of",
    "stamps_of",
    "variable_of",
]
