"""Reports: one file, its scripts and styles named by their hashes, its data unable to leave its element."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.page import json_block, report_page
from adaptive_gamma.page.report import one_script

ENTRIES = ("policy_report.js", "dry_run_report.js")
NASTY = "</script><script>alert(1)</script><!-- <script> & \u2028 \u2029 ]]> \ud800 \x00"


class Elements(HTMLParser):
    """What a parser makes of the document: (tag, attributes, text) of scripts and styles, and all other tags."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=False)
        self.inline: list[tuple[str, dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self._open = False
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open = tag in ("script", "style")
        if self._open:
            self.inline.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, attributes, text = self.inline[-1]
            self.inline[-1] = (tag, attributes, text + data)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_runs_is_named_by_its_hash_and_nothing_is_fetched(entry: str) -> None:
    page = report_page("A <title> & more", entry, {"a": 1})
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    assert "<title>A &lt;title&gt; &amp; more</title>" in page
    found = Elements(page)
    for tag, attributes, text in found.inline:
        assert "src" not in attributes
        if attributes.get("type") != "application/json":
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert not re.search(r'(?:src|href)="(?!data:)', page)


def test_data_cannot_leave_its_element() -> None:
    data = {"name": NASTY, NASTY: [NASTY]}
    found = Elements(report_page(NASTY.encode("utf-8", "replace").decode(), "policy_report.js", data))
    plain = Elements(report_page("x", "policy_report.js", {"name": "x"}))
    assert found.tags == plain.tags
    blocks = [text for _, attributes, text in found.inline if attributes.get("id") == "data"]
    assert [json.loads(text) for text in blocks] == [data]


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_comes_back_as_it_was(value: object) -> None:
    block = json_block({"value": value})
    assert json.loads(block) == {"value": value}
    assert not set(block) & set("<>&\u2028\u2029\n")
    block.encode("utf-8")


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        report_page("x", "policy_report.js", {"a": float("nan")})


@pytest.mark.parametrize("entry", ENTRIES)
def test_modules_are_put_together_without_a_name_declared_twice(entry: str) -> None:
    script = one_script(entry)
    assert not re.search(r"^\s*(?:import|export)\b", script, re.M)
    declared = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.M)
    assert len(declared) > 50
    assert sorted(declared) == sorted(set(declared))
    assert script.index("// dom.js") < script.index("// chart.js") < script.index(f"// {entry}")


def test_a_module_that_cannot_be_put_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_gamma.page import report

    texts = {
        "a.js": 'import { b } from "./b.js";\nb();\n',
        "b.js": 'export { c as b } from "./c.js";\n',
        "loop.js": 'import { x } from "./loop.js";\n',
        "end.js": 'const a = "</script>";\n',
    }
    monkeypatch.setattr(report, "_source", texts.__getitem__)
    one_script.cache_clear()
    for entry, why in (
        ("a.js", "cannot be put into one script: export"),
        ("loop.js", "itself"),
        ("end.js", "end the el"),
    ):
        with pytest.raises(ValueError, match=why):
            one_script(entry)
    one_script.cache_clear()
