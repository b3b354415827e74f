"""An Envoy that runs the class filter and says which cluster it named; no engine is asked."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files import Place, make_plan, render_endpoints, render_frame, whole_configuration
from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import ReplicaState
from adaptive_gamma.routing.shares import Shares
from tests.support.envoy import free_port, running_envoy

__all__ = ["POLICY", "FilterOnly", "filter_only", "rendered", "settings_with", "states_of"]

POLICY = "demo-llamacpp-cpu"


def settings_with(port: int = 8080, **more: Any) -> Settings:
    replicas = [
        {"name": "spec-0", "url": "http://127.0.0.1:8001", "gamma": 4},
        {"name": "plain-0", "url": "http://127.0.0.1:8002", "gamma": 0},
    ]
    return Settings(**{"listen": f"127.0.0.1:{port}", "policy": POLICY, "replicas": replicas, **more})


def states_of(settings: Settings) -> list[ReplicaState]:
    """The replicas as they are after one look."""
    return [
        ReplicaState(
            replica.name,
            speculative=replica.gamma != 0,
            gamma=replica.gamma if isinstance(replica.gamma, int) else 4,
            models=frozenset({"m"}),
        )
        for replica in settings.replicas
    ]


def rendered(
    settings: Settings, place: Place, states: list[ReplicaState] | None = None, policy: str = POLICY
) -> dict[str, dict[str, Any]]:
    """All files, with no endpoints."""
    known = states_of(settings) if states is None else states
    plan = make_plan(
        known,
        load_policy(policy),
        default_class=settings.classify.default,
        structure_apart=settings.capability.structured_output == "plain",
    )
    files = render_endpoints(plan, [Shares()] * len(plan.clusters), known, {})
    return files | render_frame(plan, settings, place, None)


class FilterOnly:
    """Asks the filter about one request after the other, on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def ask(
        self, body: bytes, path: str = "/v1/chat/completions", headers: Mapping[str, str] | None = None
    ) -> tuple[int, str | None]:
        """Status, and the cluster that was named."""
        self._connection.request("POST", path, body, {"content-type": "application/json", **(headers or {})})
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("x-named")

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def filter_only(folder: Path, states: list[ReplicaState] | None = None, **more: Any) -> Iterator[FilterOnly]:
    """The filter of a configuration in a real Envoy."""
    port, admin_port = free_port(), free_port()
    settings = settings_with(port, **more)
    place = Place(folder, settings.listen, f"127.0.0.1:{admin_port}")
    whole = whole_configuration(rendered(settings, place, states))
    manager = whole["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    for host in manager["route_config"]["virtual_hosts"]:
        for route in host["routes"]:
            if "cluster_header" in route.get("route", {}):
                named = route.pop("route")["cluster_header"]
                route["direct_response"] = {"status": 200, "body": {"inline_string": "named"}}
                route["response_headers_to_add"] = [{"header": {"key": "x-named", "value": f"%REQ({named})%"}}]
        del host["request_headers_to_remove"]
    configuration = folder / "filter.json"
    configuration.write_text(json.dumps(whole))
    with running_envoy(configuration, port, admin_port):
        asked = FilterOnly(port)
        try:
            yield asked
        finally:
            asked.close()
