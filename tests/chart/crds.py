"""The kinds that Kubernetes does not bring itself, with the fields that the chart uses.

Restated from the v1 APIs in short: what the chart does not write is not in here, so a field written by mistake is
refused. Rules in CEL and defaults of the real definitions are left out.
"""

from __future__ import annotations

from typing import Any

import jsonschema

from tests.chart.rendering import Manifest

__all__ = ["KINDS", "check_custom"]

Schema = dict[str, Any]

LABEL_VALUE = {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}
NAME = {"type": "string", "minLength": 1, "maxLength": 253}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
GROUP = {"type": "string", "maxLength": 253}
DURATION = {"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
INTERVAL = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def thing(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def some(items: Schema, least: int, most: int) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


INFERENCE_POOL = thing(
    ("selector", "targetPorts", "endpointPickerRef"),
    selector=thing(
        ("matchLabels",), matchLabels={"type": "object", "additionalProperties": LABEL_VALUE, "maxProperties": 64}
    ),
    targetPorts={**some(thing(("number",), number=PORT), 1, 8), "uniqueItems": True},
    endpointPickerRef=thing(
        ("name",),
        group=GROUP,
        kind={"const": "Service"},
        name=NAME,
        port=thing(("number",), number=PORT),
        failureMode={"enum": ["FailOpen", "FailClose"]},
    ),
)
HTTP_ROUTE = thing(
    parentRefs=some(
        thing(("name",), group=GROUP, kind=NAME, namespace=NAME, name=NAME, sectionName=NAME, port=PORT), 1, 32
    ),
    hostnames=some(
        {"type": "string", "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"},
        0,
        16,
    ),
    rules=some(
        thing(
            matches=some(
                thing(
                    path=thing(
                        type={"enum": ["Exact", "PathPrefix", "RegularExpression"]},
                        value={"type": "string", "maxLength": 1024},
                    )
                ),
                1,
                64,
            ),
            backendRefs=some(
                thing(("name",), group=GROUP, kind=NAME, name=NAME, port=PORT, weight={"type": "integer"}), 1, 16
            ),
            timeouts=thing(request=DURATION, backendRequest=DURATION),
        ),
        1,
        16,
    ),
)
SERVICE_MONITOR = thing(
    ("selector", "endpoints"),
    selector=thing(matchLabels={"type": "object", "additionalProperties": LABEL_VALUE}),
    endpoints=some(thing(port=NAME, path={"type": "string"}, interval=INTERVAL, scrapeTimeout=INTERVAL), 1, 8),
)
PROMETHEUS_RULE = thing(
    groups=some(
        thing(
            ("name",),
            name=NAME,
            interval=INTERVAL,
            rules=some(
                {
                    **thing(
                        ("expr",),
                        alert={"type": "string"},
                        record={"type": "string"},
                        expr={"type": "string"},
                        labels=TEXTS,
                        annotations=TEXTS,
                    ),
                    "additionalProperties": False,
                },
                1,
                100,
            ),
        ),
        1,
        10,
    ),
)
PROMETHEUS_RULE["properties"]["groups"]["items"]["properties"]["rules"]["items"]["properties"]["for"] = INTERVAL

KINDS = {
    ("inference.networking.k8s.io/v1", "InferencePool"): INFERENCE_POOL,
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): HTTP_ROUTE,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): SERVICE_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): PROMETHEUS_RULE,
}


def check_custom(manifest: Manifest) -> None:
    """Check it against the kind it says it is of."""
    spec = KINDS[manifest["apiVersion"], manifest["kind"]]
    whole = thing(
        ("apiVersion", "kind", "metadata", "spec"), apiVersion=NAME, kind=NAME, metadata={"type": "object"}, spec=spec
    )
    jsonschema.Draft202012Validator(whole).validate(manifest)
