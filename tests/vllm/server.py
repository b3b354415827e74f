"""A real vLLM server on the CPU, as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

__all__ = ["MAX_BATCH", "MODEL_NAME", "VllmServer"]

MODEL_NAME = "tiny"
MAX_BATCH = 32
_INSIDE = Path(__file__).parent / "inside"
_STARTS_WITHIN_S = 300.0


class VllmServer:
    """Starts when entered, and is gone with all of its processes when left.

    Args:
        environment: the virtual environment that has vLLM.
        model: directory of the target.
        log: what it writes, both streams.
        speculative: ``--speculative-config``; None starts a plain replica.
        options: further options of ``vllm serve``.
        variables: further environment variables.
    """

    def __init__(
        self,
        environment: Path,
        model: Path,
        log: Path,
        *,
        speculative: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = environment
        self.log = log
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            str(environment / "bin" / "vllm"), "serve", str(model), "--host", "127.0.0.1", "--port", str(self.port),
            "--served-model-name", MODEL_NAME, "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024",
            "--max-num-seqs", str(MAX_BATCH), "--max-num-batched-tokens", "2048", *options,
        ]  # fmt: skip
        if speculative is not None:
            self._command += ["--speculative-config", json.dumps(speculative)]
            self._command += ["--per-request-spec-decode-metrics", "detailed"]
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VllmServer:
        inside = _installed_here(self.log.parent)
        variables = {
            **os.environ,
            "PATH": f"{self._environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(_INSIDE), str(inside)]),
            "LD_PRELOAD": str(self._environment / "lib" / "libiomp5.so"),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOG_STATS_INTERVAL": "1",
            **self._variables,
        }
        with open(self.log, "wb") as stream:
            # A session of its own: its engine and worker can be ended with it, and nothing else.
            self._process = subprocess.Popen(
                self._command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=variables,
                start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_until_healthy()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    @property
    def text(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace")

    def metrics(self) -> str:
        """Its /metrics."""
        return httpx.get(f"{self.url}/metrics").raise_for_status().text

    def complete(self, prompt: str, max_tokens: int, **fields: object) -> dict[str, Any]:
        """One completion, greedy unless told otherwise, that does not stop before ``max_tokens``."""
        body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        answer = httpx.post(f"{self.url}/v1/completions", json={**body, **fields}, timeout=120)
        result: dict[str, Any] = answer.raise_for_status().json()
        return result

    def _wait_until_healthy(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"vLLM ended with {self._process.returncode}:\n{self.text[-4000:]}")
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        raise AssertionError(f"vLLM did not start within {_STARTS_WITHIN_S:.0f} s:\n{self.text[-4000:]}")

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Whatever of it outlived that: the session is ours alone.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            self._process = None


def _free_port() -> int:
    """Below the range that outgoing connections take: vLLM's own processes open many while it starts."""
    for port in range(21000 + os.getpid() % 7000, 32000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def _installed_here(directory: Path) -> Path:
    """A directory that makes vLLM find the test kernels as one of its plugins."""
    site = directory / "site"
    info = site / "adaptive_gamma_test_kernels-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: adaptive-gamma-test-kernels\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nadaptive_gamma_test_kernels = adaptive_gamma_test_kernels:register\n"
    )
    return site
