"""The last line of llama.cpp builds whose requests may name a gamma, from an environment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_gamma.cli.demo.llama_server import LlamaServer
from tests.support.running import needs_llama

__all__ = ["OldLlamaServer", "needs_b9093"]

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON = _ROOT / ".venv-b9093" / "bin" / "python"
_SCRIPT = Path(__file__).with_name("llama_b9093_serve.py")


def needs_b9093() -> None:
    """Skip, with the reason, where the build is not there."""
    needs_llama()
    if not _PYTHON.exists():
        pytest.skip("llama.cpp b9093 is not here; `make test-actuator` makes an environment with it")


class OldLlamaServer(LlamaServer):
    """As ``LlamaServer``, of build b9093: no synthetic rates, no speculation counters, gamma with each request."""

    program = (str(_PYTHON), str(_SCRIPT))
