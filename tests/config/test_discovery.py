"""The section ``discovery``: what it takes, and what it says of what it does not take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.config import Settings, load_settings
from adaptive_gamma.errors import ConfigurationError

SPEC: dict[str, Any] = {"name": "spec", "service": "llama-spec", "port": "http", "gamma": 5}
PLAIN: dict[str, Any] = {"name": "plain", "service": "llama-plain", "port": 8000, "gamma": 0}
KUBERNETES: dict[str, Any] = {"kind": "kubernetes", "services": [SPEC, PLAIN]}
BY_NAME: dict[str, Any] = {"name": "spec", "host": "engines.example", "port": 8000}


def _load(tmp_path: Path, environment: dict[str, str] | None = None, **values: Any) -> Settings:
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump({"policy": "p", **values}))
    return load_settings(path, environment=environment or {})


def _problems(tmp_path: Path, **values: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, **values)
    return [line.removeprefix(f"{tmp_path / 'serve.yaml'}: ") for line in str(caught.value).splitlines()]


def test_discovery_may_stand_alone_or_beside_replicas(tmp_path: Path) -> None:
    alone = _load(tmp_path, discovery=KUBERNETES)
    assert alone.replicas == []
    assert alone.discovery is not None
    assert [(s.service, s.port, s.gamma, s.engine) for s in alone.discovery.services] == [
        ("llama-spec", "http", 5, "vllm"),
        ("llama-plain", 8000, 0, "vllm"),
    ]
    beside = _load(tmp_path, discovery=KUBERNETES, replicas=[{"name": "a", "url": "http://h:1"}])
    assert [replica.name for replica in beside.replicas] == ["a"]


def test_without_either_there_is_nothing_to_serve(tmp_path: Path) -> None:
    assert _problems(tmp_path) == ["replicas: is missing"]
    assert _problems(tmp_path, discovery=None) == ["replicas: is missing"]


def test_a_wrong_section_is_not_said_to_be_missing_replicas(tmp_path: Path) -> None:
    assert _problems(tmp_path, discovery={**KUBERNETES, "kind": "kubernets"}) == [
        "discovery.kind: input should be 'kubernetes' or 'dns', not 'kubernets' (did you mean 'kubernetes'?)"
    ]


def test_every_key_comes_from_the_environment_too(tmp_path: Path) -> None:
    environment = {
        "ADAPTIVE_GAMMA_DISCOVERY__KIND": "dns",
        "ADAPTIVE_GAMMA_DISCOVERY__SERVICES": json.dumps([BY_NAME]),
        "ADAPTIVE_GAMMA_DISCOVERY__DNS__MIN_INTERVAL_S": "2.5",
        "ADAPTIVE_GAMMA_DISCOVERY__DNS__SERVERS": '["10.0.0.10", "[fd00::a]:5353"]',
    }
    discovery = _load(tmp_path, environment).discovery
    assert discovery is not None
    assert (discovery.kind, discovery.dns.min_interval_s) == ("dns", 2.5)
    assert discovery.dns.servers == ["10.0.0.10", "[fd00::a]:5353"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"services": []}, "discovery.services: list should have at least 1 item after validation, not 0"),
        ({"service": [SPEC]}, "discovery.service: no such key (did you mean 'services'?)"),
        (
            {"services": [{**SPEC, "servce": ""}]},
            "discovery.services[0].servce: no such key (did you mean 'service'?)",
        ),
        (
            {"services": [{**SPEC, "port": 0}]},
            "discovery.services[0].port: expected a port 1..65535, or the name of",
        ),
        ({"services": [{**SPEC, "port": "8000"}]}, "discovery.services[0].port: expected a port 1..65535, or the name"),
        ({"services": [{**SPEC, "port": True}]}, "discovery.services[0].port: expected no true or false"),
        ({"services": [{**SPEC, "service": "Llama"}]}, "discovery.services[0].service: string should match pattern"),
        ({"services": [{**SPEC, "name": "a" * 32}]}, "discovery.services[0].name: string should match pattern"),
        ({"services": [SPEC, SPEC]}, "discovery.services: two services are named 'spec'"),
        ({"services": [{"name": "a"}]}, "discovery.services: services[0] (a): service is missing"),
        ({"services": [SPEC, BY_NAME | {"name": "b"}]}, "discovery.services: services[1] (b): host has no meaning wi"),
        ({"kind": "dns"}, "discovery.services: services[0] (spec): service has no meaning with kind dns"),
        ({"kind": "dns", "services": [{**BY_NAME, "port": None}]}, "discovery.services: services[0] (spec): port must"),
        (
            {"kind": "dns", "services": [{**BY_NAME, "record": "srv"}]},
            "discovery.services: services[0] (spec): port comes with the SRV records; leave it out",
        ),
        (
            {"kind": "dns", "services": [{**BY_NAME, "host": "10.0.0.1"}]},
            "discovery.services[0].host: expected a name to look up, without a port; an address",
        ),
        (
            {"services": [{**SPEC, "set_gamma": "vllm_schedule", "gamma_control": {"file": "/v/schedule.json"}}]},
            "discovery.services: services[0] (spec): a schedule file is of one engine; give gamma_control a token",
        ),
        ({"dns": {"servers": ["dns.example"]}}, "discovery.dns.servers[0]: expected the IP address of a name server"),
        ({"dns": {"min_interval_s": 400}}, "discovery.dns: min_interval_s must not be above max_interval_s"),
        ({"kubernetes": {"watchs": 1}}, "discovery.kubernetes.watchs: no such key (did you mean 'watch_s'?)"),
        ({"kubernetes": {"api_url": "http://10.0.0.1:80"}}, "discovery.kubernetes.api_url: expected https, as the"),
        ({"services": [{**SPEC, "set_gamma": "per_request"}]}, "discovery.services[0].set_gamma: vllm takes no gamma"),
    ],
)
def test_problems(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    problems = _problems(tmp_path, discovery={**KUBERNETES, **change})
    assert any(problem.startswith(said) for problem in problems), problems


def test_a_cap_of_found_replicas_lets_requests_wait(tmp_path: Path) -> None:
    capped = {"kind": "dns", "services": [{**BY_NAME, "max_in_flight": 3}]}
    assert _load(tmp_path, discovery=capped, load={"queue": 4}).load.queue == 4
    assert _problems(tmp_path, discovery={**capped, "services": [BY_NAME]}, load={"queue": 4}) == [
        "load: queue needs a max_in_flight here or at a replica: without a cap nothing ever waits"
    ]


@pytest.mark.parametrize("url", ["http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:8001"])
def test_the_api_server_may_be_asked_in_the_clear_on_this_machine_only(tmp_path: Path, url: str) -> None:
    discovery = _load(tmp_path, discovery={**KUBERNETES, "kubernetes": {"api_url": url}}).discovery
    assert discovery is not None
    assert discovery.kubernetes.api_url == url
