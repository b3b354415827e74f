"""The chart's ``values.schema.json``: what the chart itself takes, and ``config`` as our own settings have it.

``python -m tests.chart.values_schema`` writes the file; a test compares it with what the settings say now, so a renamed
key cannot stay in the chart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.engines import DIALECTS

__all__ = ["SCHEMA_FILE", "values_schema"]

SCHEMA_FILE = Path(__file__).resolve().parents[2] / "helm" / "adaptive-gamma" / "values.schema.json"

Schema = dict[str, Any]

NOT_IN_VALUES = ("listen", "admin", "engine_api_key")
"""The chart sets the two addresses; the key comes from a Secret."""
NAME = {"type": "string", "pattern": "^$|^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"}
TEXT = {"type": "string"}
SWITCH = {"type": "boolean"}
PORT = {"type": "integer", "minimum": 1024, "maximum": 65534}
SECONDS = {"type": "integer", "minimum": 0, "maximum": 86_400}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
OF_KUBERNETES = {"type": "object"}
"""Handed through; the API server knows what may stand in it."""
LIST_OF_KUBERNETES = {"type": "array", "items": OF_KUBERNETES}
QUANTITY = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([EPTGMk]i?|m)?$"}
INTERVAL = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
PULL = {"enum": ["Always", "IfNotPresent", "Never"]}


def section(**properties: Schema) -> Schema:
    """An object with these keys and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


RESOURCES = section(requests=OF_KUBERNETES, limits=OF_KUBERNETES, claims=LIST_OF_KUBERNETES)
IMAGE = section(
    repository={"type": "string", "minLength": 1},
    tag=TEXT,
    digest={"type": "string", "pattern": "^$|^sha256:[0-9a-f]{64}$"},
    pullPolicy=PULL,
)


def values_schema() -> Schema:
    """The schema, in draft 7: both Helm 3 and Helm 4 enforce that."""
    config, definitions = config_schema()
    schema = section(
        mode={"enum": ["proxy", "envoy", "gateway", "sidecar"]},
        nameOverride=NAME,
        fullnameOverride=NAME,
        image=IMAGE,
        imagePullSecrets={"type": "array", "items": section(name=NAME)},
        replicas=whole(0, 1000),
        config=config,
        policyDocument=TEXT,
        engineApiKey=section(existingSecret=NAME, key={"type": "string", "minLength": 1}),
        listenHost={"enum": ["0.0.0.0", "::"]},
        ports=section(data=PORT, admin=PORT, picker=PORT),
        logLevel={"enum": ["debug", "info", "warning", "error"]},
        rollOnConfigChange=SWITCH,
        preStopSeconds=SECONDS,
        terminationGracePeriodSeconds={"type": ["integer", "null"], "minimum": 1, "maximum": 86_400},
        runAsUser={"type": ["integer", "null"], "minimum": 1},
        resources=RESOURCES,
        stateVolume=section(sizeLimit=QUANTITY),
        podAnnotations=LABELS,
        podLabels=LABELS,
        nodeSelector=LABELS,
        tolerations=LIST_OF_KUBERNETES,
        affinity=OF_KUBERNETES,
        topologySpreadConstraints=LIST_OF_KUBERNETES,
        priorityClassName=NAME,
        extraEnv=LIST_OF_KUBERNETES,
        extraVolumes=LIST_OF_KUBERNETES,
        extraVolumeMounts=LIST_OF_KUBERNETES,
        service=section(
            type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, port=whole(1, 65535), annotations=LABELS
        ),
        serviceAccount=section(create=SWITCH, name=NAME, annotations=LABELS),
        podDisruptionBudget=section(
            enabled=SWITCH,
            maxUnavailable={"anyOf": [whole(0, 1000), {"type": "string", "pattern": "^(100|[0-9]{1,2})%$"}]},
        ),
        autoscaling=section(
            enabled=SWITCH,
            minReplicas=whole(1, 1000),
            maxReplicas=whole(1, 1000),
            targetCPUUtilizationPercentage=whole(1, 1000),
            behavior=OF_KUBERNETES,
        ),
        metrics=section(
            serviceMonitor=section(enabled=SWITCH, interval=INTERVAL, scrapeTimeout=INTERVAL, labels=LABELS),
            prometheusRule=section(enabled=SWITCH, labels=LABELS),
            dashboard=section(enabled=SWITCH, labels=LABELS),
        ),
        networkPolicy=section(
            enabled=SWITCH,
            clients=LIST_OF_KUBERNETES,
            metrics=LIST_OF_KUBERNETES,
            egress=section(enabled=SWITCH, to=LIST_OF_KUBERNETES),
        ),
        envoy=section(
            image=IMAGE,
            concurrency=whole(1, 256),
            logLevel={"enum": ["trace", "debug", "info", "warning", "error", "critical", "off"]},
            resources=RESOURCES,
        ),
        picker=section(tls={"enum": ["self-signed", "secret", "off"]}, tlsSecret=NAME),
        inferencePool=section(
            create=SWITCH,
            name=NAME,
            matchLabels=LABELS,
            targetPorts={
                "type": "array",
                "minItems": 1,
                "maxItems": 8,
                "uniqueItems": True,
                "items": whole(1, 65535),
            },
            failureMode={"enum": ["FailOpen", "FailClose"]},
        ),
        httpRoute=section(
            create=SWITCH,
            parentRefs=LIST_OF_KUBERNETES,
            hostnames={"type": "array", "items": TEXT},
            pathPrefix={"type": "string", "pattern": "^/"},
            requestTimeout={"type": "string", "pattern": "^$|^([0-9]{1,5}(h|m|s|ms)){1,4}$"},
        ),
        sidecar=section(
            deployment=NAME,
            container=NAME,
            matchLabels=LABELS,
            serviceAccountName={**NAME, "minLength": 1},
            engine={"enum": list(DIALECTS)},
            enginePort=whole(1, 65535),
            gammaSchedule=SWITCH,
            scheduleGroup={"type": ["integer", "null"], "minimum": 1},
            enginePreStopSeconds=SECONDS,
            resources=RESOURCES,
        ),
        tests=section(enabled=SWITCH),
    )
    schema["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "definitions": definitions}


def config_schema() -> tuple[Schema, Schema]:
    """``config`` as the settings have it, less what the chart sets and less every secret, and what it refers to."""
    schema = in_draft_7(Settings.model_json_schema())
    definitions: Schema = schema.pop("definitions")
    for key in NOT_IN_VALUES:
        del schema["properties"][key]
    del schema["required"]
    for each in definitions.values():
        for key in [key for key, value in each.get("properties", {}).items() if is_secret(value)]:
            del each["properties"][key]
    if "discovery" not in schema["properties"]:
        schema["properties"]["discovery"] = OF_KUBERNETES
    return schema, definitions


def is_secret(value: Schema) -> bool:
    return value.get("writeOnly") is True or any(is_secret(each) for each in value.get("anyOf", ()))


def in_draft_7(value: Any) -> Any:
    """The same in the older draft, without what is only for readers."""
    if isinstance(value, list):
        return [in_draft_7(each) for each in value]
    if not isinstance(value, dict):
        return value.replace("#/$defs/", "#/definitions/") if isinstance(value, str) else value
    made: Schema = {}
    for key, each in value.items():
        if key == "properties":
            made[key] = {name: in_draft_7(schema) for name, schema in each.items()}
        elif key == "$defs":
            made["definitions"] = {name: in_draft_7(schema) for name, schema in each.items()}
        elif key == "prefixItems":
            made["items"] = in_draft_7(each)
            made["additionalItems"] = False
        elif key not in ("title", "description", "default"):
            made[key] = in_draft_7(each)
    return made


def written() -> str:
    """The file."""
    return json.dumps(values_schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(written())
    print(f"wrote {SCHEMA_FILE.name}")
