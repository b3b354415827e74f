"""Settings from file and environment, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.config import Settings, load_settings
from adaptive_gamma.errors import MOST_TOLD, ConfigurationError

GOOD: dict[str, Any] = {"policy": "p", "replicas": [{"name": "a", "url": "http://127.0.0.1:1"}]}


def _load(tmp_path: Path, text: str | dict[str, Any], environment: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "c.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    return load_settings(path, environment=environment or {})


def _problems(tmp_path: Path, text: str | dict[str, Any], environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, text, environment)
    return [line.removeprefix(f"{tmp_path / 'c.yaml'}: ") for line in str(caught.value).splitlines()]


def test_defaults(tmp_path: Path) -> None:
    settings = _load(tmp_path, GOOD)
    assert (settings.listen, settings.admin, settings.mode) == ("127.0.0.1:8080", "127.0.0.1:9090", "act")
    assert settings.replicas[0].gamma == "auto"
    assert (settings.retry.attempts, settings.drain.grace_s) == (1, 120)
    assert (settings.load.max_in_flight, settings.load.queue, settings.load.queue_timeout_s) == (None, 0, 30)
    assert (settings.affinity.entries, settings.affinity.max_age_s) == (8192, 600)
    assert (settings.health.ramp_s, settings.replicas[0].max_in_flight) == (30, None)


def test_the_whole_example(tmp_path: Path) -> None:
    text = """
listen: 127.0.0.1:8081
admin: 127.0.0.1:9091
policy: policies/NAME.yaml
mode: observe
replicas:
  - {name: spec-0, url: "http://127.0.0.1:8001", engine: vllm, gamma: auto, model: null}
  - {name: plain-0, url: "http://127.0.0.1:8002/", engine: vllm, gamma: 0}
  - {name: scheduled, url: "https://engine.test", engine: vllm, gamma: [[1, 8, 5], [9, 64, 2]]}
engine_api_key: null
classify: {header: x-adaptive-gamma-class, default: unsure, rules: [{path: /v1/completions, class: code}]}
scrape: {interval_s: 1.0, timeout_s: 0.5, stale_after_s: 3.0}
health: {path: /health, interval_s: 5.0, timeout_s: 2.0, down_after: 3, up_after: 2}
limits: {body_bytes: 67108864, connect_timeout_s: 5, first_byte_timeout_s: 600, idle_timeout_s: 300}
retry: {attempts: 1}
drain: {grace_s: 120}
"""
    settings = _load(tmp_path, text)
    assert settings.replicas[1].url == "http://127.0.0.1:8002"
    assert settings.replicas[2].gamma == [(1, 8, 5), (9, 64, 2)]
    assert settings.classify.rules[0].request_class == "code"


def test_environment_wins_key_by_key(tmp_path: Path) -> None:
    environment = {
        "ADAPTIVE_GAMMA_MODE": "observe",
        "ADAPTIVE_GAMMA_SCRAPE__INTERVAL_S": "2.5",
        "ADAPTIVE_GAMMA_ENGINE_API_KEY": "123",
        "ADAPTIVE_GAMMA_ALLOW_PATHS": '["/x"]',
        "OTHER": "1",
    }
    settings = _load(tmp_path, {**GOOD, "scrape": {"interval_s": 1, "timeout_s": 0.25}}, environment)
    assert settings.mode == "observe"
    assert (settings.scrape.interval_s, settings.scrape.timeout_s) == (2.5, 0.25)
    assert settings.engine_api_key is not None
    assert settings.engine_api_key.get_secret_value() == "123"
    assert settings.allow_paths == ["/x"]


def test_environment_alone() -> None:
    environment = {
        "ADAPTIVE_GAMMA_POLICY": "p",
        "ADAPTIVE_GAMMA_REPLICAS": '[{"name": "a", "url": "http://h:1", "gamma": 3}]',
        "ADAPTIVE_GAMMA_LIMITS": '{"idle_timeout_s": 7, "body_bytes": 1}',
        "ADAPTIVE_GAMMA_LIMITS__BODY_BYTES": "2",
    }
    settings = load_settings(None, environment=environment)
    assert settings.replicas[0].gamma == 3
    assert (settings.limits.idle_timeout_s, settings.limits.body_bytes) == (7, 2)


def test_overrides_win() -> None:
    environment = {"ADAPTIVE_GAMMA_POLICY": "p", "ADAPTIVE_GAMMA_REPLICAS": '[{"name": "a", "url": "http://h:1"}]'}
    settings = load_settings(None, environment=environment, overrides={"policy": "q", "listen": None})
    assert (settings.policy, settings.listen) == ("q", "127.0.0.1:8080")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"polcy": 1}, "polcy: no such key (did you mean 'policy'?)"),
        ({"zzz": 1}, "zzz: no such key"),
        ({"mode": "acting"}, "mode: input should be 'act' or 'observe', not 'acting' (did you mean 'act'?)"),
        ({"retry": {"attempts": -1}}, "retry.attempts: input should be greater than or equal to 0, not -1"),
        ({"retry": {"attempt": 1}}, "retry.attempt: no such key (did you mean 'attempts'?)"),
        ({"listen": "8080"}, "listen: expected host:port, not '8080'"),
        ({"replicas": []}, "replicas: list should have at least 1 item where there is no discovery, not 0"),
        (
            {"replicas": [{"name": "a", "url": "http://h:1", "engine": "vlm"}]},
            "replicas[0].engine: input should be 'vllm', 'llamacpp' or 'sglang', not 'vlm' (did you mean 'vllm'?)",
        ),
        ({"replicas": [{"url": "http://h:1"}]}, "replicas[0].name: is missing"),
        ({"classify": {"rules": [{"clas": "code"}]}}, "classify.rules[0].class: is missing"),
        ({"classify": {"rules": [{"clas": "code"}]}}, "classify.rules[0].clas: no such key (did you mean 'class'?)"),
        ({"load": {"max_inflight": 8}}, "load.max_inflight: no such key (did you mean 'max_in_flight'?)"),
        ({"load": {"queu": 8}}, "load.queu: no such key (did you mean 'queue'?)"),
        ({"affinty": {}}, "affinty: no such key (did you mean 'affinity'?)"),
        ({"affinity": {"max_age": 9}}, "affinity.max_age: no such key (did you mean 'max_age_s'?)"),
        ({"health": {"ramps": 9}}, "health.ramps: no such key (did you mean 'ramp_s'?)"),
        (
            {"replicas": [{"name": "a", "url": "http://h:1", "max_in_fligth": 1}]},
            "replicas[0].max_in_fligth: no such key (did you mean 'max_in_flight'?)",
        ),
        ({"drain": 3}, "drain: expected a section with keys grace_s, not 3"),
    ],
)
def test_problems(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    assert said in _problems(tmp_path, {**GOOD, **change})


def test_all_problems_at_once(tmp_path: Path) -> None:
    problems = _problems(tmp_path, {"mode": "x", "retry": {"attempts": "many"}, "replicas": [{"gama": 1}]})
    assert {problem.split(":")[0] for problem in problems} == {
        "policy",
        "mode",
        "retry.attempts",
        "replicas[0].name",
        "replicas[0].url",
        "replicas[0].gama",
    }


def test_a_mistake_made_many_times_is_told_some_times(tmp_path: Path) -> None:
    problems = _problems(tmp_path, {"policy": "p", "replicas": [{"urll": "http://127.0.0.1:1"}] * 99})
    assert problems[:3] == [
        "replicas[0].name: is missing",
        "replicas[0].url: is missing",
        "replicas[0].urll: no such key (did you mean 'url'?)",
    ]
    assert len(problems) == MOST_TOLD + 1
    assert problems[-1] == f"and {99 * 3 - MOST_TOLD} more"


def test_a_key_without_end_is_told_by_its_beginning(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path, GOOD | {"k" * 30_000: 1})
    assert problem.startswith("k" * 197 + "...: no such key")
    assert len(problem) < 400


def test_none_of_several_forms_is_one_problem(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path, {**GOOD, "replicas": [{"name": "a", "url": "http://h:1", "gamma": "fast"}]})
    assert problem.startswith("replicas[0].gamma: expected auto, a number 0..64, or a schedule ")
    assert problem.endswith("not 'fast'")


def test_variables_are_named(tmp_path: Path) -> None:
    problems = _problems(tmp_path, GOOD, {"ADAPTIVE_GAMMA_SCRAPE__INTERVAL": "1", "ADAPTIVE_GAMMA_MODE": "x"})
    assert any(
        p.startswith("ADAPTIVE_GAMMA_SCRAPE__INTERVAL: scrape.interval: no such key (did you mean") for p in problems
    )
    assert any(p.startswith("ADAPTIVE_GAMMA_MODE: mode: ") for p in problems)


def test_variable_that_is_not_json(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path, GOOD, {"ADAPTIVE_GAMMA_REPLICAS": "[oops"})
    assert problem.startswith("ADAPTIVE_GAMMA_REPLICAS: replicas: not valid JSON")


def test_secrets_are_not_echoed(tmp_path: Path) -> None:
    problems = _problems(tmp_path, {**GOOD, "engine_api_key": 918273645})
    assert problems == ["engine_api_key: expected text"]
    headers = {"tracing": {"endpoint": "http://c:1/v1/traces", "headers": {"authorization": 918273645}}}
    assert _problems(tmp_path, {**GOOD, **headers}) == ["tracing.headers.authorization: expected text"]
    (problem,) = _problems(tmp_path, GOOD, {"ADAPTIVE_GAMMA_TRACING__HEADERS": "918273645"})
    assert "918273645" not in problem
    url = "http://me:hunter2@h:1"
    (problem,) = _problems(tmp_path, {**GOOD, "replicas": [{"name": "a", "url": url}]})
    assert "hunter2" not in problem
    assert "hunter2" not in repr(_load(tmp_path, {**GOOD, "engine_api_key": "hunter2"}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy: a\npolicy: b\n", "line 2, column 1: the key 'policy' is given twice"),
        ("retry: {attempts: 1, attempts: 2}\n", "line 1, column 22: the key 'attempts' is given twice"),
        ("policy: [\n", "line 2, column 1: "),
        ("- a\n", "expected keys and values at the top"),
        ("1: a\n", "line 1, column 1: the key 1 is not a text"),
        ("policy: !!python/object/apply:os.getcwd []\n", "line 1, column 9: could not determine a constructor"),
    ],
)
def test_files_that_are_not_settings(tmp_path: Path, text: str, said: str) -> None:
    (problem,) = _problems(tmp_path, text)
    assert problem.startswith(said)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml", environment={})


def test_empty_file_names_what_is_missing(tmp_path: Path) -> None:
    assert _problems(tmp_path, "") == ["policy: is missing", "replicas: is missing"]


def test_two_replicas_of_one_name(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path, {**GOOD, "replicas": GOOD["replicas"] * 2})
    assert "two replicas are named 'a'" in problem


def test_what_kubernetes_tells_of_a_service_of_our_name_is_no_key() -> None:
    links = {
        "ADAPTIVE_GAMMA_SERVICE_HOST": "10.0.0.1",
        "ADAPTIVE_GAMMA_PLUGIN_TOKEN": "for-the-plugin-inside-vllm",
        "ADAPTIVE_GAMMA_SERVICE_PORT": "8080",
        "ADAPTIVE_GAMMA_SERVICE_PORT_DATA": "8080",
        "ADAPTIVE_GAMMA_PORT": "tcp://10.0.0.1:8080",
        "ADAPTIVE_GAMMA_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "ADAPTIVE_GAMMA_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    given = {"ADAPTIVE_GAMMA_POLICY": "p", "ADAPTIVE_GAMMA_REPLICAS": '[{"name": "r", "url": "http://127.0.0.1:1"}]'}
    assert load_settings(None, environment={**links, **given}).policy == "p"


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8085", "http://127.0.0.1:8085"),
        ("127.0.0.1:8085", "http://localhost:8085"),
        ("0.0.0.0:8085", "http://127.0.0.1:8085"),
        ("[::]:8085", "http://[::1]:8085"),
        ("proxy.local:80", "http://Proxy.local"),
    ],
)
@pytest.mark.parametrize("key", ["listen", "admin"])
def test_a_replica_is_not_this_process_itself(tmp_path: Path, key: str, listen: str, url: str) -> None:
    """One request would go in a circle until its head is too large."""
    (problem,) = _problems(tmp_path, GOOD | {key: listen, "replicas": [{"name": "a", "url": url}]})
    assert problem.endswith(f"replica 'a' is this process itself ({key} is {listen})")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8086", "http://10.0.0.7:8085", "http://engine.local:8085"])
def test_another_port_or_host_is_another_process(tmp_path: Path, url: str) -> None:
    settings = _load(tmp_path, GOOD | {"listen": "127.0.0.1:8085", "replicas": [{"name": "a", "url": url}]})
    assert settings.replicas[0].url == url
