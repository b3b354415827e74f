"""The bootstrap: what Envoy is started with. It names the other files and the admin port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaptive_gamma.envoy.files.names import CLUSTERS_FILE, LISTENERS_FILE, address_of

__all__ = ["bootstrap_file"]

_LONG_PATTERNS = {f"re2.max_program_size.{level}_level": 1_000_000 for level in ("error", "warn")}
"""All paths are one pattern, longer than what Envoy takes unless told to: RE2 walks it once, whatever its length."""


def bootstrap_file(envoy_admin: str, folder: Path) -> dict[str, Any]:
    """Everything but the admin port comes from files that Envoy watches; ``folder`` is where it finds them."""
    return {
        "node": {"id": "adaptive-gamma", "cluster": "adaptive-gamma"},
        "admin": {"address": address_of(envoy_admin)},
        "layered_runtime": {"layers": [{"name": "paths", "static_layer": _LONG_PATTERNS}]},
        "dynamic_resources": {
            "cds_config": _watched(folder / CLUSTERS_FILE),
            "lds_config": _watched(folder / LISTENERS_FILE),
        },
    }


def _watched(path: Path) -> dict[str, Any]:
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}
