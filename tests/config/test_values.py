"""Values that cannot work are refused when the settings are read, in plain words and with their key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.config import Settings, check_class_names, load_settings, variable_of
from adaptive_gamma.errors import ConfigurationError

REPLICA: dict[str, Any] = {"name": "a", "url": "http://127.0.0.1:1"}
GOOD: dict[str, Any] = {"policy": "p", "replicas": [REPLICA]}


def _load(tmp_path: Path, **change: Any) -> Settings:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **change}))
    return load_settings(path, environment={})


def _said(tmp_path: Path, **change: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, **change)
    return str(caught.value).removeprefix(f"{tmp_path / 'c.yaml'}: ")


def test_key_loses_the_white_space_around_it(tmp_path: Path) -> None:
    for key in ("sk-SECRET\n", " sk-SECRET\r\n", "sk-SECRET"):
        settings = _load(tmp_path, engine_api_key=key)
        assert settings.engine_api_key is not None
        assert settings.engine_api_key.get_secret_value() == "sk-SECRET"


@pytest.mark.parametrize("key", ["sk-SECRET\r\nx-evil: 1", "sk-SECRET\u00e9", "sk-SECRET x", "sk-SECRET\0", " \n", ""])
def test_key_with_other_characters_is_refused_without_echo(tmp_path: Path, key: str) -> None:
    said = _said(tmp_path, engine_api_key=key)
    assert said.startswith("engine_api_key: expected visible ASCII")
    assert "SECRET" not in said
    with pytest.raises(ConfigurationError, match="ADAPTIVE_GAMMA_ENGINE_API_KEY: engine_api_key: expected visible"):
        load_settings(
            None,
            environment={
                "ADAPTIVE_GAMMA_POLICY": "p",
                "ADAPTIVE_GAMMA_REPLICAS": '[{"name": "a", "url": "http://h:1"}]',
                "ADAPTIVE_GAMMA_ENGINE_API_KEY": key,
            },
        )


@pytest.mark.parametrize(
    "url",
    [
        "http://h:0",
        "http://h:65536",
        "http://h:x",
        "http://h:",
        "http://h:\u00b2",
        "http://h\u00e9:1",
        "http://h h:1",
        "http://h\n:1",
        "http://h:1\t",
        "http://-h:1",
        "http://a..b:1",
        f"http://{'a' * 64}:1",
        f"http://{'a' * 60 + '.'}{'b' * 60}.{'c' * 60}.{'d' * 60}.{'e' * 60}:1",
        "http://[::1:1",
        "http://[zz::1]:1",
        "http://[fe80::1%eth0]:1",
        "http://[v1.x]:1",
        "http://xn--zzzz:1",
        "http://999.1.1.1:1",
        "http://01.2.3.4:1",
        "http://@h:1",
        "ftp://h:1",
        "http://:1",
    ],
)
def test_urls_that_lead_nowhere(tmp_path: Path, url: str) -> None:
    assert _said(tmp_path, replicas=[{**REPLICA, "url": url}]).startswith("replicas[0].url: ")


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://h:1/", "http://h:1"),
        ("http://xn--bcher-kva.test:1", "http://xn--bcher-kva.test:1"),
        ("https://engine-0.ns.svc.cluster.local", "https://engine-0.ns.svc.cluster.local"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://my_engine:8000?", "http://my_engine:8000"),
        (f"http://{'a' * 63}.b.:1", f"http://{'a' * 63}.b.:1"),
    ],
)
def test_urls_that_work(tmp_path: Path, url: str, kept: str) -> None:
    assert _load(tmp_path, replicas=[{**REPLICA, "url": url}]).replicas[0].url == kept


@pytest.mark.parametrize(
    ("gamma", "said"),
    [
        (True, "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...] (a bare off"),
        (False, "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...] (a bare off"),
        ("5", "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...], not '5'"),
        (65, "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...], not 65"),
        (-1, "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...], not -1"),
        (2.5, "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...], not 2.5"),
        (None, "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...], not None"),
        ({}, "expected auto, a number 0..64, or a schedule [[first, last, gamma], ...]"),
        ([], "the first range of the schedule must start at 1"),
        ([[2, 8, 3]], "the first range of the schedule must start at 1"),
        ([[1, 8, 3], [8, 9, 1]], "the ranges of the schedule overlap at 8"),
        ([[1, 0, 3]], "the range of the schedule that starts at 1 is empty"),
        ([[1, 8, 65]], "every gamma of the schedule must be 0..64"),
        ([[1, 8, -1]], "every gamma of the schedule must be 0..64"),
        ([[1, 10**400, 3], [2, 3, 4]], "no batch of the schedule may be over 1000000"),
        ([[-(10**400), 1, 3]], "the first range of the schedule must start at 1"),
        ([[1, -(10**400), 3]], "the range of the schedule that starts at 1 is empty"),
        ([[1, 8]], "expected auto, a number 0..64, or a schedule"),
        ([[1, 8, True]], "expected auto, a number 0..64, or a schedule"),
        ([1, 8, 3], "expected auto, a number 0..64, or a schedule"),
    ],
)
def test_gamma(tmp_path: Path, gamma: object, said: str) -> None:
    assert _said(tmp_path, replicas=[{**REPLICA, "gamma": gamma}]).startswith(f"replicas[0].gamma: {said}")


def test_gamma_schedule_may_be_unordered(tmp_path: Path) -> None:
    settings = _load(tmp_path, replicas=[{**REPLICA, "gamma": [[9, 64, 2], [1, 8, 5]]}])
    assert settings.replicas[0].gamma == [(9, 64, 2), (1, 8, 5)]


@pytest.mark.parametrize("header", ["", "x-\u00e9", "x y", "x:", "x\n", "content-length", "Authorization", True])
def test_class_header(tmp_path: Path, header: object) -> None:
    assert _said(tmp_path, classify={"header": header}).startswith("classify.header: ")


@pytest.mark.parametrize("key", ["listen", "admin"])
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:\u00b2", "127.0.0.1\0:1", "h\u00e9:1", f"{'a' * 64}:1", "h:65536", ":1", "h:+1", "h h:1", "h"],
)
def test_addresses(tmp_path: Path, key: str, address: str) -> None:
    assert _said(tmp_path, **{key: address}).startswith(f"{key}: ")


def test_addresses_that_work(tmp_path: Path) -> None:
    settings = _load(tmp_path, listen="[::]:8080", admin="localhost:0")
    assert (settings.listen, settings.admin) == ("[::]:8080", "localhost:0")


@pytest.mark.parametrize(
    "path", ["x", "", "/a b", "/a\nb", "/\u00e9", "/..", "/a/../b", "/%2e%2E/b", "/./a", "/a#b", "//host/a", "/a\x7f"]
)
def test_paths(tmp_path: Path, path: str) -> None:
    assert _said(tmp_path, health={"path": path}).startswith("health.path: ")
    assert _said(tmp_path, allow_paths=[path]).startswith("allow_paths[0]: ")


def test_paths_that_work(tmp_path: Path) -> None:
    assert _load(tmp_path, health={"path": "/health?full=1"}).health.path == "/health?full=1"
    assert _load(tmp_path, allow_paths=["/v1/a..b"]).allow_paths == ["/v1/a..b"]
    for path in ("/a?b", "/a%20b"):
        assert _said(tmp_path, allow_paths=[path]).startswith("allow_paths[0]: expected a path without a query")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"scrape": 500},
            "scrape: expected a section with keys interval_s, timeout_s, stale_after_s, half_life_s",
        ),
        ({"scrape": None}, "scrape: expected a section with keys interval_s"),
        (
            {"replicas": ["x"]},
            "replicas[0]: expected a section with keys name, url, engine, gamma, model, max_in_flight, ",
        ),
        ({"replicas": 3}, "replicas: expected a list, not 3"),
        ({"scrape": {"interval_s": "500ms"}}, "scrape.interval_s: expected a number of seconds, not '500ms'"),
        ({"scrape": {"interval_s": None}}, "scrape.interval_s: expected a number of seconds, not None"),
        ({"scrape": {"interval_s": True}}, "scrape.interval_s: expected a number of seconds, not True"),
        ({"decision": {"slo_tpot_s": "20ms"}}, "decision.slo_tpot_s: expected a number of seconds, not '20ms'"),
        ({"scrape": {"interval_s": float("nan")}}, "scrape.interval_s: "),
        ({"retry": {"attempts": "many"}}, "retry.attempts: expected a whole number, not 'many'"),
        ({"retry": {"attempts": True}}, "retry.attempts: expected no true or false"),
        ({"policy": 5}, "policy: expected text, not 5"),
    ],
)
def test_plain_words(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    assert _said(tmp_path, **change).startswith(said)


@pytest.mark.parametrize(
    "text",
    ["[" * 20_000, "policy: " + "{a: " * 20_000, "policy: 2026-13-45", "policy: " + "9" * 5000, "policy: !!int x"],
    ids=["deep list", "deep mapping", "no date", "long number", "no number"],
)
def test_yaml_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"c\.yaml: "):
        load_settings(path, environment={})


def test_name_that_no_file_can_have() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_settings("a\0b", environment={})


def test_class_names_are_those_of_the_policy(tmp_path: Path) -> None:
    known = ("chat", "code", "unsure")
    rules = [{"path": "/x", "class": "code"}, {"path": "/y", "class": "cod"}]
    check_class_names(_load(tmp_path), known, lambda key: "f")
    with pytest.raises(ConfigurationError) as caught:
        check_class_names(_load(tmp_path, classify={"rules": rules}), known, lambda key: "f")
    assert str(caught.value) == (
        "f: classify.rules[1].class: expected a class of the policy (chat, code, unsure), not 'cod' "
        "(did you mean 'code'?)"
    )
    with pytest.raises(ConfigurationError, match=r"classify\.default: expected a class of the policy"):
        check_class_names(_load(tmp_path, classify={"default": "x" * 10_000}), known, lambda key: "f")


def test_variable_of() -> None:
    environment = {"ADAPTIVE_GAMMA_CLASSIFY__RULES": "[]", "adaptive_gamma_policy": "p"}
    assert variable_of("classify.rules[3].class", environment) == "ADAPTIVE_GAMMA_CLASSIFY__RULES"
    assert variable_of("policy", environment) == "adaptive_gamma_policy"
    assert variable_of("classify.default", environment) is None


@pytest.mark.parametrize(
    ("section", "value", "said"),
    [
        ("load", {"max_in_flight": 0}, "load.max_in_flight: input should be greater than or equal to 1, not 0"),
        ("load", {"max_in_flight": "many"}, "load.max_in_flight: expected a whole number, not 'many'"),
        ("load", {"max_in_flight": 1.5}, "load.max_in_flight: expected a whole number, not 1.5"),
        ("load", {"queue": -1}, "load.queue: input should be greater than or equal to 0, not -1"),
        ("load", {"queue": True}, "load.queue: expected no true or false"),
        ("load", {"queue_timeout_s": 0}, "load.queue_timeout_s: input should be greater than 0, not 0"),
        ("load", {"queue_timeout_s": "soon"}, "load.queue_timeout_s: expected a number of seconds, not 'soon'"),
        ("affinity", {"entries": -1}, "affinity.entries: input should be greater than or equal to 0, not -1"),
        ("affinity", {"max_age_s": 0}, "affinity.max_age_s: input should be greater than 0, not 0"),
        ("health", {"ramp_s": -1}, "health.ramp_s: input should be greater than or equal to 0, not -1"),
        ("health", {"ramp_s": float("nan")}, "health.ramp_s: "),
        ("replicas", [{**REPLICA, "max_in_flight": 0}], "replicas[0].max_in_flight: input should be greater than or"),
    ],
)
def test_caps_queues_and_ramps_out_of_range(tmp_path: Path, section: str, value: Any, said: str) -> None:
    assert _said(tmp_path, **{section: value}).startswith(said)


def test_a_queue_that_nothing_can_fill_is_refused(tmp_path: Path) -> None:
    assert _said(tmp_path, load={"queue": 4}) == (
        "load: queue needs a max_in_flight here or at a replica: without a cap nothing ever waits"
    )
    assert _load(tmp_path, load={"queue": 4, "max_in_flight": 8}).load.queue == 4
    capped = [REPLICA, {**REPLICA, "name": "b", "max_in_flight": 2}]
    assert _load(tmp_path, load={"queue": 4}, replicas=capped).replicas[1].max_in_flight == 2
    broken = _said(tmp_path, load={"queue": 4}, replicas=[{**REPLICA, "url": "x"}])
    assert broken.startswith("replicas[0].url: "), "one mistake is one line"


def test_affinity_and_ramp_can_be_switched_off(tmp_path: Path) -> None:
    settings = _load(tmp_path, affinity={"entries": 0}, health={"ramp_s": 0})
    assert (settings.affinity.entries, settings.health.ramp_s) == (0, 0)
