"""A real Chromium, headless: Debian's, or the one that CHROMIUM names; and what is looked at on a page in it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, CDPSession, Page, Playwright

__all__ = [
    "ARTIFACTS",
    "SCHEMES",
    "WIDTHS",
    "Watched",
    "axe_violations",
    "chromium_path",
    "launched",
    "memory_of",
    "watched",
]

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts" / "page"
AXE = Path(os.environ.get("AXE", ROOT / ".tools" / "axe.min.js"))
WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_MIB = 1 << 20
LAYOUT = Path(__file__).with_name("layout.js").read_text().split("\n", 1)[1]
_FRAME = "new Promise(done => requestAnimationFrame(done))"


def chromium_path() -> str | None:
    """Where it is; None where there is none."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def launched(playwright: Playwright) -> Browser:
    """The browser. Root may not have the sandbox."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=chromium_path(), args=[*options, "--disable-dev-shm-usage"])


@dataclass
class Watched:
    """A page, and everything it complained of or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    def shot(self, name: str) -> Path:
        """Keep a picture of the whole page."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.evaluate("window.scrollTo(0, 0)")
        self.page.screenshot(path=str(path), full_page=True)
        return path

    def text(self) -> str:
        return str(self.page.evaluate("document.body.innerText"))

    def settle(self) -> None:
        """Let widths be measured and drawn."""
        for _ in range(3):
            self.page.evaluate(_FRAME)

    def faults_of_layout(self) -> list[str]:
        """Text that is cut off or lies over other text, and a page wider than its window."""
        found: list[str] = self.page.evaluate(LAYOUT)
        return found

    def odd_words(self) -> list[str]:
        """What no reader should meet."""
        return re.findall(r"\b(?:NaN|undefined|null|Infinity|\[object)\b", self.text())


@contextmanager
def watched(
    browser: Browser, address: str, *, width: int = 1280, scheme: Literal["light", "dark"] = "light", **options: Any
) -> Iterator[Watched]:
    """Open a page and watch it."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
    page = context.new_page()
    seen = Watched(page)
    page.on(
        "console",
        lambda message: (
            seen.complaints.append(f"{message.type}: {message.text}") if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: seen.complaints.append(f"uncaught: {error}"))
    page.on("request", lambda request: seen.addresses.append(request.url))
    page.on("dialog", lambda dialog: seen.complaints.append(f"dialog: {dialog.message}"))
    page.goto(address)
    try:
        yield seen
    finally:
        context.close()


def axe_violations(seen: Watched) -> list[str]:
    """What axe-core finds wrong, by the rules of WCAG 2.2 AA and its own best practices. The page's policy must be
    bypassed (``bypass_csp``), as axe is a script from elsewhere."""
    seen.page.evaluate(AXE.read_text())
    found = seen.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    assert len(found["passes"]) > 10
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]} {node['failureSummary'][:200]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def memory_of(browser: Browser, session: CDPSession, address: str) -> dict[str, float]:
    """Of the page at an address, in MiB, garbage collected before: ``heap`` is what its scripts hold (CDP
    Performance.getMetrics, JSHeapUsedSize), ``private`` and ``resident`` what its renderer process has (/proc)."""
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    system = browser.new_browser_cdp_session()
    processes = system.send("SystemInfo.getProcessInfo")["processInfo"]
    system.detach()
    # The renderer with the page is the one that has worked most: an idle spare one may stand by.
    renderer = max((each for each in processes if each["type"] == "renderer"), key=lambda each: each["cpuTime"])
    text = Path(f"/proc/{int(renderer['id'])}/smaps_rollup").read_text()
    kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M)}
    return {
        "heap": metrics["JSHeapUsedSize"] / _MIB,
        "nodes": metrics["Nodes"],
        "private": (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024,
        "resident": kib["Rss"] / 1024,
    }
