"""The demo's two engines: llama.cpp where it can run, simulated ones otherwise."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from adaptive_gamma.cli.demo.llama_server import LlamaServer, available
from adaptive_gamma.errors import AdaptiveGammaError

__all__ = ["SYNTHETIC_RATES", "DemoEngines", "cache_directory", "first_draft", "free_port", "running_engines"]

SYNTHETIC_RATES = (0.9, 0.8, 0.7, 0.6)
"""Cumulative acceptance by position that the speculative engine is started with; gamma is their number."""
_SLOTS = 8
_POLICY = "demo-llamacpp-cpu"


@dataclass(frozen=True)
class DemoEngines:
    """Where the engines listen and what they are."""

    kind: str
    """The dialect: ``llamacpp`` or ``vllm``."""
    described: str
    speculative_url: str
    plain_url: str
    policy: str
    """Name of the shipped policy that prices them."""


def cache_directory() -> Path:
    """Where the tiny models are kept between runs: ``$XDG_CACHE_HOME/adaptive-gamma``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "adaptive-gamma"


def first_draft(url: str) -> None:
    """Have a llama.cpp server draft once: until it has, its metrics do not tell its gamma."""
    body = json.dumps({"prompt": "once upon a time", "n_predict": 16, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{url}/completion", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30.0) as answer:  # nosec B310  # a port of this machine that the demo opened
        answer.read()


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running_engines(*, simulated: bool) -> Iterator[DemoEngines]:
    """Start a plain and a speculative engine and stop them again."""
    why_not = "asked for with --simulated" if simulated else available()
    if why_not is None:
        with _llama_engines() as engines:
            yield engines
    else:
        with _simulated_engines(why_not) as engines:
            yield engines


@contextlib.contextmanager
def _llama_engines() -> Iterator[DemoEngines]:
    from adaptive_gamma.cli.demo.tiny_model import DEMO_SHAPE, write_tiny_models

    models = write_tiny_models(cache_directory() / "models", DEMO_SHAPE)
    speculative = LlamaServer(
        models.target,
        draft=models.draft,
        gamma=len(SYNTHETIC_RATES),
        synthetic_rates=SYNTHETIC_RATES,
        slots=_SLOTS,
    )
    plain = LlamaServer(models.target, slots=_SLOTS)
    with speculative, plain:
        first_draft(speculative.url)
        yield DemoEngines(
            kind="llamacpp",
            described=(
                "two real llama.cpp servers (tiny random model; the speculative one with synthetic acceptance, "
                "unconditional by position, " + ", ".join(f"{rate:g}" for rate in SYNTHETIC_RATES) + ")"
            ),
            speculative_url=speculative.url,
            plain_url=plain.url,
            policy=_POLICY,
        )


@contextlib.contextmanager
def _simulated_engines(why: str) -> Iterator[DemoEngines]:
    policy = _POLICY
    with contextlib.ExitStack() as stack:
        urls = [
            stack.enter_context(_simulated(["--policy", policy, "--max-num-seqs", str(_SLOTS), *extra]))
            for extra in (
                [
                    "--gamma",
                    str(len(SYNTHETIC_RATES)),
                    "--acceptance",
                    "structured=0.9,0.89,0.87,0.86",
                    "--acceptance",
                    "chat=0.8,0.68,0.61,0.6",
                    "--acceptance",
                    "unsure=0.85,0.79,0.75,0.8",
                ],
                ["--plain"],
            )
        ]
        yield DemoEngines(
            kind="vllm",
            described=f"two SIMULATED engines, no model behind them ({why})",
            speculative_url=urls[0],
            plain_url=urls[1],
            policy=policy,
        )


@contextlib.contextmanager
def _simulated(arguments: Sequence[str]) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(  # nosec B603  # our own command, no shell
        [sys.executable, "-m", "adaptive_gamma", "simulate-engine", "--port", str(port), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 15.0
        while not _answers(url + "/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                assert process.stderr is not None
                raise AdaptiveGammaError(f"the simulated engine did not start: {process.stderr.read().decode()[-500:]}")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:  # nosec B310  # a port of this machine that the demo opened
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
