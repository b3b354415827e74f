"""The page's files: complete, shipped, and nothing in them that the page's policy would have to allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from adaptive_gamma.page import ASSET_NAMES, PAGE_HEADERS, asset, live_page

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "adaptive_gamma" / "page" / "assets"
SCRIPTS = sorted(name for name in ASSET_NAMES if name.endswith(".js"))


def test_every_file_is_shipped_in_the_wheel() -> None:
    shipped = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    wanted = {f"adaptive_gamma/page/assets/{path.name}" for path in FOLDER.iterdir()}
    assert len(wanted) > 20
    assert wanted <= shipped


def test_the_policy_allows_nothing_inline_and_nobody_else() -> None:
    policy = PAGE_HEADERS["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == directives["connect-src"] == "'self'"
    assert directives["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_holds_no_script_style_or_handler_of_its_own() -> None:
    page = live_page().body.decode()
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.S) == [""]
    assert "<style" not in page
    assert not re.search(r"\son\w+=|\sstyle=", page)
    for address in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert address.startswith("ui/"), "relative, so that it works below a path too"
        assert address.removeprefix("ui/") in ASSET_NAMES


@pytest.mark.parametrize("name", sorted(ASSET_NAMES))
def test_no_file_names_a_host(name: str) -> None:
    text = asset(name).body.decode()
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert not re.search(r"url\((?!#|`?#)", text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_markup_or_code_of_a_string(name: str) -> None:
    text = asset(name).body.decode()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in text
    assert "createContextualFragment" not in text
    assert not re.search(r"[\"']style[\"']|\bstyle:", text), "an attribute `style` would need unsafe-inline"


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_imports_is_there_and_exported(name: str) -> None:
    text = asset(name).body.decode()
    for names, module in re.findall(r'^import \{ ([^}]+) \} from "\./([^"]+)";$', text, re.M):
        exported = asset(module).body.decode()
        for wanted in names.split(", "):
            assert re.search(rf"^export (?:const|function|class) {wanted}\b", exported, re.M), f"{module}: {wanted}"
            assert len(re.findall(rf"\b{wanted}\b", text)) > 1, f"{wanted} is imported and not used"
    assert text.count("\nimport ") + text.startswith("import ") == len(re.findall(r"^import \{", text, re.M))


def test_an_unknown_name_is_no_file() -> None:
    for name in ("live.html", "../assets.py", "__init__.py", ""):
        with pytest.raises(KeyError):
            asset(name)


def test_the_tag_changes_with_the_body() -> None:
    tags = {asset(name).tag for name in ASSET_NAMES}
    assert len(tags) == len(ASSET_NAMES)
    assert all(re.fullmatch(r'"[0-9a-f]{20}"', tag) for tag in tags)
