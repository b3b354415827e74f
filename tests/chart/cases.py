"""Values that the chart is rendered with: every mode, and what may be switched in each."""

from __future__ import annotations

from typing import Any

from tests.chart.rendering import merged

__all__ = ["BASE", "CASES", "DISCOVERY", "ENGINES", "MODES"]

Values = dict[str, Any]

MODES = ("proxy", "envoy", "gateway", "sidecar")
ENGINES: Values = {
    "config": {
        "policy": "h100-llama3-8b-eagle3",
        "replicas": [
            {"name": "spec-0", "url": "http://spec:8000"},
            {"name": "plain-0", "url": "http://plain:8000", "gamma": 0},
        ],
    }
}
DISCOVERY: Values = {
    "config": {
        "policy": "h100-llama3-8b-eagle3",
        "discovery": {
            "kind": "kubernetes",
            "services": [
                {"name": "spec", "service": "vllm-spec", "port": "http"},
                {"name": "plain", "service": "vllm-plain", "port": "http", "gamma": 0},
                {"name": "far", "service": "vllm-far", "namespace": "elsewhere", "port": 8000},
            ],
        },
    }
}
DNS: Values = {
    "config": {
        "policy": "h100-llama3-8b-eagle3",
        "discovery": {"kind": "dns", "services": [{"name": "spec", "host": "vllm-spec.models.svc", "port": 8000}]},
    }
}
BASE: dict[str, Values] = {
    "proxy": {"mode": "proxy"},
    "envoy": {"mode": "envoy"},
    "gateway": {"mode": "gateway", "inferencePool": {"matchLabels": {"app": "vllm"}}},
    "sidecar": {
        "mode": "sidecar",
        "sidecar": {"deployment": "vllm", "container": "server", "matchLabels": {"app": "vllm"}},
    },
}
EVERYTHING: Values = {
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "engineApiKey": {"existingSecret": "engine-key"},
    "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
    "podAnnotations": {"example.com/note": "yes"},
    "podLabels": {"team": "inference"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["cpu"]}]}]}}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "system-cluster-critical",
    "extraEnv": [{"name": "ADAPTIVE_GAMMA_SCRAPE__INTERVAL_S", "value": "2"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "service": {"type": "LoadBalancer", "port": 8000, "annotations": {"example.com/lb": "internal"}},
    "serviceAccount": {"annotations": {"example.com/role": "none"}},
    "autoscaling": {
        "enabled": True,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    },
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {
        "clients": [{"podSelector": {"matchLabels": {"app": "web"}}}],
        "egress": {"enabled": True, "to": [{"to": [{"podSelector": {"matchLabels": {"app": "vllm"}}}]}]},
    },
}  # fmt: skip
LEAST: Values = {
    "replicas": 1,
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "serviceAccount": {"create": False, "name": "given"},
    "runAsUser": None,
    "rollOnConfigChange": False,
    "terminationGracePeriodSeconds": 7,
    "tests": {"enabled": False},
    "listenHost": "::",
}
CONFIGURED: Values = {
    "config": {
        "mode": "observe",
        "classify": {"header": None, "rules": [{"path": "/v1/completions", "class": "code"}], "default": "prose"},
        "scrape": {"interval_s": 0.25},
        "limits": {"body_bytes": 2**40},
        "decision": {"slo_tpot_s": 0.05},
        "drain": {"grace_s": 30.5},
        "learn": {"state_file": "/var/lib/adaptive-gamma/learned.json"},
        "observe": {"log": "/var/lib/adaptive-gamma/observed.jsonl"},
        "reload": {"watch_s": 5},
        "allow_paths": ["/v1/audio/speech"],
        "replicas": [
            {"name": "spec-0", "url": "https://spec.models:8443", "gamma": [[1, 8, 5], [9, 64, 2]], "engine": "sglang"},
            {"name": "llama", "url": "http://llama:8080", "engine": "llamacpp", "set_gamma": "per_request", "gamma": 4},
        ],
    }
}
POLICY_TEXT = """\
# a policy file: its comments and "quotes" stay
"""


def _cases() -> dict[str, Values]:
    cases = {}
    for mode, base in BASE.items():
        cases[mode] = merged(ENGINES, base)
        cases[f"{mode}-everything"] = merged(ENGINES, base, EVERYTHING)
        cases[f"{mode}-least"] = merged(ENGINES, base, LEAST)
        cases[f"{mode}-configured"] = merged(ENGINES, base, CONFIGURED)
        cases[f"{mode}-discovery"] = merged(DISCOVERY, base)
    for mode in ("proxy", "envoy", "gateway"):
        cases[f"{mode}-dns"] = merged(DNS, BASE[mode])
    cases["proxy-long-names"] = merged(ENGINES, BASE["proxy"], {"nameOverride": "n" * 63}, EVERYTHING)
    cases["gateway-plain-text"] = merged(ENGINES, BASE["gateway"], {"picker": {"tls": "off"}})
    cases["gateway-certificate"] = merged(
        ENGINES, BASE["gateway"], {"picker": {"tls": "secret", "tlsSecret": "picker-tls"}}
    )
    cases["gateway-route"] = merged(
        ENGINES,
        BASE["gateway"],
        {
            "inferencePool": {"name": "llama", "failureMode": "FailOpen", "targetPorts": [8000, 8001]},
            "httpRoute": {
                "create": True,
                "parentRefs": [{"name": "inference-gateway"}],
                "hostnames": ["llm.example.com"],
                "requestTimeout": "600s",
            },
        },
    )
    cases["gateway-own-pool"] = merged(ENGINES, BASE["gateway"], {"inferencePool": {"create": False}})
    cases["sidecar-own-engine"] = merged({"config": {"policy": "h100-llama3-8b-eagle3"}}, BASE["sidecar"])
    cases["sidecar-schedule"] = merged(
        {"config": {"policy": "h100-llama3-8b-eagle3"}},
        BASE["sidecar"],
        {"sidecar": {"gammaSchedule": True, "scheduleGroup": 2000}},
    )
    cases["sidecar-no-service"] = {
        "mode": "sidecar",
        "config": {"policy": "h100-llama3-8b-eagle3"},
        "sidecar": {"deployment": "vllm", "container": "server"},
    }
    return cases


CASES = _cases()
