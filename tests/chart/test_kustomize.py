"""The kustomize overlay: what kubectl makes of it, for each Kubernetes the chart is for."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from adaptive_gamma.config import load_settings
from tests.chart.chart_tools import ROOT, run

OVERLAY = ROOT / "examples" / "kustomize" / "overlay"


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    built = run("kubectl", "kustomize", OVERLAY)
    assert built.returncode == 0, built.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(built.stdout)}


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_it_is_valid(made: dict[str, dict[str, Any]], version: str) -> None:
    assert set(made) == {"ConfigMap", "Deployment", "Service"}
    for manifest in made.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_service_leads_to_the_proxy_and_the_proxy_to_the_engine(made: dict[str, dict[str, Any]]) -> None:
    pod = made["Deployment"]["spec"]["template"]["spec"]
    [sidecar] = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    assert made["Service"]["spec"]["ports"][0]["targetPort"] == "ag-data"
    settings = load_settings(OVERLAY / "adaptive-gamma.yaml", environment={})
    assert settings.listen == f"0.0.0.0:{ports['ag-data']}"
    assert settings.admin == f"0.0.0.0:{ports['ag-admin']}"
    assert settings.replicas[0].url == f"http://127.0.0.1:{pod['containers'][0]['ports'][0]['containerPort']}"


def test_the_pod_mounts_the_configuration_by_its_hash(made: dict[str, dict[str, Any]]) -> None:
    pod = made["Deployment"]["spec"]["template"]["spec"]
    [volume] = pod["volumes"]
    assert volume["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"] != "adaptive-gamma"
    assert made["ConfigMap"]["data"]["config.yaml"] == (OVERLAY / "adaptive-gamma.yaml").read_text()


def test_the_pod_lives_as_long_as_the_drain(made: dict[str, dict[str, Any]]) -> None:
    pod = made["Deployment"]["spec"]["template"]["spec"]
    grace = load_settings(OVERLAY / "adaptive-gamma.yaml", environment={}).drain.grace_s
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= grace + sleep
