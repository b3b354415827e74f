"""What the manifests promise: rights, tokens, probes, names, and that what one names is in another."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.chart.cases import BASE, CASES, DISCOVERY, ENGINES, MODES
from tests.chart.chart_tools import run
from tests.chart.rendering import Manifest, merged, render

NAME = "inference/ag-adaptive-gamma"
WORKLOADS = ("proxy", "envoy", "gateway")
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def kinds(manifests: dict[tuple[str, str], Manifest], kind: str) -> list[Manifest]:
    return [manifest for (its, _), manifest in manifests.items() if its == kind]


def pod_specs(manifests: dict[tuple[str, str], Manifest]) -> Iterator[dict[str, Any]]:
    """Of our pods and of the test's, not of what the patch is for."""
    for manifest in kinds(manifests, "Deployment"):
        yield manifest["spec"]["template"]["spec"]
    for manifest in kinds(manifests, "Pod"):
        yield manifest["spec"]


def patch_of(manifests: dict[tuple[str, str], Manifest]) -> Manifest:
    """The patch that sidecar mode renders."""
    patch: Manifest = yaml.safe_load(manifests["ConfigMap", f"{NAME}-patch"]["data"]["patch.yaml"])
    return patch


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def container(spec: dict[str, Any], name: str = "adaptive-gamma") -> dict[str, Any]:
    [found] = [each for each in containers(spec) if each["name"] == name]
    return found


def our_spec(name: str, **options: str) -> dict[str, Any]:
    """The pod that runs adaptive-gamma in a case, whether of a Deployment or as patched."""
    manifests = render(CASES[name], **options)
    spec: dict[str, Any]
    if CASES[name]["mode"] == "sidecar":
        spec = patch_of(manifests)["spec"]["template"]["spec"]
    else:
        [deployment] = kinds(manifests, "Deployment")
        spec = deployment["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("name", CASES)
def test_nothing_runs_with_rights(name: str) -> None:
    for spec in pod_specs(render(CASES[name])):
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context.get("runAsUser", 1) != 0
        assert "hostNetwork" not in spec
        assert spec["enableServiceLinks"] is False
        for each in containers(spec):
            _restricted(each)
    if CASES[name]["mode"] == "sidecar":
        ours = container(patch_of(render(CASES[name]))["spec"]["template"]["spec"])
        _restricted(ours)
        assert ours["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        if CASES[name].get("runAsUser", 1) is not None:
            assert ours["securityContext"]["runAsNonRoot"] is True


def _restricted(each: dict[str, Any]) -> None:
    context = each["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert {"limits", "requests"} <= each["resources"].keys()


@pytest.mark.parametrize("name", CASES)
def test_a_token_and_a_role_only_where_the_api_server_is_asked(name: str) -> None:
    manifests = render(CASES[name])
    asks = CASES[name]["config"].get("discovery", {}).get("kind") == "kubernetes"
    for spec in pod_specs(manifests):
        assert spec["automountServiceAccountToken"] is False
    for account in kinds(manifests, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    spec = our_spec(name)
    with_token = [
        c["name"] for c in containers(spec) if any(m["mountPath"] == TOKEN for m in c.get("volumeMounts", ()))
    ]
    assert with_token == [
        c["name"] for c in containers(spec) if asks and c["name"] in ("first-files", "adaptive-gamma")
    ]
    roles, bindings = kinds(manifests, "Role"), kinds(manifests, "RoleBinding")
    assert not kinds(manifests, "ClusterRole")
    if not asks:
        assert not roles
        assert not bindings
        return
    places = {"inference", "elsewhere"}
    assert {role["metadata"]["namespace"] for role in roles} == places
    for role in roles:
        assert role["rules"] == [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
        ]
    assert {binding["metadata"]["namespace"] for binding in bindings} == places
    account = spec.get("serviceAccountName", "default")
    for binding in bindings:
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "inference"}]
        assert binding["roleRef"]["name"] in {role["metadata"]["name"] for role in roles}


@pytest.mark.parametrize("name", CASES)
def test_what_is_named_is_there(name: str) -> None:
    """Volumes that are mounted, ports that Services, probes and policies name, ConfigMaps, pods that are selected."""
    manifests = render(CASES[name])
    spec = our_spec(name)
    volumes = [volume["name"] for volume in spec["volumes"]]
    assert len(volumes) == len(set(volumes))
    mounted = {m["name"] for c in containers(spec) for m in c.get("volumeMounts", ())}
    assert mounted == set(volumes), "each volume is used, and there"
    maps = {manifest["metadata"]["name"] for manifest in kinds(manifests, "ConfigMap")} | {"kube-root-ca.crt"}
    for volume in spec["volumes"]:
        sources = [volume, *volume.get("projected", {}).get("sources", ())]
        assert {source["configMap"]["name"] for source in sources if "configMap" in source} <= maps
    ports = {port["name"] for c in containers(spec) for port in c.get("ports", ())}
    assert len(ports) == sum(len(c.get("ports", ())) for c in containers(spec))
    for each in containers(spec):
        own = {port["name"] for port in each.get("ports", ())}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            for how in ("httpGet", "tcpSocket"):
                port = each.get(probe, {}).get(how, {}).get("port")
                assert port is None or port in own
    for service in kinds(manifests, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for policy in kinds(manifests, "NetworkPolicy"):
        named = {p["port"] for rule in policy["spec"]["ingress"] for p in rule["ports"] if isinstance(p["port"], str)}
        assert named <= ports
    if CASES[name]["mode"] != "sidecar":
        labels = manifests_labels(manifests)
        for service in kinds(manifests, "Service"):
            assert service["spec"]["selector"].items() <= labels.items()
        for kind in ("NetworkPolicy", "PodDisruptionBudget", "Deployment"):
            for manifest in kinds(manifests, kind):
                chosen = manifest["spec"].get("selector", manifest["spec"].get("podSelector"))
                assert chosen["matchLabels"].items() <= labels.items()
    for monitor in kinds(manifests, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        [chosen] = [s for s in kinds(manifests, "Service") if wanted.items() <= s["metadata"]["labels"].items()]
        assert [port["name"] for port in chosen["spec"]["ports"]] == ["metrics"]
    for pool in kinds(manifests, "InferencePool"):
        picker = pool["spec"]["endpointPickerRef"]
        [service] = [s for s in kinds(manifests, "Service") if s["metadata"]["name"] == picker["name"]]
        assert picker["port"]["number"] in [port["port"] for port in service["spec"]["ports"]]


def manifests_labels(manifests: dict[tuple[str, str], Manifest]) -> dict[str, str]:
    [deployment] = kinds(manifests, "Deployment")
    labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return labels


@pytest.mark.parametrize("mode", MODES)
def test_names_and_labels_stay_within_their_limits(mode: str) -> None:
    values = merged(CASES[f"{mode}-everything"], DISCOVERY, {"nameOverride": "n" * 63})
    for kind, name in render(values, release="r" * 53):
        assert len(name.partition("/")[2]) <= 63, (kind, name)


@pytest.mark.parametrize("mode", WORKLOADS)
def test_the_autoscaler_alone_sets_replicas(mode: str) -> None:
    values = merged(ENGINES, BASE[mode])
    assert render(values)["Deployment", NAME]["spec"]["replicas"] == 2
    scaled = render(merged(values, {"autoscaling": {"enabled": True}}))
    assert "replicas" not in scaled["Deployment", NAME]["spec"]
    assert scaled["HorizontalPodAutoscaler", NAME]["spec"]["scaleTargetRef"]["name"] == "ag-adaptive-gamma"


@pytest.mark.parametrize("mode", MODES)
def test_another_configuration_rolls_the_pods(mode: str) -> None:
    def checksum(*more: dict[str, Any]) -> str | None:
        manifests = render(merged(ENGINES, BASE[mode], *more))
        of = patch_of(manifests) if mode == "sidecar" else manifests["Deployment", NAME]
        annotations = of["spec"]["template"].get("metadata", {}).get("annotations", {})
        key = "adaptive-gamma-checksum/config" if mode == "sidecar" else "checksum/config"
        found: str | None = annotations.get(key)
        return found

    assert checksum() == checksum({"logLevel": "debug"})
    assert checksum() != checksum({"config": {"mode": "observe"}})
    assert checksum({"rollOnConfigChange": False}) is None


@pytest.mark.parametrize("name", CASES)
def test_the_grace_covers_the_waiting_and_the_draining(name: str) -> None:
    values, spec = CASES[name], our_spec(name)
    grace = spec["terminationGracePeriodSeconds"]
    if "terminationGracePeriodSeconds" in values:
        assert grace == 7
        return
    drain = values["config"].get("drain", {}).get("grace_s", 120)
    hooks = [c["lifecycle"]["preStop"]["sleep"]["seconds"] for c in containers(spec) if "lifecycle" in c]
    if values["mode"] == "envoy":
        ours, envoys = hooks
        assert grace > envoys > ours + drain, "Envoy outlives the process that drains it"
    else:
        assert len(hooks) == 1
        assert grace > hooks[0] + drain


@pytest.mark.parametrize("mode", MODES)
def test_before_1_30_a_command_sleeps(mode: str) -> None:
    for kubernetes, field in (("1.29.0", "exec"), ("1.30.0", "sleep")):
        hooks = [
            c["lifecycle"]["preStop"] for c in containers(our_spec(mode, kubernetes=kubernetes)) if "lifecycle" in c
        ]
        assert hooks
        assert all(list(hook) == [field] for hook in hooks)


def test_the_key_of_the_engines_comes_from_a_secret() -> None:
    env = container(our_spec("proxy-everything"))["env"]
    assert {
        "name": "ADAPTIVE_GAMMA_ENGINE_API_KEY",
        "valueFrom": {"secretKeyRef": {"name": "engine-key", "key": "api-key"}},
    } in env


@pytest.mark.parametrize("mode", MODES)
def test_the_admin_port_is_open_to_few(mode: str) -> None:
    policy = render(merged(ENGINES, BASE[mode]))["NetworkPolicy", NAME]["spec"]
    open_to_all = [rule["ports"] for rule in policy["ingress"] if "from" not in rule]
    assert open_to_all, "clients come from anywhere"
    for port in [port for ports in open_to_all for port in ports]:
        assert port["port"] != "ag-admin"
        if "endPort" in port:
            assert not port["port"] <= 9090 <= port["endPort"]
    [admin] = [rule for rule in policy["ingress"] if rule["ports"] == [{"protocol": "TCP", "port": "ag-admin"}]]
    assert len(admin["from"]) == 2, "monitoring, and the test"
    assert all(peer for peer in admin["from"]), "an empty peer is everyone"
    test = render(merged(ENGINES, BASE[mode]))["Pod", f"{NAME}-answers"]
    assert admin["from"][1]["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items()


def test_the_picker_is_probed_over_grpc_where_it_speaks_without_tls() -> None:
    plain = container(our_spec("gateway-plain-text"))
    assert plain["readinessProbe"]["grpc"] == {"port": 9002, "service": "readiness"}
    assert plain["livenessProbe"]["grpc"] == {"port": 9002, "service": "liveness"}
    assert "grpc" not in container(our_spec("gateway"))["readinessProbe"]
    assert "--tls=self-signed" in container(our_spec("gateway"))["args"]
    files = {"--tls=files", "--cert=/etc/adaptive-gamma-tls/tls.crt", "--key=/etc/adaptive-gamma-tls/tls.key"}
    assert files <= set(container(our_spec("gateway-certificate"))["args"])
    assert "--tls=off" in container(our_spec("gateway-plain-text"))["args"]


@pytest.mark.parametrize("name", CASES)
def test_the_command_knows_its_arguments(name: str) -> None:
    for each in containers(our_spec(name)):
        if each["name"] not in ("first-files", "adaptive-gamma"):
            continue
        command, *arguments = each["args"]
        module = f"adaptive_gamma.cli.{command}"
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"there is no command {command}")
        found: click.Command = importlib.import_module(module).command
        found.make_context(command, list(arguments))


def test_envoy_starts_when_its_files_are_there() -> None:
    spec = our_spec("envoy")
    first, keeper, envoy = (container(spec, name) for name in ("first-files", "adaptive-gamma", "envoy"))
    assert spec["initContainers"] == [first]
    assert first["args"][-1] == "--once"
    assert keeper["args"][-1] == "--drain"
    assert first["args"][:-1] == keeper["args"][:-1]
    for each in (first, keeper, envoy):
        assert {"name": "envoy-files", "mountPath": "/envoy"} in each["volumeMounts"]
    assert "--out=/envoy" in keeper["args"]
    [files] = [volume for volume in spec["volumes"] if volume["name"] == "envoy-files"]
    assert files["emptyDir"]["medium"] == "Memory"
    assert "/envoy/envoy.json" in envoy["args"]


# -- the sidecar -------------------------------------------------------------------------------------------------------

ENGINE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm}
spec:
  replicas: 3
  selector: {matchLabels: {app: vllm}}
  template:
    metadata: {labels: {app: vllm}}
    spec:
      initContainers: [{name: fetch, image: fetch:1}]
      containers:
        - name: server
          image: vllm:1
          args: [--port, "8000"]
          env: [{name: HF_HOME, value: /models}]
          ports: [{name: http, containerPort: 8000}]
          volumeMounts: [{name: models, mountPath: /models}]
        - {name: logs, image: logs:1}
      volumes: [{name: models, emptyDir: {}}]
"""


def patched(name: str, tmp_path: Path, times: int = 1) -> dict[str, Any]:
    """The engine's Deployment after ``kubectl patch`` with the patch that the chart rendered."""
    data = render(CASES[name])["ConfigMap", f"{NAME}-patch"]["data"]["patch.yaml"]
    (tmp_path / "patch.yaml").write_text(data)
    text = ENGINE
    for _ in range(times):
        (tmp_path / "engine.yaml").write_text(text)
        done = run(
            "kubectl", "patch", "--local", "-f", tmp_path / "engine.yaml", "--type=strategic",
            "--patch-file", tmp_path / "patch.yaml", "-o", "yaml",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        text = done.stdout
    deployment: dict[str, Any] = yaml.safe_load(text)
    return deployment


def test_the_patch_adds_and_takes_nothing(tmp_path: Path) -> None:
    before = yaml.safe_load(ENGINE)["spec"]["template"]["spec"]
    deployment = patched("sidecar-schedule", tmp_path)
    assert deployment["spec"]["replicas"] == 3
    spec = deployment["spec"]["template"]["spec"]
    assert {c["name"] for c in spec["initContainers"]} == {"fetch", "adaptive-gamma"}
    assert {c["name"] for c in spec["containers"]} == {"server", "logs"}
    server, was = container(spec, "server"), container(before, "server")
    for key in ("image", "args", "ports"):
        assert server[key] == was[key]
    for key in ("env", "volumeMounts"):
        assert was[key][0] in server[key]
    assert before["volumes"][0] in spec["volumes"]
    assert patched("sidecar-schedule", tmp_path, times=2) == deployment, "twice is as once"


def test_the_sidecar_starts_without_the_engine_and_outlives_it(tmp_path: Path) -> None:
    spec = patched("sidecar-own-engine", tmp_path)["spec"]["template"]["spec"]
    sidecar = container(spec)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/livez", (
        "/readyz would wait for the engine, which waits for it"
    )
    assert sidecar["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container(spec, "server")["lifecycle"]["preStop"]["sleep"]["seconds"] == 30


def test_the_schedule_is_shared(tmp_path: Path) -> None:
    spec = patched("sidecar-schedule", tmp_path)["spec"]["template"]["spec"]
    mount = {"name": "adaptive-gamma-schedule", "mountPath": "/var/run/adaptive-gamma"}
    assert mount in container(spec)["volumeMounts"]
    assert mount in container(spec, "server")["volumeMounts"]
    assert {"name": "ADAPTIVE_GAMMA_PLUGIN_FILE", "value": "/var/run/adaptive-gamma/gamma.json"} in (
        container(spec, "server")["env"]
    )
    assert spec["securityContext"]["fsGroup"] == 2000
    config = render(CASES["sidecar-schedule"])["ConfigMap", NAME]["data"]["config.yaml"]
    assert yaml.safe_load(config)["replicas"] == [
        {
            "name": "engine",
            "url": "http://127.0.0.1:8000",
            "engine": "vllm",
            "set_gamma": "vllm_schedule",
            "gamma_control": {"file": "/var/run/adaptive-gamma/gamma.json"},
        }
    ]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("sidecar")])
def test_the_patched_engine_is_what_kubernetes_knows(name: str, tmp_path: Path) -> None:
    import kubernetes_validate

    deployment = patched(name, tmp_path)
    for version in ("1.29", "1.37"):
        kubernetes_validate.validate(deployment, version, strict=True)


def test_sidecar_mode_runs_nothing_itself() -> None:
    found = {kind for kind, _ in render(CASES["sidecar-everything"])}
    assert not found & {"Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceAccount"}
