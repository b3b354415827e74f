"""A policy small enough to check by hand, and the files that ship."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from adaptive_gamma.policy import Policy, rebuild_policy

POLICIES = Path(__file__).resolve().parents[2] / "policies"
SHIPPED = sorted(path.stem for path in POLICIES.glob("*.yaml"))

_SMALL: dict[str, Any] = {
    "schema": "adaptive-gamma/policy/v1",
    "name": "small",
    "inputs": {
        "step_time": {
            "kind": "linear",
            "fixed_seconds": 0.020,
            "seconds_per_token": 1e-4,
            "seconds_per_kv_token": 5e-8,
        },
        "drafter": {"kind": "autoregressive", "pass_fraction": 0.1},
        "classes": {
            "structured": {"reading": "unconditional", "two_parameter": {"first": 0.9, "plateau": 0.85}},
            "chat": {"reading": "unconditional", "rates": [0.6, 0.36, 0.2]},
            "unsure": {"reading": "conditional", "rates": [0.7, 0.65], "plateau": 0.6},
        },
        "default_class": "unsure",
        "limits": {
            "max_gamma": 6,
            "max_batch": 300,
            "context_buckets": [500, 2000, 8000],
            "capture_limit_tokens": 512,
            "zero_gamma_tax": [[2, 0.0656], [189, 0.2158]],
        },
    },
}


def small_inputs() -> dict[str, Any]:
    """The file without its table; a copy to change."""
    return copy.deepcopy(_SMALL)


def small_policy() -> Policy:
    return rebuild_policy(small_inputs(), "small.yaml")


def small_file() -> dict[str, Any]:
    """The whole file as parsed YAML; a copy to change."""
    built = small_policy()
    return {**small_inputs(), "table": built.table.model_dump()}


def shipped_file(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((POLICIES / f"{name}.yaml").read_text())
    return data
