"""Every mode with many values: what helm renders is valid, and our own loader takes the configuration in it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from adaptive_gamma.config import ReplicaSettings, Settings, load_settings
from tests.chart.cases import BASE, CASES, ENGINES
from tests.chart.chart_tools import run
from tests.chart.crds import KINDS, check_custom
from tests.chart.rendering import HELMS, Manifest, UniqueKeys, helm, merged, render

KUBERNETES = ("1.29.0", "1.37.0")
LISTENERS = {"listen": ":8080", "admin": ":9090"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by", HELMS)
def test_lint(by: str, name: str) -> None:
    code, output, errors = helm("lint", CASES[name], by=by)
    assert code == 0, output + errors
    assert "[WARNING]" not in output, output


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_manifests_are_what_kubernetes_knows(kubernetes: str, name: str) -> None:
    manifests = render(CASES[name], kubernetes=kubernetes)
    assert manifests == render(CASES[name], kubernetes=kubernetes, by="helm3"), "both render alike"
    for manifest in manifests.values():
        if (manifest["apiVersion"], manifest["kind"]) in KINDS:
            check_custom(manifest)
        else:
            _validate(json.dumps(manifest, sort_keys=True), kubernetes.rpartition(".")[0])


@cache
def _validate(manifest: str, version: str) -> None:
    """Once for each: most cases differ in few of their manifests."""
    kubernetes_validate.validate(json.loads(manifest), version, strict=True)


@pytest.mark.parametrize("name", CASES)
def test_our_loader_takes_the_configuration(name: str, tmp_path: Path) -> None:
    [data] = [
        m["data"] for m in render(CASES[name]).values() if m["kind"] == "ConfigMap" and "config.yaml" in m["data"]
    ]
    (tmp_path / "config.yaml").write_text(data["config.yaml"])
    given = yaml.safe_load(data["config.yaml"])
    if "discovery" in given and "discovery" not in Settings.model_fields:
        pytest.skip("these settings have no discovery")
    if any("gamma_control" in replica for replica in given.get("replicas", ())) and (
        "gamma_control" not in ReplicaSettings.model_fields
    ):
        pytest.skip("these settings have no gamma_control")
    settings = load_settings(tmp_path / "config.yaml", environment={})
    assert settings.listen.endswith(":8080")
    assert settings.admin.endswith(":9090")
    asked = CASES[name]["config"]
    assert settings.policy == asked["policy"]
    assert [replica.name for replica in settings.replicas] == [r["name"] for r in asked.get("replicas", ())] or (
        "replicas" not in asked
    )
    for key, value in asked.items():
        assert given[key] == value, "as it was given, nulls and large numbers included"


def test_a_policy_as_text_is_mounted(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "policies" / "h100-llama3-8b-eagle3.yaml").read_text()
    values = merged(ENGINES, BASE["proxy"], {"policyDocument": text})
    values["config"] = {"replicas": ENGINES["config"]["replicas"]}
    config = render(values)["ConfigMap", "inference/ag-adaptive-gamma"]["data"]
    assert config["policy.yaml"].strip() == text.strip()
    (tmp_path / "config.yaml").write_text(config["config.yaml"])
    assert load_settings(tmp_path / "config.yaml", environment={}).policy == "/etc/adaptive-gamma/policy.yaml"


def test_the_rules_of_custom_kinds_refuse() -> None:
    pool = render(CASES["gateway"])["InferencePool", "inference/ag-adaptive-gamma"]
    check_custom(pool)
    for path, value in (
        (("spec", "endpointPickerRef", "failureMode"), "FailMaybe"),
        (("spec", "targetPorts"), []),
        (("spec", "targetPort"), 8000),
        (("spec", "endpointPickerRef", "port"), 9002),
    ):
        with pytest.raises(jsonschema.ValidationError):
            check_custom(_with(pool, path, value))


def _with(manifest: Manifest, path: tuple[str, ...], value: Any) -> Manifest:
    first, *rest = path
    return {**manifest, first: _with(manifest.get(first, {}), tuple(rest), value) if rest else value}


def test_a_key_given_twice_is_found() -> None:
    with pytest.raises(yaml.YAMLError, match="stands twice"):
        yaml.load("a: {b: 1, b: 2}", UniqueKeys)


@pytest.mark.parametrize("by", HELMS)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mode": "router"}, "mode"),
        ({"replica": 2}, "replica"),
        ({"replicas": "two"}, "replicas"),
        ({"runAsUser": 0}, "runAsUser"),
        ({"image": {"tagg": "x"}}, "tagg"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"config": {"scrape": {"intervall_s": 1}}}, "intervall_s"),
        ({"config": {"scrape": {"interval_s": "fast"}}}, "interval_s"),
        ({"config": {"mode": "watch"}}, "mode"),
        ({"config": {"replicas": [{"name": "a", "url": "http://a", "gama": 1}]}}, "gama"),
        ({"config": {"engine_api_key": "sk-1"}}, "engine_api_key"),
        ({"config": {"listen": "0.0.0.0:1"}}, "listen"),
        ({"picker": {"tls": "maybe"}}, "tls"),
        ({"inferencePool": {"targetPorts": list(range(8000, 8009))}}, "targetPorts"),
        ({"inferencePool": {"failureMode": "failOpen"}}, "failureMode"),
        ({"sidecar": {"engine": "trt"}}, "engine"),
        ({"networkPolicy": {"enabled": "yes"}}, "enabled"),
        ({"autoscaling": {"maxReplicas": 0}}, "maxReplicas"),
    ],
)
def test_the_schema_refuses(by: str, values: dict[str, Any], said: str) -> None:
    code, output, errors = helm("template", merged(ENGINES, values), by=by)
    assert code != 0, output
    assert "values don't meet the specifications of the schema" in errors
    assert re.search(rf"\b{said}\b", errors), errors


@pytest.mark.parametrize("by", HELMS)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "config.policy"),
        ({"config": {"policy": "p"}}, "config.replicas or config.discovery"),
        (merged(ENGINES, {"policyDocument": "a: b"}), "give one of the two"),
        (merged(ENGINES, {"mode": "gateway"}), "inferencePool.matchLabels"),
        (merged(ENGINES, BASE["gateway"], {"httpRoute": {"create": True}}), "httpRoute.parentRefs"),
        (merged(ENGINES, BASE["gateway"], {"picker": {"tls": "secret"}}), "picker.tlsSecret"),
        (merged(ENGINES, {"mode": "sidecar"}), "sidecar.deployment"),
        (merged(ENGINES, {"autoscaling": {"enabled": True, "minReplicas": 20}}), "above maxReplicas"),
    ],
)
def test_what_is_missing_is_named(by: str, values: dict[str, Any], said: str) -> None:
    code, _, errors = helm("template", values, by=by)
    assert code != 0
    assert said in errors


@pytest.mark.parametrize("mode", BASE)
def test_the_notes_are_shown(mode: str) -> None:
    """They are rendered by an install only, and by its dry run, which asks no cluster for this."""
    values = CASES[mode]
    code, output, errors = helm("install", values)
    assert code == 0, errors
    assert f"mode {mode}." in output.partition("NOTES:")[2]
    assert "<no value>" not in output


@pytest.mark.parametrize("repository", ["adaptive-gamma", "registry.test/adaptive-gamma"])
def test_the_notes_ask_for_an_image_of_ones_own_where_none_is_named(repository: str) -> None:
    code, output, errors = helm("install", merged(CASES["proxy"], {"image": {"repository": repository}}))
    assert code == 0, errors
    assert ("no image of that name is published" in output) == (repository == "adaptive-gamma")


def test_a_package_carries_the_schema(tmp_path: Path) -> None:
    """A chart whose .helmignore drops it enforces nothing."""
    from tests.chart.chart_tools import CHART

    done = run("helm", "package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    [package] = tmp_path.glob("*.tgz")
    done = run("helm", "template", package, "--set", "mode=wrong")
    assert done.returncode != 0
    assert "mode" in done.stderr
