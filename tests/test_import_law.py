"""An import points one way: command, bodies, fleet, engines and routing, policy, roofline. The brain stays pure."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "adaptive_gamma"

MAY_IMPORT: dict[str, set[str]] = {
    "roofline": set(),
    "policy": {"roofline"},
    "routing": {"policy", "roofline"},
    "engines": set(),
    "config": {"engines"},
    "bench": {"config", "engines", "policy", "roofline"},
    "web": set(),
    "discovery": {"config", "engines", "web"},
    "fleet": {"config", "engines", "routing", "policy", "roofline", "web"},
    "doctor": {"bench", "engines", "policy", "roofline", "web"},
    "observe": set(),
    "page": set(),
    "admin": {"fleet"},
    "envoy": {"admin", "config", "fleet", "engines", "routing", "policy", "roofline"},
    "proxy": {"admin", "config", "fleet", "engines", "observe", "page", "routing", "policy", "roofline"},
    "simulation": {"routing", "policy", "roofline"},
    "vllm_plugin": set(),
}
EVERYONE = {"errors", "_version", "yaml_text"}
CLOCKS_AND_WIRES = {
    "aiohttp", "anyio", "asyncio", "click", "fastapi", "http", "httptools", "httpx", "httpx2", "logging", "os",
    "prometheus_client", "random", "select", "selectors", "socket", "ssl", "starlette", "subprocess", "threading",
    "time", "urllib", "uvicorn", "uvloop",
}  # fmt: skip


def imports(path: Path) -> set[tuple[str, int]]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(alias.name, node.lineno) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the direction"
            found.add((node.module or "", node.lineno))
    return found


def test_imports_point_down() -> None:
    wrong = []
    for area, allowed in MAY_IMPORT.items():
        for path in (PACKAGE / area).rglob("*.py"):
            for name, line in imports(path):
                parts = name.split(".")
                if parts[0] == "adaptive_gamma" and len(parts) > 1 and parts[1] not in allowed | EVERYONE | {area}:
                    wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_brain_reads_no_clock_and_opens_no_socket() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {name}"
        for area in ("roofline", "policy", "routing")
        for path in (PACKAGE / area).rglob("*.py")
        for name, line in imports(path)
        if name.split(".")[0] in CLOCKS_AND_WIRES
    ]
    assert not wrong, "\n".join(wrong)


def test_engine_metric_names_stay_in_their_dialect() -> None:
    homes = {
        "vllm:": {"engines/vllm.py", "simulation/engine"},
        "llamacpp:": {"engines/llamacpp.py"},
        "sglang:": {"engines/sglang.py"},
    }
    wrong = [
        f"{path.relative_to(PACKAGE)} names {prefix}"
        for prefix, allowed in homes.items()
        for path in PACKAGE.rglob("*.py")
        if prefix in path.read_text() and not any(str(path.relative_to(PACKAGE)).startswith(home) for home in allowed)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_takes_a_private_name_of_another() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{node.lineno} takes {alias.name} of {node.module}"
        for folder in (PACKAGE, PACKAGE.parent / "documentation", PACKAGE.parent / "benchmarks")
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert not wrong, "\n".join(wrong)


def test_httpx_is_imported_in_at_most_two_modules() -> None:
    users = [str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if any(n == "httpx" for n, _ in imports(p))]
    assert len(users) <= 2, users


def test_modules_stay_small() -> None:
    long = {
        str(p.relative_to(PACKAGE)): n for p in PACKAGE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400
    }
    assert not long, long


def test_what_runs_inside_of_vllm_needs_nothing_else_of_ours() -> None:
    """Nor anything installed but vLLM, and that not before it is switched on: no import at the top of a module."""
    standard = sys.stdlib_module_names | {"adaptive_gamma", "__future__"}
    wrong = []
    for path in (PACKAGE / "vllm_plugin").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                wrong += [f"{path.name} imports {name}" for name in names if name.split(".")[0] not in standard]
                wrong += [
                    f"{path.name} imports {name}"
                    for name in names
                    if name.startswith("adaptive_gamma.") and not name.startswith("adaptive_gamma.vllm_plugin")
                ]
    assert not wrong, "\n".join(wrong)
