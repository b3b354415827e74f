"""64 simulated replicas behind a real ``adaptive-gamma serve``: a minute of the live page, once a second.

Prints what was measured. On a machine that is busy with other things the proxy waits for a processor; the seconds it
did are counted, and as many ticks may be missing.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import SCHEMES, WIDTHS, axe_violations, memory_of, watched
from tests.browser.scripted_page import ScriptedPage, replica_row

REPLICAS = 64
CLIENTS = 64
MINUTE_S = 60
ROOT = Path(__file__).resolve().parents[2]
LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+), admin on http://127\.0\.0\.1:(\d+)")
TICKS_HZ = os.sysconf("SC_CLK_TCK")


@dataclass
class Serving:
    """A proxy with its fleet and its clients."""

    admin: str
    pid: int

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU that the proxy has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_HZ

    @property
    def waited_s(self) -> float:
        """Seconds in which its threads could have run and had no processor."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("fleet")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.browser.simulated_fleet", str(folder), str(REPLICAS), str(CLIENTS)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as fleet,
        (folder / "proxy.log").open("w") as log,
    ):
        assert fleet.stdin is not None
        assert fleet.stdout is not None
        try:
            assert fleet.stdout.readline() == "ready\n"
            command = [sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(folder / "config.yaml")]
            with subprocess.Popen(command, stderr=log, env=environment) as proxy:
                try:
                    found = None
                    while found is None:
                        assert proxy.poll() is None, (folder / "proxy.log").read_text()
                        found = LISTENING.search((folder / "proxy.log").read_text())
                        time.sleep(0.05)
                    fleet.stdin.write(f"{found[1]}\n")
                    fleet.stdin.flush()
                    yield Serving(f"http://127.0.0.1:{found[2]}", proxy.pid)
                finally:
                    proxy.terminate()
                    assert proxy.wait(30) == 0
        finally:
            fleet.kill()
    assert "Traceback" not in (folder / "proxy.log").read_text()


@pytest.mark.timeout(300)
def test_a_minute_of_64_replicas_that_a_script_makes_up(browser: Browser) -> None:
    """The page alone: no engine and no client takes processors away from it."""
    draw = random.Random(1)

    def others() -> list[dict[str, Any]]:
        gammas = (3, 4, 5, 0)
        return [
            replica_row(
                f"spec-{i:02d}", running=draw.randrange(9), batch=draw.randrange(1, 9), gamma=gammas[i % 4],
                setting=str(gammas[i % 4]), kv_usage=draw.random(),
            )
            for i in range(REPLICAS)
        ]  # fmt: skip

    page = ScriptedPage()
    page.each_tick = lambda: setattr(page, "rows", others())
    with page.serving(interval_s=1.0), watched(browser, page.address) as seen:
        expect(seen.page.locator("button.name")).to_have_count(REPLICAS, timeout=30_000)
        session = seen.page.context.new_cdp_session(seen.page)
        states: list[float] = []
        session.send("Network.enable")
        session.on("Network.eventSourceMessageReceived", lambda each: took(each, states))
        seen.page.evaluate(WATCH_CHANGES)
        seen.page.wait_for_timeout(MINUTE_S * 1000)
        drawn, script = seen.page.evaluate("[window.drawnAt.length, window.drawing]")
        memory = memory_of(browser, session, seen.page.url)
        longest = max(b - a for a, b in pairwise(states))
        print(
            f"\n{REPLICAS} scripted replicas, {MINUTE_S} s: {len(states)} ticks came, longest gap {longest:.2f} s; "
            f"{drawn} times drawn, {script['mean']:.1f} ms of script each; {memory['heap']:.1f} MiB of script heap, "
            f"process {memory['private']:.0f} MiB private, {memory['resident']:.0f} resident"
        )
        assert len(states) >= MINUTE_S - 4
        assert drawn >= len(states) - 3
        assert memory["private"] < 150
        assert seen.complaints == []


@pytest.mark.timeout(300)
def test_a_minute_of_64_replicas(browser: Browser, serving: Serving) -> None:
    with watched(browser, f"{serving.admin}/ui") as seen:
        page = seen.page
        expect(page.locator("button.name")).to_have_count(REPLICAS, timeout=30_000)
        page.wait_for_timeout(15_000)  # until windows are filled and clients are spread
        session = page.context.new_cdp_session(page)
        states: list[float] = []
        session.send("Network.enable")
        session.on("Network.eventSourceMessageReceived", lambda each: took(each, states))
        page.evaluate(WATCH_CHANGES)
        first, cpu_before, waited_before = memory_of(browser, session, page.url), serving.cpu_s, serving.waited_s
        page.wait_for_timeout(MINUTE_S * 1000)
        cpu, waited = serving.cpu_s - cpu_before, serving.waited_s - waited_before
        last = memory_of(browser, session, page.url)
        drawn: list[float] = page.evaluate("window.drawnAt")
        script: dict[str, float] = page.evaluate("window.drawing")
        gaps = [b - a for a, b in pairwise(states)]
        print(
            f"\n{REPLICAS} replicas, {MINUTE_S} s: {len(states)} ticks came, longest gap {max(gaps):.2f} s; "
            f"{len(drawn)} times drawn, {script['mean']:.1f} ms of script each, {script['most']:.1f} at most\n"
            f"page: {last['heap']:.1f} MiB of JavaScript heap after {first['heap']:.1f}, {last['nodes']:.0f} nodes "
            f"after {first['nodes']:.0f}; its process: {last['private']:.0f} MiB private, "
            f"{last['resident']:.0f} resident\n"
            f"proxy: {cpu / MINUTE_S:.0%} of a core with {CLIENTS} clients, {REPLICAS} scrapes a second and this page; "
            f"{waited:.0f} s of {MINUTE_S} it waited for a processor"
        )
        assert len(states) >= MINUTE_S - 4 - waited
        assert len(drawn) >= len(states) - 3
        assert max(gaps) < 2.5 + waited
        assert last["private"] < 150
        assert last["heap"] < 40
        assert last["heap"] < first["heap"] + 8
        assert last["nodes"] < first["nodes"] * 1.5 + 500
        assert seen.complaints == []
        assert {address.split("/")[2] for address in seen.addresses} == {serving.admin.split("/")[2]}
        assert seen.odd_words() == []


def took(each: dict[str, Any], states: list[float]) -> None:
    if each["eventName"] == "state":
        assert len(json.loads(each["data"])["replicas"]) == REPLICAS
        states.append(each["timestamp"])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_how_it_looks(browser: Browser, serving: Serving, width: int, scheme: Any) -> None:
    with watched(browser, f"{serving.admin}/ui", width=width, scheme=scheme, bypass_csp=True) as seen:
        expect(seen.page.locator("button.name")).to_have_count(REPLICAS, timeout=30_000)
        seen.page.wait_for_timeout(4_000)
        seen.page.locator("button.name").nth(3).click()
        seen.settle()
        seen.shot(f"live-64-{scheme}-{width}")
        assert seen.faults_of_layout() == []
        assert axe_violations(seen) == []
        assert seen.complaints == []


WATCH_CHANGES = """() => {
  window.drawnAt = [];
  window.drawing = { mean: 0, most: 0 };
  const frame = window.requestAnimationFrame;
  let total = 0;
  window.requestAnimationFrame = (draw) => frame((time) => {
    const began = performance.now();
    draw(time);
    const took = performance.now() - began;
    total += took;
    window.drawnAt.push(Date.now() / 1000);
    window.drawing = { mean: total / window.drawnAt.length, most: Math.max(window.drawing.most, took) };
  });
}"""
