"""Checks are pure, each code is said by one check and stands in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from adaptive_gamma.doctor import CHECKS
from tests.test_import_law import CLOCKS_AND_WIRES, PACKAGE, imports

_PURE = ("checks", "case.py", "cost.py", "evidence.py", "finding.py", "graphs.py", "diagnosis.py", "words.py")
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"


def test_checks_open_nothing_and_read_no_clock() -> None:
    wrong = []
    for name in _PURE:
        place = PACKAGE / "doctor" / name
        for path in place.rglob("*.py") if place.is_dir() else [place]:
            for imported, line in imports(path):
                if imported.split(".")[0] in CLOCKS_AND_WIRES | {"pathlib", "io", "gzip"}:
                    wrong.append(f"{path.name}:{line} imports {imported}")
            assert "open(" not in path.read_text()
    assert not wrong, wrong


def test_codes_belong_to_one_check_and_are_those_that_are_said() -> None:
    codes = [code for check in CHECKS for code in check.codes]
    assert len(codes) == len(set(codes))
    text = "".join(path.read_text() for path in (PACKAGE / "doctor" / "checks").glob("*.py"))
    missing = [code for code in codes if f'"{code}"' not in text and not code.startswith("table_")]
    assert not missing


def test_the_page_has_a_row_for_each_code() -> None:
    page = _PAGE.read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert rows == [code for check in CHECKS for code in check.codes]


def test_names_of_vllm_s_log_stay_in_their_folder() -> None:
    words = ("Graph capturing finished", "Skipping CUDA graph capture", "SpecDecoding metrics", "non-default args")
    for path in (PACKAGE / "doctor").rglob("*.py"):
        if "engines" in path.parts:
            continue
        text = path.read_text()
        assert not [word for word in words if word in text], path
