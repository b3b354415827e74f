"""What the documentation names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_data_path_page_names_modules_and_tests_that_exist() -> None:
    page = (ROOT / "docs" / "data-path.md").read_text()
    tests = set(re.findall(r"`(test_\w+)`", page))
    assert tests
    assert {name for name in tests if not (ROOT / "tests" / "proxy" / f"{name}.py").is_file()} == set()
    modules = {name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert {name for name in modules if not (ROOT / "adaptive_gamma" / "proxy" / f"{name}.py").is_file()} == set()


def test_links_between_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
