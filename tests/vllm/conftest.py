"""Real vLLM servers. Only collected where ``make test-vllm`` says which environment has vLLM."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vllm.models import make_pair
from tests.vllm.server import VllmServer

ENVIRONMENT = os.environ.get("TEST_VLLM_ENVIRONMENT")
collect_ignore_glob = [] if ENVIRONMENT else ["test_*.py"]

Start = Callable[..., VllmServer]


@pytest.fixture(scope="session")
def vllm() -> Path:
    """The virtual environment that has vLLM."""
    assert ENVIRONMENT is not None
    return Path(ENVIRONMENT).absolute()


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target with random weights, and a drafter that guesses some of its tokens."""
    return make_pair(tmp_path_factory.mktemp("models"), noise=0.03)


@pytest.fixture(scope="session")
def plain(vllm: Path, pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A replica without a drafter; it stays for the whole run."""
    with VllmServer(vllm, pair[0], tmp_path_factory.mktemp("plain") / "log.txt") as server:
        yield server


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """Models that were trained; not part of this project."""
    path = Path(__file__).resolve().parents[2].parent / "shared" / "models"
    if not (path / "target" / "model.safetensors").exists():
        pytest.skip("the trained models are not there (../shared/models)")
    return path
