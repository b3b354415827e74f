"""The clusters file: how Envoy talks to engines, and when it takes one for down by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files.names import ENDPOINTS_FOLDER, TYPE, duration
from adaptive_gamma.envoy.files.plan import ClusterPlan, Plan

__all__ = ["clusters_file"]

_MANY = 1_000_000
"""More than there will be: what is open on a replica is bounded by its max_in_flight, not here."""
_KEEP_ALIVE_S = 4.0
"""Below the 5 s after which uvicorn and llama.cpp close an idle connection."""
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_CLEAR = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
_TLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


def clusters_file(plan: Plan, settings: Settings, folder: Path, ca_file: str) -> dict[str, Any]:
    """All clusters of a plan.

    Args:
        plan: names them.
        settings: timeouts and health.
        folder: where Envoy finds the files.
        ca_file: certificates that engines with https are checked against.
    """
    return {"resources": [_cluster(cluster, settings, folder, ca_file) for cluster in plan.clusters]}


def _cluster(cluster: ClusterPlan, settings: Settings, folder: Path, ca_file: str) -> dict[str, Any]:
    https = any(replica.url.startswith("https:") for replica in settings.replicas)
    path = folder / ENDPOINTS_FOLDER / f"{cluster.name}.json"
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), _MANY)
    http: dict[str, Any] = {
        "@type": TYPE + _HTTP,
        "common_http_protocol_options": {"idle_timeout": duration(_KEEP_ALIVE_S)},
        "explicit_http_config": {"http_protocol_options": {}},
    }
    found: dict[str, Any] = {
        "@type": TYPE + "envoy.config.cluster.v3.Cluster",
        "name": cluster.name,
        "type": "EDS",
        "eds_cluster_config": {
            "service_name": cluster.name,
            "eds_config": {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"},
        },
        "connect_timeout": duration(settings.limits.connect_timeout_s),
        # Without a bias weights are kept to exactly, as what is open has gone into them; equals go by what is open.
        "lb_policy": "LEAST_REQUEST",
        "least_request_lb_config": {"active_request_bias": {"default_value": 0.0, "runtime_key": "none"}},
        "common_lb_config": {
            # All are used only when none is up; and a new weight counts at once, not within a second.
            "healthy_panic_threshold": {"value": 1.0},
            "update_merge_window": "0s",
        },
        "circuit_breakers": {"thresholds": [most, {"priority": "HIGH", **most}]},
        "outlier_detection": _outlier_detection(settings),
        "typed_extension_protocol_options": {_HTTP: http},
    }
    if https:
        http["upstream_http_protocol_options"] = {"auto_sni": True, "auto_san_validation": True}
        found["transport_socket_matches"] = [
            {
                "name": "tls",
                "match": {"tls": True},
                "transport_socket": {
                    "name": "envoy.transport_sockets.tls",
                    "typed_config": {
                        "@type": TYPE + _TLS,
                        "common_tls_context": {"validation_context": {"trusted_ca": {"filename": ca_file}}},
                    },
                },
            },
            {
                "name": "clear",
                "match": {},
                "transport_socket": {
                    "name": "envoy.transport_sockets.raw_buffer",
                    "typed_config": {"@type": TYPE + _CLEAR},
                },
            },
        ]
    return found


def _outlier_detection(settings: Settings) -> dict[str, Any]:
    """A replica that cannot be connected to is left alone at once, not only from its next failed probe on.

    Answers of an engine speak against it in the probes alone: Envoy cannot tell a 503 from a 500 here, and an engine
    that says it is busy is alive.
    """
    health = settings.health
    unused = (
        "enforcing_consecutive_5xx", "enforcing_consecutive_gateway_failure", "enforcing_success_rate",
        "enforcing_local_origin_success_rate", "enforcing_failure_percentage",
        "enforcing_failure_percentage_local_origin",
    )  # fmt: skip
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": health.down_after,
        "enforcing_consecutive_local_origin_failure": 100,
        "interval": "1s",
        "base_ejection_time": duration(health.interval_s),
        "max_ejection_time": duration(max(health.interval_s * health.up_after, health.interval_s)),
        "max_ejection_percent": 100,
        "always_eject_one_host": True,
        **dict.fromkeys(unused, 0),
    }
