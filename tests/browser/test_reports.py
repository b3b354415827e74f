"""The self-contained reports, opened as files: no request to anywhere, readable at both widths, dark and light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from adaptive_gamma.cli.dry_run import command as dry_run
from adaptive_gamma.cli.policy import command as policy
from tests.browser.chromium import SCHEMES, WIDTHS, axe_violations, watched

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.stem for path in (ROOT / "policies").glob("*.yaml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def dry_run_file(folder: Path) -> Path:
    path = folder / "dry-run.html"
    arguments = ["--policy", "h200-llama3-70b-fp8", "--trace", "synthetic:conversation=chat"]
    more = ["--trace", "synthetic:code=code", "--scale", "0.5", "--limit", "1200", "--html", str(path)]
    assert CliRunner().invoke(dry_run, [*arguments, *more], catch_exceptions=False).exit_code == 0
    return path


def policy_file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.html"
    assert CliRunner().invoke(policy, ["show", name, "--html", str(path)], catch_exceptions=False).exit_code == 0
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_dry_run(browser: Browser, dry_run_file: Path, width: int, scheme: Any) -> None:
    with watched(browser, dry_run_file.as_uri(), width=width, scheme=scheme, bypass_csp=True) as seen:
        expect(seen.page.get_by_role("heading", name="Regret")).to_be_visible()
        seen.settle()
        seen.shot(f"dry-run-{scheme}-{width}")
        assert seen.faults_of_layout() == []
        assert seen.odd_words() == []
        assert axe_violations(seen) == []
        assert seen.complaints == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_policy(browser: Browser, folder: Path, width: int, scheme: Any) -> None:
    with watched(
        browser, policy_file(folder, "h100-llama3-8b-eagle3").as_uri(), width=width, scheme=scheme, bypass_csp=True
    ) as seen:
        expect(seen.page.get_by_role("heading", name="Policy map")).to_be_visible()
        seen.settle()
        seen.shot(f"policy-{scheme}-{width}")
        assert seen.faults_of_layout() == []
        assert seen.odd_words() == []
        assert axe_violations(seen) == []
        assert seen.complaints == []


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_can_be_drawn(browser: Browser, folder: Path, name: str) -> None:
    for width in WIDTHS:
        with watched(browser, policy_file(folder, name).as_uri(), width=width) as seen:
            expect(seen.page.locator("svg.chart").first).to_be_visible()
            seen.settle()
            assert seen.faults_of_layout() == []
            assert seen.odd_words() == []
            assert seen.complaints == []


def test_the_reports_own_policy_is_kept_and_nothing_is_asked_for(browser: Browser, dry_run_file: Path) -> None:
    with watched(browser, dry_run_file.as_uri()) as seen:
        page = seen.page
        page.get_by_role("button", name="Latency", exact=True).click()
        expect(page.locator("#regret-title").locator("xpath=../..").locator("th[aria-sort]")).to_have_attribute(
            "aria-sort", "descending"
        )
        page.locator("label", has_text="TTFT").first.click()
        expect(page.get_by_role("table", name="Percentiles of TTFT")).to_be_visible()
        page.locator("label", has_text="8,192 tokens").click()
        expect(page.get_by_text("context of 8,192 tokens").first).to_be_visible()
        page.locator("summary").first.click()
        expect(page.get_by_role("table", name="Load over time", exact=True)).to_be_visible()
        page.locator('[data-plot="gamma"]').hover()
        expect(page.locator('[data-plot="gamma"] + .readout b').first).to_be_visible()
        assert seen.odd_words() == []
        assert [address for address in seen.addresses if not address.startswith(("file:", "data:"))] == []
        assert seen.complaints == []


def test_names_in_a_report_are_only_text(browser: Browser, folder: Path) -> None:
    nasty = "</script><img src=x onerror=alert(1)>"
    fleet = folder / "fleet.yaml"
    fleet.write_text(f"replicas: [{{name: '{nasty}', gamma: 3}}, {{name: p, gamma: 0}}]")
    path = folder / "nasty.html"
    arguments = ["--policy", "h200-llama3-70b-fp8", "--trace", "synthetic:code", "--limit", "50", "--html", str(path)]
    more = ["--fleet", str(fleet), "--only", "adaptive"]
    assert CliRunner().invoke(dry_run, [*arguments, *more], catch_exceptions=False).exit_code == 0
    with watched(browser, path.as_uri()) as seen:
        expect(seen.page.get_by_role("rowheader", name=nasty)).to_be_visible()
        assert seen.page.locator("img").count() == 0
        assert seen.odd_words() == []
        assert seen.complaints == []


def test_a_dry_run_of_which_little_is_known(browser: Browser, folder: Path) -> None:
    trace = folder / "one.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0.0,10,1\n")
    path = folder / "little.html"
    arguments = ["--policy", "h200-llama3-70b-fp8", "--trace", f"{trace}=chat", "--html", str(path), "--no-what-if"]
    for only in ("plain", "adaptive,oracle", "fixed-1,fixed-2"):
        assert CliRunner().invoke(dry_run, [*arguments, "--only", only], catch_exceptions=False).exit_code == 0
        with watched(browser, path.as_uri(), width=390) as seen:
            expect(seen.page.get_by_role("heading", name="Regret")).to_be_visible()
            seen.settle()
            assert seen.faults_of_layout() == []
            assert seen.odd_words() == []
            assert seen.complaints == []
