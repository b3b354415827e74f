"""How gamma may be set: what cannot work is refused at the start, and told why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.config import Settings, load_settings
from adaptive_gamma.errors import ConfigurationError

LLAMA: dict[str, Any] = {"name": "a", "url": "http://127.0.0.1:1", "engine": "llamacpp", "gamma": 4}


def load(tmp_path: Path, replica: dict[str, Any], **more: Any) -> Settings:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"policy": "p", "replicas": [replica], **more}))
    return load_settings(path, environment={})


def test_routing_only_is_the_default(tmp_path: Path) -> None:
    settings = load(tmp_path, {"name": "a", "url": "http://127.0.0.1:1"})
    assert settings.replicas[0].set_gamma == "none"
    assert settings.control.dwell_s == 60
    assert settings.cost_check.flag_above == 0.25


@pytest.mark.parametrize("gamma", ["auto", 4])
def test_a_llama_cpp_may_take_gamma_with_each_request(tmp_path: Path, gamma: object) -> None:
    replica = load(tmp_path, {**LLAMA, "gamma": gamma, "set_gamma": "per_request"}).replicas[0]
    assert replica.set_gamma == "per_request"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"set_gamma": "vllm_schedule"}, "llamacpp takes no schedule while it runs; expected none"),
        ({"set_gamma": "vllm_schedule", "engine": "vllm", "gamma": 0}, "a replica with gamma 0 has no drafter"),
        ({"set_gamma": "per_request", "engine": "vllm"}, "vllm takes no gamma with a request; expected none or vllm_s"),
        ({"set_gamma": "per_request", "gamma": 0}, "a replica with gamma 0 has no drafter"),
        ({"set_gamma": "per_request", "gamma": [[1, 8, 2]]}, "a schedule of its own"),
        ({"set_gamma": "per_requests"}, "did you mean 'per_request'?"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {**LLAMA, **change})
    assert "replicas[0].set_gamma: " in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("control", "dwell_s", 0), ("control", "min_gain", 0), ("control", "dwel_s", 3), ("cost_check", "flag_above", -1),
     ("cost_check", "largest_correction", 0.5)],
)  # fmt: skip
def test_limits_of_the_sections(tmp_path: Path, section: str, key: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"{section}\.{key}"):
        load(tmp_path, LLAMA, **{section: {key: value}})


VLLM: dict[str, Any] = {"name": "a", "url": "http://127.0.0.1:1", "set_gamma": "vllm_schedule"}


@pytest.mark.parametrize("gamma", ["auto", 5, [[1, 8, 5], [9, 32, 1]]])
@pytest.mark.parametrize("way", [{"token": "  s3cret-Token\n"}, {"file": "/run/gamma/a.json"}])
def test_a_vllm_may_have_its_schedule_set(tmp_path: Path, gamma: object, way: dict[str, str]) -> None:
    settings = load(tmp_path, {**VLLM, "gamma": gamma, "gamma_control": way})
    found = settings.replicas[0].gamma_control
    assert found is not None
    if found.token is not None:
        assert found.token.get_secret_value() == "s3cret-Token"
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings.model_dump(mode="json"))


def test_the_way_in_may_stay_while_nothing_is_set(tmp_path: Path) -> None:
    off = load(tmp_path, {**VLLM, "set_gamma": "none", "gamma_control": {"token": "t"}}).replicas[0]
    assert (off.set_gamma, off.gamma_control is None) == ("none", False)


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({}, "gamma_control", "vllm_schedule needs a section with token"),
        ({"gamma_control": None}, "gamma_control", "vllm_schedule needs a section with token"),
        ({"gamma_control": {}}, "gamma_control", "expected either token"),
        ({"gamma_control": {"token": "s3cret", "file": "/a.json"}}, "gamma_control", "expected either token"),
        ({"gamma_control": {"tokn": "s3cret"}}, "gamma_control.tokn", "did you mean 'token'?"),
        ({"gamma_control": {"token": "s3cret token"}}, "gamma_control.token", "visible ASCII"),
        ({"gamma_control": {"token": ["s3cret"]}}, "gamma_control.token", "expected text"),
        ({"gamma_control": "s3cret"}, "gamma_control", "expected a section with keys token, file"),
        ({"gamma_control": ["s3cret"]}, "gamma_control", "expected a section with keys token, file"),
        ({"gamma_control": {"file": "gamma.json"}}, "gamma_control.file", "absolute path of a file"),
        ({"gamma_control": {"file": "/run/gamma/"}}, "gamma_control.file", "absolute path of a file"),
        ({"gamma_control": {"file": "/run/a.state.json"}}, "gamma_control.file", "the name of what the engine writes"),
        ({"engine": "llamacpp", "set_gamma": "per_request", "gamma_control": {"token": "t"}}, "gamma_control",
         "per_request sends gamma with each request"),
    ],
)  # fmt: skip
def test_ways_in_that_cannot_work(tmp_path: Path, change: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {**VLLM, **change})
    assert f"replicas[0].{key}: " in str(caught.value)
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_two_engines_do_not_share_a_schedule_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    replicas = [{**VLLM, "name": name, "gamma_control": {"file": "/run/g.json"}} for name in "ab"]
    path.write_text(yaml.safe_dump({"policy": "p", "replicas": replicas}))
    with pytest.raises(ConfigurationError, match=r"two replicas have the schedule file /run/g\.json"):
        load_settings(path, environment={})


def test_the_token_of_an_environment_variable_is_not_echoed(tmp_path: Path) -> None:
    replicas = '[{"name": "a", "url": "http://127.0.0.1:1", "set_gamma": "vllm_schedule", "gamma_control": "s3cret"}]'
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, environment={"ADAPTIVE_GAMMA_POLICY": "p", "ADAPTIVE_GAMMA_REPLICAS": replicas})
    assert "s3cret" not in str(caught.value)
    assert "gamma_control" in str(caught.value)
