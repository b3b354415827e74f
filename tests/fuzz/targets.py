"""All fuzz targets by name."""

from __future__ import annotations

from tests.fuzz import bodies, exposition, files, logs, messages, reports, results
from tests.fuzz.target import Target

__all__ = ["ALL"]

ALL: dict[str, Target] = {
    target.name: target
    for module in (exposition, reports, bodies, messages, files, results, logs)
    for target in module.TARGETS
}
