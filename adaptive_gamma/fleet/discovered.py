"""What the metrics page says of the places where replicas are found.

A place is a row of ``/status``: ``name``, ``kind``, ``source``, ``ready`` (endpoints that may get requests),
``not_ready`` (names of the others), ``age_s`` (since it last said anything, None when it never has), ``error``,
``error_reason``, ``error_age_s``, ``failures`` (by reason) and ``left_out`` (what cannot be used, and why).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from adaptive_gamma.fleet.exposition import Family

__all__ = ["discovery_families"]

_SERVICE = ("service",)


def discovery_families(rows: Sequence[dict[str, Any]]) -> Iterator[Family]:
    """The families; none where replicas are only configured."""
    if not rows:
        return
    yield Family(
        "adaptive_gamma_discovery_up",
        "gauge",
        "1 while the place where replicas are found answers, else 0: the last list is then in force.",
        _SERVICE,
        [("", (row["name"],), float(row["age_s"] is not None and row["error"] is None)) for row in rows],
    )
    yield Family(
        "adaptive_gamma_discovery_age_seconds",
        "gauge",
        "Since that place last said anything.",
        _SERVICE,
        [("", (row["name"],), row["age_s"]) for row in rows if row["age_s"] is not None],
    )
    yield Family(
        "adaptive_gamma_discovery_endpoints",
        "gauge",
        "Endpoints found: ready, and those that finish what is open or have not come up.",
        ("service", "state"),
        [
            ("", (row["name"], state), count)
            for row in rows
            for state, count in (("ready", row["ready"]), ("not_ready", len(row["not_ready"])))
        ],
    )
    yield Family(
        "adaptive_gamma_discovery_failures",
        "counter",
        "Looks that came to nothing, by reason.",
        ("service", "reason"),
        [("_total", (row["name"], why), count) for row in rows for why, count in row["failures"].items()],
    )
