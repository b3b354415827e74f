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
        ({"set_gamma": "vllm_schedule", "engine": "vllm"}, "vllm_schedule is not built yet"),
        ({"set_gamma": "per_request", "engine": "vllm"}, "vllm takes no gamma with a request"),
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
