"""What is measured: the engine alone, nginx, the naive form, this checkout, and further checkouts to compare with."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from .load_tools import MockEngine
from .processes import free_port, running, until

__all__ = ["DIRECT", "NGINX", "RESERVED_LABELS", "Contestant", "Serving", "contestants", "find_nginx", "plain_request"]

_ROOT = Path(__file__).resolve().parents[1]
_POLICY = "h100-llama3-8b-eagle3.yaml"
DIRECT, NGINX, _NAIVE, _OURS = "direct", "nginx", "naive", "ours"
RESERVED_LABELS = frozenset({DIRECT, NGINX, _NAIVE, _OURS})


@dataclass(frozen=True)
class Serving:
    """A contestant that runs: where it listens, and the process whose CPU and memory (children included) count."""

    port: int
    pid: int


@dataclass(frozen=True)
class Contestant:
    label: str
    start: Callable[[MockEngine, Path], AbstractContextManager[Serving]]
    """Fresh processes in front of an engine; the folder is for configuration and logs."""
    judged: bool = False
    """Whether the goals are for it."""


def plain_request(*headers: str, stream: bool = False, max_tokens: int = 1) -> bytes:
    """A short chat request as bytes."""
    body = (
        f'{{"model":"bench","messages":[{{"role":"user","content":"hello"}}],"max_tokens":{max_tokens},'
        f'"stream":{"true" if stream else "false"}}}'
    )
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", body]).encode()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as client:
        client.sendall(plain_request("connection: close"))
        return client.recv(64).startswith(b"HTTP/1.1 200 ")
    return False


@contextlib.contextmanager
def _direct(engine: MockEngine, _folder: Path) -> Iterator[Serving]:
    yield Serving(engine.ports[0], engine.pid)


def find_nginx() -> str | None:
    """nginx of the system, which may lie where only root's path looks."""
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _nginx_configuration(engine: MockEngine, port: int, folder: Path) -> str:
    scratch = "\n".join(
        f"  {name}_temp_path {folder / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""  # else its worker may not enter the folder
    return f"""
{user} daemon off; worker_processes 1; worker_rlimit_nofile 20000; pid {folder / "nginx.pid"};
error_log {folder / "nginx-error.log"} error;
events {{ worker_connections 16384; }}
http {{
  access_log off;
{scratch}
  keepalive_requests 100000000;
  upstream engines {{
    least_conn;
    server 127.0.0.1:{engine.ports[0]};
    server 127.0.0.1:{engine.ports[1]};
    keepalive 1024;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600;
    }}
  }}
}}
"""


@contextlib.contextmanager
def _nginx(engine: MockEngine, folder: Path) -> Iterator[Serving]:
    binary = find_nginx()
    assert binary is not None
    port, log, written = free_port(), folder / "nginx.log", folder / "nginx.conf"
    written.write_text(_nginx_configuration(engine, port, folder))
    with running([binary, "-c", written], log=log) as process:
        until(lambda: _answers(port), "nginx answers", process, log)
        yield Serving(port, process.pid)


@contextlib.contextmanager
def _naive(engine: MockEngine, folder: Path) -> Iterator[Serving]:
    port, log = free_port(), folder / "naive.log"
    command = [sys.executable, "-m", "benchmarks.naive_proxy", str(port), *map(str, engine.ports)]
    with running(command, log=log, folder=_ROOT) as process:
        until(lambda: _answers(port), "naive answers", process, log)
        yield Serving(port, process.pid)


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _checkout(checkout: Path, more: str = "") -> Callable[[MockEngine, Path], AbstractContextManager[Serving]]:
    @contextlib.contextmanager
    def start(engine: MockEngine, folder: Path) -> Iterator[Serving]:
        configuration, log = folder / "ours.yaml", folder / "ours.log"
        configuration.write_text(
            f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\npolicy: {checkout / 'policies' / _POLICY}\n"
            f"replicas:\n"
            f'- {{name: drafting, url: "http://127.0.0.1:{engine.ports[0]}"}}\n'
            f'- {{name: plain, url: "http://127.0.0.1:{engine.ports[1]}"}}\n'
            f"drain: {{grace_s: 0}}\n{more}\n"
        )
        command = [sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(configuration)]
        with running(command, log=log, environment={"PYTHONPATH": str(checkout)}, folder=checkout) as process:
            listening = re.compile(r"listening on http://127\.0\.0\.1:(\d+), admin on http://127\.0\.0\.1:(\d+)")
            until(lambda: listening.search(log.read_text()) is not None, "serve listens", process, log)
            found = listening.search(log.read_text())
            assert found is not None
            data, admin = int(found[1]), int(found[2])
            until(lambda: _ready(admin) and _answers(data), "serve is ready", process, log)
            yield Serving(data, process.pid)

    return start


def contestants(also: dict[str, Path], more: dict[str, str] | None = None) -> list[Contestant]:
    """All that can run here, in the order they take turns; nginx only where it is installed.

    Args:
        also: further checkouts, by label.
        more: lines of configuration with which this one runs once more, by label.
    """
    found = [Contestant(DIRECT, _direct)]
    if find_nginx() is not None:
        found.append(Contestant(NGINX, _nginx))
    found += [Contestant(_NAIVE, _naive), Contestant(_OURS, _checkout(_ROOT), judged=True)]
    found += [Contestant(label, _checkout(_ROOT, lines), judged=True) for label, lines in (more or {}).items()]
    return found + [Contestant(label, _checkout(path), judged=True) for label, path in also.items()]
