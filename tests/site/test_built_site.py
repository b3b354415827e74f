"""The site as `make docs` has built it: it reads nothing from another host, and every link in it leads somewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from documentation.plots import FOLDER, PICTURES

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"

LOADS = {
    ("script", "src"), ("img", "src"), ("iframe", "src"), ("audio", "src"), ("video", "src"), ("source", "src"),
    ("embed", "src"), ("object", "data"), ("image", "href"), ("use", "href"), ("image", "xlink:href"),
    ("use", "xlink:href"),
}  # fmt: skip
"""What a browser fetches by itself when it shows a page."""
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_CSS = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)", re.IGNORECASE)
NOT_USED = {
    "unpkg.com": "diagrams, for elements of the class mermaid",
    "api.github.com": "facts about a repository, where mkdocs.yml names one",
    "${e}": "the same, of a GitLab",
}
"""Hosts that the theme's scripts would load from, and for what: none of it is on a page."""


class Reading(HTMLParser):
    """What a page loads, what it links to, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.styles: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.loads += [values[name] for of, name in LOADS if of == tag and name in values]
        self.loads += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
        if tag == "link" and LOADED_LINKS & set(values.get("rel", "").lower().split()):
            self.loads.append(values.get("href", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        self.styles.append(values.get("style", ""))
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            self.styles.append(data)
            self._style = False


@cache
def read(page: Path) -> Reading:
    reading = Reading()
    reading.feed(page.read_text(encoding="utf-8"))
    return reading


def html() -> list[Path]:
    found = sorted(SITE.rglob("*.html"))
    assert found, "the site is not built; `make docs` builds it and runs this"
    return found


def test_no_page_loads_anything_from_another_host() -> None:
    foreign = {(page.name, load) for page in html() for load in read(page).loads if ELSEWHERE.match(load)}
    foreign |= {
        (page.name, str(found)) for page in html() for style in read(page).styles for found in IN_CSS.findall(style)
    }
    assert foreign == set()


def test_no_stylesheet_or_picture_loads_anything_from_another_host() -> None:
    for path in (*SITE.rglob("*.css"), *SITE.rglob("*.svg")):
        text = path.read_text(encoding="utf-8")
        assert IN_CSS.findall(text) == [], path.name
        assert re.findall(r"(?:href|src)\s*=\s*['\"](?:https?:)?//", text) == [], path.name


def test_scripts_load_from_other_hosts_only_for_what_is_on_no_page() -> None:
    calls = (
        r"(?:fetch|import|importScripts|[a-zA-Z_$]{1,3})\(\s*[\"'`]https?://([^/\"'`]+)|=\s*[\"'`]https?://([^/\"'`]+)"
    )
    hosts = {
        one or other
        for path in SITE.rglob("*.js")
        for one, other in re.findall(calls, path.read_text(encoding="utf-8"))
    }
    assert hosts - {"www.w3.org"} <= set(NOT_USED)
    for page in html():
        assert "mermaid" not in read(page).classes, page.name
        assert 'data-md-component="source"' not in page.read_text(encoding="utf-8"), page.name


def test_a_real_browser_asks_only_the_site_s_own_server(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on the path")
    log = tmp_path / "net.json"
    with served(SITE) as url:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-component-update", "--no-first-run", "--virtual-time-budget=4000",
            f"--user-data-dir={tmp_path}/profile",
            f"--log-net-log={log}", "--dump-dom", f"{url}/quick-start.html?q=gamma",
        ]  # fmt: skip
        shown = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout
    assert "x-adaptive-gamma-replica" in shown
    # What the browser does for itself (its dictionaries, its updates) has another initiator than the page.
    events = [event.get("params", {}) for event in json.loads(log.read_text(encoding="utf-8"))["events"]]
    asked = {params["url"] for params in events if params.get("initiator") == url and "url" in params}
    assert any("search_index" in found for found in asked), "the page's own scripts have run"
    assert {found for found in asked if not found.startswith(url)} == set()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder behind a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_every_link_within_the_site_leads_to_a_page_and_an_anchor() -> None:
    wrong = []
    for page in html():
        for link in read(page).links:
            if re.match(r"[a-z][a-z0-9+.-]*:", link) or link.startswith("//"):
                continue
            target, fragment = urldefrag(link)
            base = SITE if page.name == "404.html" else page.parent
            path = (SITE / target.lstrip("/") if target.startswith("/") else base / unquote(target)) if target else page
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file():
                wrong.append(f"{page.name}: {link}")
            elif fragment and path.suffix == ".html" and unquote(fragment) not in read(path).anchors:
                wrong.append(f"{page.name}: {link} has no such anchor")
    assert wrong == []


def test_the_search_index_holds_every_page() -> None:
    index = (SITE / "search" / "search_index.json").read_text(encoding="utf-8")
    pages = [path.relative_to(SITE).as_posix() for path in html() if path.name != "404.html"]
    assert [page for page in pages if f'"location":"{page}' not in index] == []


def test_the_pictures_are_what_the_code_draws_to_the_byte(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "documentation.plots", str(tmp_path)], cwd=ROOT, check=True)
    assert {path.name for path in FOLDER.iterdir()} == set(PICTURES)
    for name in PICTURES:
        assert (FOLDER / name).read_bytes() == (tmp_path / name).read_bytes(), f"{name}: run `make plots`"


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_shown_somewhere(name: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"plots/{name})" in page.read_text(encoding="utf-8") for page in pages)
