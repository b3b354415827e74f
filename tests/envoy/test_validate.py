"""Envoy itself looks at the files of many configurations."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.addresses import Address
from adaptive_gamma.envoy.files import Place, make_plan, render_endpoints, render_frame, whole_configuration
from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import DecisionLimits, ReplicaState
from adaptive_gamma.routing.shares import Expected, shares_of
from tests.support.envoy import needs_envoy

REPLICAS = [
    {"name": "spec-0", "url": "http://127.0.0.1:8001", "gamma": 4},
    {"name": "plain-0", "url": "http://127.0.0.1:8002", "gamma": 0},
]
MANY = [{"name": f"r{i}", "url": f"http://10.0.{i}.1:8000", "gamma": 4 * (i % 2)} for i in range(40)]
MATRIX: dict[str, dict[str, Any]] = {
    "least": {},
    "one replica": {"replicas": REPLICAS[:1]},
    "many replicas": {"replicas": MANY},
    "https": {"replicas": [{"name": "a", "url": "https://10.0.0.1"}, *REPLICAS]},
    "IPv6": {"replicas": [{"name": "a", "url": "http://[2001:db8::1]:8000"}], "listen": "[::1]:8080"},
    "key": {"engine_api_key": "sk-with-%-and-$ign"},
    "no class header": {"classify": {"header": None}},
    "other class header": {"classify": {"header": "x-class"}},
    "rules": {
        "classify": {
            "rules": [
                {"class": "code", "path": "/v1/completions"},
                {"class": "prose", "model": 'odd "name" \\ ünï'},
            ],
            "default": "chat",
        }
    },
    "paths": {"allow_paths": ["/slots", "/v1/odd.path+x", "/props"]},
    "no retry": {"retry": {"attempts": 0}},
    "many retries": {"retry": {"attempts": 10}},
    "limits": {
        "limits": {
            "body_bytes": 2**32 - 1,
            "connect_timeout_s": 0.05,
            "first_byte_timeout_s": 86_400,
            "idle_timeout_s": 0.5,
        }
    },
    "structured output": {"capability": {"structured_output": "plain"}},
    "caps": {"load": {"max_in_flight": 1}},
    "health": {"health": {"down_after": 1, "up_after": 100, "interval_s": 0.05}},
    "observe": {"mode": "observe"},
    "other policy": {"policy": "h100-llama3-8b-eagle3"},
}


@pytest.mark.parametrize("name", MATRIX)
def test_envoy_finds_no_fault(name: str, tmp_path: Path) -> None:
    envoy = needs_envoy()
    settings = Settings.model_validate({"policy": "demo-llamacpp-cpu", "replicas": REPLICAS, **MATRIX[name]})
    policy = load_policy(settings.policy)
    states = [
        ReplicaState(
            replica.name,
            speculative=replica.gamma != 0,
            gamma=4 if replica.gamma else 0,
            models=frozenset({f"model-{index % 3}"}),
            in_flight=1,
            max_in_flight=settings.load.max_in_flight,
        )
        for index, replica in enumerate(settings.replicas)
    ]
    plan = make_plan(
        states,
        policy,
        default_class=settings.classify.default,
        structure_apart=settings.capability.structured_output == "plain",
    )
    kinds = [Expected(cluster.needs, 3.0, cluster.replicas) for cluster in plan.clusters]
    shares = shares_of(kinds, states, policy, now=0.0, limits=DecisionLimits())
    addresses = {
        replica.name: Address(f"10.1.0.{index}", 80, "h:80", replica.url.startswith("https"))
        for index, replica in enumerate(settings.replicas)
    }
    place = Place(tmp_path, settings.listen, "127.0.0.1:9901")
    page = {"object": "list", "data": [{"id": f"model-{number}", "x": "y" * 3000} for number in range(20)]}
    files = render_endpoints(plan, shares, states, addresses) | render_frame(plan, settings, place, page)
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(whole_configuration(files)))
    found = subprocess.run(
        [envoy, "--mode", "validate", "-c", str(whole), "-l", "warn", "--disable-hot-restart"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "deprecated" not in found.stderr.lower(), found.stderr[-2000:]
