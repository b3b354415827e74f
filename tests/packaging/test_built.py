"""The wheel and the sdist: what is in them, and that what is in them runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from adaptive_gamma._version import __version__

ROOT = Path(__file__).resolve().parents[2]
NAMED = {
    "click", "fastapi", "httpx", "numpy", "prometheus-client", "pydantic-settings", "pyyaml", "rich", "scipy",
    "uvicorn[standard]",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked into a folder of its own, as an installer does for one that is pure Python."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTIVE_GAMMA_")}
    return subprocess.run(
        [sys.executable, "-m", "adaptive_gamma", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_asks_for_no_dependency_but_those_named(wheel: Path) -> None:
    found = {
        re.split(r"[<>=!~ ;]", requirement)[0]
        for requirement in metadata(wheel).get_all("Requires-Dist", [])
        if "extra ==" not in requirement
    }
    assert found == NAMED


def test_the_version_is_that_of_the_package(wheel: Path) -> None:
    assert metadata(wheel)["Version"] == __version__
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(__version__)}\b", changes, re.M), "the change log has nothing on this version"


def test_the_wheel_has_what_runs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for path in (ROOT / "adaptive_gamma").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(path.relative_to(ROOT)) in names
    for path in (ROOT / "policies").rglob("*.yaml"):
        assert f"adaptive_gamma/_policies/{path.relative_to(ROOT / 'policies')}" in names
    assert not {name for name in names if not name.startswith(("adaptive_gamma/", "adaptive_gamma-"))}


def test_the_sdist_has_what_it_takes_to_build_and_test(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "Makefile", "requirements/dev.txt"} <= names
    assert any(name.startswith("tests/") for name in names)
    assert not any(name.startswith((".venv", ".tools", "dist/")) for name in names)


def test_what_was_installed_runs_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, tmp_path, "--version")
    assert shown.stdout == f"adaptive-gamma {__version__}\n", shown.stderr
    policy = run(installed, tmp_path, "policy", "check", "h200-llama3-70b-fp8")
    assert policy.returncode == 0, policy.stderr
    where = subprocess.run(
        [sys.executable, "-c", "import adaptive_gamma; print(adaptive_gamma.__file__)"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(installed)


def test_the_demo_runs_from_it(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, tmp_path, "demo", "--simulated", "--seconds", "1", "--concurrency", "2")
    assert shown.returncode == 0, shown.stderr
    assert list(tmp_path.iterdir()) == []
