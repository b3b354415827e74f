"""A real llama.cpp server that embeds and does nothing else. As a program it serves until its input is closed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

__all__ = ["embedding_server"]

_READY_WITHIN_S = 30.0


@contextlib.contextmanager
def embedding_server(model: Path, alias: str) -> Iterator[str]:
    """The url of a server of ``model`` that answers to ``alias``."""
    command = [sys.executable, "-m", __name__, os.fspath(model), alias]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process,
    ):  # on leaving, Popen closes the program's input, which ends it, and waits
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        if not url or not _healthy(url):
            process.kill()
            log.seek(0)
            raise AssertionError(f"the embedding server did not start: {log.read().decode(errors='replace')[-2000:]}")
        yield url


def _healthy(url: str) -> bool:
    deadline = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    return False


def _serve(model: str, alias: str) -> None:
    announce = os.dup(1)
    os.dup2(2, 1)  # whatever the C++ side prints must not fill a pipe that nobody reads

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.model.path = model
    parameters.model_alias = {alias}
    parameters.n_parallel = 2
    parameters.n_ctx = 2 * 512
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    parameters.fit_params = False
    parameters.cache_ram_mib = 0
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(parameters)
    os.write(announce, f"{server.listening_address}\n".encode())
    sys.stdin.read()
    os._exit(0)  # nothing to save


if __name__ == "__main__":
    _serve(*sys.argv[1:])
