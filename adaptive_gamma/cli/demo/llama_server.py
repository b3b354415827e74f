"""One real llama.cpp server in a child process, and the handle that starts and stops it.

Run as a program it serves until SIGTERM, and dies with the process that started it:

    python -m adaptive_gamma.cli.demo.llama_server --port 0 --model target.gguf \\
        --draft draft.gguf --gamma 4 --synthetic-rates 0.8,0.6,0.4,0.2 --slots 8

The server is llama.cpp's own, compiled into the ``xllamacpp`` wheel. With synthetic rates it accepts draft tokens with
the given probability by position (cumulative: 0.8, 0.6 means that the second is accepted in 60 % of all drafts)
instead of comparing them with what the target would have said; drafting and verifying cost what they always cost.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import importlib.util
import itertools
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from adaptive_gamma.errors import AdaptiveGammaError

__all__ = ["LlamaServer", "LlamaServerError", "available"]

_HOST = "127.0.0.1"
_LISTENING = "listening "
_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1


class LlamaServerError(AdaptiveGammaError):
    """The server could not be started, or ended by itself."""


def available() -> str | None:
    """Why a llama.cpp server cannot run here, or None when it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"the llama.cpp wheel is for Linux on x86-64, this is {platform.system()} on {platform.machine()}"
    for module in ("xllamacpp", "gguf", "tokenizers"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed (pip install '.[demo]')"
    if " avx2 " not in Path("/proc/cpuinfo").read_text():
        return "the llama.cpp wheel needs a CPU with AVX2"
    return None


class LlamaServer:
    """A llama.cpp server of our own, from ``start`` to ``stop``; usable as a context manager, plain or async.

    Args:
        model: GGUF file of the target.
        draft: GGUF file of the draft with the same vocabulary; None starts a plain server.
        gamma: draft tokens per step.
        synthetic_rates: cumulative acceptance by position, ``gamma`` of them, never rising; None verifies for real.
        slots: sequences served at once.
        slot_tokens: context of each slot, in tokens.
        threads: CPU threads of the model.
        alias: the model name it answers to.
        port: TCP port on 127.0.0.1; 0 lets the system choose.

    Start it from a thread that outlives it: Linux ties "die with the parent" to the starting thread.
    """

    program: Sequence[str] = (sys.executable, "-m", "adaptive_gamma.cli.demo.llama_server")
    """What is run, with the options of ``main``; it says where it listens and serves until SIGTERM."""

    def __init__(
        self,
        model: Path,
        *,
        draft: Path | None = None,
        gamma: int = 4,
        synthetic_rates: Sequence[float] | None = None,
        slots: int = 4,
        slot_tokens: int = 1024,
        threads: int = 1,
        alias: str = "tiny",
        port: int = 0,
    ) -> None:
        self._arguments = [
            f"--port={port}",
            f"--model={model}",
            f"--slots={slots}",
            f"--slot-tokens={slot_tokens}",
            f"--threads={threads}",
            f"--alias={alias}",
            f"--parent={os.getpid()}",
        ]
        if draft is not None:
            self._arguments += [f"--draft={draft}", f"--gamma={gamma}"]
            if synthetic_rates is not None:
                self._arguments.append("--synthetic-rates=" + ",".join(f"{rate:g}" for rate in synthetic_rates))
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``; known once the server is ready."""
        if self._url is None:
            raise LlamaServerError("the server is not ready yet")
        return self._url

    @property
    def pid(self) -> int:
        """Process id of the server."""
        if self._process is None:
            raise LlamaServerError("the server is not started")
        return self._process.pid

    def start(self) -> None:
        """Start the process; returns at once. ``wait_ready`` or ``ready`` follow."""
        if self._process is not None:
            raise LlamaServerError("the server is already started")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process, closed by stop()
        self._process = subprocess.Popen(  # nosec B603  # our own command, no shell
            [*self.program, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def wait_ready(self, timeout_s: float = 30.0) -> str:
        """Wait until ``/health`` answers; gives the url.

        Raises:
            LlamaServerError: the process ended (the message carries the end of its log) or the time is over.
        """
        deadline = time.monotonic() + timeout_s
        while not self._is_ready():
            self._check_deadline(deadline, timeout_s)
            time.sleep(_POLL_S)
        return self.url

    async def ready(self, timeout_s: float = 30.0) -> str:
        """``wait_ready`` for a running event loop."""
        deadline = time.monotonic() + timeout_s
        while not await asyncio.to_thread(self._is_ready):
            self._check_deadline(deadline, timeout_s)
            await asyncio.sleep(_POLL_S)
        return self.url

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the process: SIGTERM, then SIGKILL when it has not ended after ``timeout_s``. Harmless if not running."""
        process, self._process, self._url = self._process, None, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def log(self) -> str:
        """What the server has logged so far."""
        if self._log is None:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def _is_ready(self) -> bool:
        assert self._process is not None, "start() comes first"
        if self._url is None:
            self._url = self._announced()
        if self._url is None:
            return False
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=2.0) as answer:  # nosec B310  # a port of this machine that the demo opened
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _announced(self) -> str | None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline() or b""
        if not line and self._process.poll() is not None:
            raise LlamaServerError(f"llama.cpp ended with {self._process.returncode}: {self._log_end()}")
        text = line.decode()
        return text.removeprefix(_LISTENING).strip() if text.startswith(_LISTENING) else None

    def _check_deadline(self, deadline: float, timeout_s: float) -> None:
        if time.monotonic() >= deadline:
            raise LlamaServerError(f"llama.cpp was not ready after {timeout_s:g} s: {self._log_end()}")

    def _log_end(self) -> str:
        return self.log()[-2000:].strip() or "it logged nothing"

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.ready()
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def _rates(text: str) -> list[float]:
    rates = [float(part) for part in text.split(",")]
    if any(not 0 <= rate <= 1 for rate in rates):
        raise argparse.ArgumentTypeError("a rate lies in 0..1")
    if any(after > before for before, after in itertools.pairwise(rates)):
        raise argparse.ArgumentTypeError("cumulative rates never rise")
    return rates


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="llama_server", description="One llama.cpp server on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--model", required=True, help="GGUF file of the target")
    parser.add_argument("--draft", help="GGUF file of the draft; without it the server is plain")
    parser.add_argument("--gamma", type=int, default=4, help="draft tokens per step")
    parser.add_argument("--synthetic-rates", type=_rates, help="cumulative acceptance by position, GAMMA of them")
    parser.add_argument("--slots", type=int, default=4, help="sequences served at once")
    parser.add_argument("--slot-tokens", type=int, default=1024, help="context of each slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alias", default="tiny", help="model name to answer to")
    parser.add_argument("--parent", type=int, help="end at once when this is not the parent process")
    options = parser.parse_args(argv)
    if options.synthetic_rates is not None:
        if options.draft is None:
            parser.error("--synthetic-rates needs --draft")
        if len(options.synthetic_rates) != options.gamma:
            parser.error(f"--synthetic-rates needs exactly {options.gamma} rates")
    return options


def _die_with_parent(parent: int | None) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:  # it ended before prctl took effect
        os._exit(1)


def _parameters(options: argparse.Namespace) -> Any:
    import xllamacpp

    parameters: Any = xllamacpp.CommonParams()
    parameters.hostnames = [_HOST]
    parameters.port = options.port
    parameters.model.path = options.model
    parameters.model_alias = {options.alias}
    parameters.n_parallel = options.slots
    parameters.n_ctx = options.slots * options.slot_tokens
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.endpoint_props = True
    parameters.warmup = False
    parameters.fit_params = False
    parameters.cache_ram_mib = 0
    if options.draft is not None:
        speculative = parameters.speculative
        speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        speculative.draft.mparams.path = options.draft
        speculative.draft.n_max = options.gamma
        speculative.draft.cpuparams.n_threads = options.threads
        speculative.draft.cpuparams_batch.n_threads = options.threads
        if options.synthetic_rates is not None:
            speculative.synth_rates = options.synthetic_rates
    return parameters


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    options = _arguments(argv)
    _die_with_parent(options.parent)
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before the engine's threads exist, so that they inherit it
    announce = os.dup(1)
    os.dup2(2, 1)  # whatever the C++ side prints must not fill a pipe that nobody reads

    import xllamacpp

    server = xllamacpp.Server(_parameters(options))
    address = server.listening_address
    os.write(announce, f"{_LISTENING}{address}\n".encode())
    os.close(announce)
    signal.sigwait(stops)
    os._exit(0)  # nothing to save; the engine's own teardown waits for open streams


if __name__ == "__main__":
    main()
