"""``import adaptive_gamma``: what a researcher's script may rely on."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_gamma

SOURCE = Path(adaptive_gamma.__file__)
STABLE = {
    "AcceptanceCurve", "AdaptiveGammaError", "AutoregressiveDrafter", "CapturedStep", "ConfigurationError",
    "EngineExport", "ExportRefused", "GammaSchedule", "Hardware", "LinearStep", "MeasuredTableStep", "ModelShape",
    "MoeStep", "NgramDrafter", "ParallelDrafter", "PassFraction", "PassSeconds", "PlainPoolStep", "Policy",
    "PolicyError", "PolicyInputs", "RooflineStep", "ScheduleOptions", "ServerOptions", "SpeculationCost", "StepTime",
    "Sweep", "SweepError", "ZeroGammaTax", "__version__", "build_policy", "classify_prompt", "compute_bound_batch",
    "distinct_experts", "export_policy", "lint_policy", "load_policy", "parse_inputs", "policy_yaml", "read_sweep",
    "shipped_policies",
}  # fmt: skip


def test_the_names_are_these() -> None:
    """One that goes, or comes, is a change of the library's own version."""
    assert set(adaptive_gamma.__all__) == STABLE
    assert list(adaptive_gamma.__all__) == sorted(adaptive_gamma.__all__)


@pytest.mark.parametrize("name", sorted(STABLE))
def test_each_is_there_and_is_what_its_home_has(name: str) -> None:
    found = getattr(adaptive_gamma, name)
    assert name in dir(adaptive_gamma)
    home = adaptive_gamma._HOME_OF.get(name)
    if home is not None:
        assert found is getattr(importlib.import_module(f"adaptive_gamma.{home}"), name)


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gamma'"):
        adaptive_gamma.gamma  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    block = next(node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    seen = {
        (str(statement.module).removeprefix("adaptive_gamma."), alias.name)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == {(home, name) for name, home in adaptive_gamma._HOME_OF.items()}
    assert (SOURCE.parent / "py.typed").is_file()


def test_the_import_alone_brings_no_dependency() -> None:
    script = "import sys, adaptive_gamma; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"numpy", "scipy", "pydantic", "fastapi", "click", "httpx", "yaml", "uvicorn"}
