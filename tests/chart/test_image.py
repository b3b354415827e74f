"""The image's recipe, its lock, and what must agree with it. Nothing is built here: see docs/kubernetes.md."""

from __future__ import annotations

import json
import re
import tomllib

import yaml

from adaptive_gamma._version import __version__
from tests.chart.chart_tools import CHART, ROOT, run
from tests.chart.values_schema import SCHEMA_FILE, values_schema

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_hadolint_finds_nothing() -> None:
    done = run("hadolint", ROOT / "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert f"ARG VERSION={__version__}" in DOCKERFILE


def test_every_file_that_is_copied_is_let_in_and_there() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for words in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.M)
        for source in words.split()[:-1]
    }  # fmt: skip
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.partition("/")[0] in let_in, source


def test_the_result_is_no_root_and_has_no_installer() -> None:
    result = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "USER 10001:10001" in result
    assert "pip install" not in result
    assert "apt-get" not in DOCKERFILE
    assert "HEALTHCHECK" in result
    user = yaml.safe_load((CHART / "values.yaml").read_text())["runAsUser"]
    assert user == 10001


def test_what_the_image_installs_is_pinned_by_hash() -> None:
    for name in ("runtime", "build"):
        lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith((" ", "#"))]
        assert pins
        assert all(re.match(r"[a-z0-9.-]+==\S+", line) for line in pins)
        assert sum("--hash=sha256:" in line for line in lines) >= len(pins)
        assert not any("://" in line for line in lines)


def test_the_lock_has_what_we_need() -> None:
    """All dependencies but scipy, which only the fitting of policies uses, and what the picker and DNS need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.match(r"[A-Za-z0-9-]+", each)[0] for each in project["dependencies"]}  # type: ignore[index]  # a name
    locked = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements" / "runtime.txt").read_text(), re.M))
    assert needed - locked == {"scipy"}
    assert {"cryptography", "dnspython", "grpcio", "protobuf"} <= locked


def test_the_schema_of_the_values_is_that_of_our_settings() -> None:
    """``make chart-schema`` writes it anew."""
    assert json.loads(SCHEMA_FILE.read_text()) == values_schema()
