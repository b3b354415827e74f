"""The threat model names mechanisms, modules and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
ROWS = [
    cells
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 4
]


def _tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(), re.M)
    }


def test_every_test_it_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 40
    assert named - _tests() == set()


def test_every_module_it_names_exists() -> None:
    modules = {name for row in ROWS for name in re.findall(r"`([\w/]+(?:\.py|/))`", row[2])}
    assert len(modules) > 15
    assert {name for name in modules if not (ROOT / "adaptive_gamma" / name).exists()} == set()


def test_every_way_in_has_a_mechanism_a_place_and_a_test() -> None:
    ways = [row for row in ROWS if row[0] not in ("way in", "what") and set(row[0]) != {"-"}]
    assert len(ways) > 35
    assert [
        row[0] for row in ways if not row[1] or not (row[3].startswith("`test_") or row[3] == "none: trusted")
    ] == []


def test_the_targets_it_names_exist() -> None:
    from tests.fuzz.targets import ALL

    assert set(re.findall(r"target `([\w-]+)`", PAGE)) <= set(ALL)


def test_the_security_page_names_no_address() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    assert "security tab" in page
    assert "@" not in page
    assert "://" not in page
