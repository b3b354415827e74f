"""The live page in Chromium, told what a test writes: names, unknowns, keys, and connections that are lost."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import SCHEMES, WIDTHS, axe_violations, watched
from tests.browser.scripted_page import ScriptedPage, replica_row, scripted_page, unread_row

NASTY = "<img src=x onerror=alert(1)>\"'&<script>alert(2)</script>"
SLOW = {"observed_s": 0.07, "flagged": True, "gain_over_plain": -0.2, "causes": ["graphs may be off"]}
LEARNED = {
    "drafter": "eagle3", "rebuilds": 1, "table_from": "learned",
    "drafters": {
        "eagle3": {
            name: {
                "prior": {"conditional": [0.8, 0.7, 0.7, 0.7], "plateau": 0.7},
                "learned": {"conditional": [0.7, 0.66, 0.6, 0.7], "plateau": 0.7},
                "interval": [[0.7, 0.9], [0.6, 0.8], [0.6, 0.8]], "error": [0.01, 0.02, 0.05],
                "trials": [900.0, 600.0, 300.0], "inferred": True, "drifted": name == "chat",
            }
            for name in ("structured", "chat", "unsure")
        }
    },
}  # fmt: skip
GAINS = {
    "sequences": 9, "replicas": 2, "left_out": 1, "in_force": 900.0, "plain": 500.0, "best_fixed": 3, "over_plain": 0.8,
    "fixed": {"1": 700.0, "2": 800.0, "3": 880.0}, "over_best_fixed": 0.0227, "plain_observed": False,
}  # fmt: skip


FOCUSED = """() => {
  const e = document.activeElement;
  const seen = [e, e.closest('label')].some((each) => {
    const style = each && getComputedStyle(each);
    return style && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  });
  return [e.tagName, e.textContent.slice(0, 20) || e.value || e.type, seen];
}"""


def decision(number: int, **more: Any) -> dict[str, Any]:
    row = {
        "time": "2026-05-01T12:00:00.123+00:00", "id": f"id-{number}", "class": "chat", "decided": "spec-0",
        "sent_to": "spec-0", "pool": "speculative", "gamma": 4, "reason": "low_load", "load": 3, "cost_s": 0.02,
        "tpot_s": 0.014, "cached_tokens": 0, "excluded": 0, "outcome": "ok", "status": 200,
        "next": [{"replica": "plain-0", "gamma": 0, "load": 3, "cost_s": 0.03}],
    }  # fmt: skip
    return {**row, **more}


def fill(page: ScriptedPage) -> None:
    """A fleet in which everything occurs."""
    page.rows = [
        replica_row("spec-0"),
        replica_row("spec-1", gamma=3, setting="3", healthy=False, notes=["configured gamma 5"]),
        replica_row("plain-0", pool="plain", gamma=0, setting="plain"), unread_row("new-0"),
        replica_row("slow-0", step={**replica_row("x")["step"], **SLOW}),
        replica_row("old-0", draining=True), replica_row("gone-0", leaving=True, fresh=False, running=None, batch=None),
    ]  # fmt: skip
    page.state = {
        "gains": GAINS,
        "observed": {"replicas": 4, "tokens_per_s": 880.0, "predicted_tokens_per_s": 910.0, "ratio": 0.967},
        "decisions": [["chat", "speculative", "low_load", 5], ["chat", "plain", "high_load", 2]],
        "discovery": [{"name": "spec", "kind": "dns", "source": "a", "ready": 1, "age_s": 3.0, "error": "no answer"}],
    }
    page.decisions = [decision(n, reason="high_load" if n % 3 else "class") for n in range(24)]
    page.learned = LEARNED


def live(page: Page) -> None:
    expect(page.locator(".link")).to_have_text("live")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_everything_at_once_is_readable(browser: Browser, width: int, scheme: Literal["light", "dark"]) -> None:
    with scripted_page() as page:
        fill(page)
        with watched(browser, page.address, width=width, scheme=scheme, bypass_csp=True) as seen:
            live(seen.page)
            seen.page.locator("button.name").first.click()
            seen.page.wait_for_timeout(900)
            seen.settle()
            seen.shot(f"everything-{scheme}-{width}")
            assert seen.faults_of_layout() == []
            assert seen.odd_words() == []
            assert axe_violations(seen) == []
            assert seen.complaints == []


def test_a_fleet_of_which_nothing_is_known(browser: Browser) -> None:
    with scripted_page() as page:
        page.rows = [unread_row("a"), unread_row("b")]
        with watched(browser, page.address) as seen:
            live(seen.page)
            seen.settle()
            text = seen.text()
            assert seen.odd_words() == []
            tile = seen.page.locator(".tile", has_text="Sequences decoding").locator(".figure")
            expect(tile).to_have_text("unknown")
            for name in ("Tokens per second", "Gain over plain", "Over best fixed gamma"):
                expect(seen.page.locator(".tile", has_text=name).locator(".figure")).to_have_text("unknown")
            row = seen.page.locator("tbody tr", has_text="a").first
            assert row.inner_text().count("unknown") >= 6
            assert "Learning is off" in text
            seen.shot("unknown")
            page.rows = []
            expect(seen.page.get_by_text("no replica has been found yet")).to_be_visible()
            assert seen.complaints == []


def test_names_from_outside_are_only_text(browser: Browser) -> None:
    with scripted_page() as page:
        page.policy = {**page.policy, "name": NASTY}
        page.rows = [replica_row(NASTY, url=f"javascript:{NASTY}", notes=[NASTY], error=NASTY, healthy=False)]
        page.decisions = [
            decision(1, **{"class": NASTY, "reason": NASTY, "sent_to": NASTY, "id": NASTY, "outcome": NASTY})
        ]
        page.state = {"decisions": [[NASTY, NASTY, NASTY, 4]], "not_ready_because": NASTY, "ready": False}
        with watched(browser, page.address) as seen:
            live(seen.page)
            seen.page.locator("button.name").first.click()
            seen.settle()
            assert NASTY in seen.text()
            assert seen.page.locator("img, #app script").count() == 0
            assert seen.page.locator('a[href^="javascript"]').count() == 0
            assert seen.complaints == []


def test_a_lost_connection_is_told_and_found_again(browser: Browser) -> None:
    page, served = ScriptedPage(), ExitStack()
    served.enter_context(page.serving())
    with served, watched(browser, page.address, bypass_csp=True) as seen:
        live(seen.page)
        port = page.port
        served.close()
        expect(seen.page.locator(".link")).to_have_text("connection lost")
        expect(seen.page.locator(".banner")).to_contain_text("Connection lost")
        expect(seen.page.get_by_role("status")).to_have_text("Connection lost")
        expect(seen.page.locator("button.name").first).to_be_visible()
        seen.shot("connection-lost")
        assert axe_violations(seen) == []
        page.rows = [replica_row("spec-9")]
        with page.serving(port):
            seen.page.evaluate("document.querySelector('.banner button')?.click()")  # unless it has by itself
            live(seen.page)
            expect(seen.page.locator(".banner")).to_have_count(0)
            expect(seen.page.locator("button.name")).to_have_text(["spec-9"])
        expect(seen.page.locator(".link")).to_have_text("connection lost")
        with page.serving(port):
            expect(seen.page.locator(".link")).to_have_text("live", timeout=20_000)  # by itself


def test_one_page_too_many_is_told_and_comes_in_later(browser: Browser) -> None:
    with scripted_page(most=1) as page, watched(browser, page.address) as first:
        live(first.page)
        with watched(browser, page.address) as second:
            expect(second.page.locator(".banner")).to_contain_text("refused")
            first.page.goto("about:blank")
            expect(second.page.locator(".link")).to_have_text("live", timeout=20_000)


def test_replicas_come_and_go_under_the_readers_hands(browser: Browser) -> None:
    with scripted_page() as page, watched(browser, page.address) as seen:
        names = seen.page.locator("button.name")
        expect(names).to_have_text(["spec-0", "plain-0"])
        names.nth(1).focus()
        page.rows = [replica_row("new-0"), *page.rows]
        expect(names).to_have_text(["new-0", "spec-0", "plain-0"])
        assert seen.page.evaluate("document.activeElement.textContent") == "plain-0"
        page.rows = [page.rows[2], page.rows[0]]
        expect(names).to_have_text(["plain-0", "new-0"])
        assert seen.page.evaluate("document.activeElement.textContent") == "plain-0"
        names.first.click()
        expect(seen.page.locator(".detail h3")).to_have_text("plain-0")
        page.rows = page.rows[1:]
        expect(seen.page.get_by_text("plain-0 is no longer part of the fleet.")).to_be_visible()
        assert seen.complaints == []


def test_everything_can_be_done_by_keyboard(browser: Browser) -> None:
    with scripted_page() as page, watched(browser, page.address) as seen:
        fill(page)
        live(seen.page)
        keyboard = seen.page.keyboard
        keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.className") == "skip"
        expect(seen.page.locator(".skip")).to_be_in_viewport()
        reached: list[tuple[str, str, bool]] = []
        for _ in range(120):
            here = seen.page.evaluate(FOCUSED)
            if here[0] == "BODY" and reached:
                break
            reached.append(tuple(here))
            keyboard.press("Tab")
        words = [text for _, text, _ in reached]
        for wanted in ("Hold still", "spec-0", "As a table: replicas", "auto"):
            assert any(wanted in word for word in words), (wanted, words)
        assert [each for each in reached if not each[2]] == [], "the focus is seen everywhere"
        seen.page.get_by_role("button", name="spec-0", exact=True).focus()
        keyboard.press("Enter")
        expect(seen.page.locator(".detail h3")).to_have_text("spec-0")
        seen.page.get_by_role("radio", name="unsure").focus()
        keyboard.press("ArrowLeft")
        expect(seen.page.get_by_role("radio", name="chat")).to_be_checked()
        seen.page.get_by_role("button", name="Load").focus()
        keyboard.press("Space")
        expect(seen.page.get_by_role("columnheader", name="Load")).to_have_attribute("aria-sort", "ascending")
        seen.page.locator("summary", has_text="best gamma by class").focus()
        keyboard.press("Enter")
        expect(seen.page.get_by_role("table", name="Best gamma by class and batch")).to_be_visible()
        seen.page.get_by_role("button", name="Hold still").focus()
        keyboard.press("Space")
        expect(seen.page.locator(".link")).to_have_text("held still")
        page.rows = []
        seen.page.wait_for_timeout(700)
        assert seen.page.locator("button.name").count() == 7, "nothing moves while it is held"
        keyboard.press("Space")
        expect(seen.page.locator("button.name")).to_have_count(0)
        assert seen.complaints == []


def test_what_a_screen_reader_finds(browser: Browser) -> None:
    with scripted_page() as page, watched(browser, page.address) as seen:
        fill(page)
        live(seen.page)
        seen.settle()
        assert seen.page.get_by_role("banner").count() == 1
        assert seen.page.get_by_role("main").count() == 1
        assert seen.page.get_by_role("contentinfo").count() == 1
        levels: list[int] = seen.page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3')].map((e) => Number(e.tagName[1]))"
        )
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
        unnamed = "[...document.querySelectorAll('svg[role=img]')].filter((e) => !e.getAttribute('aria-label')).length"
        assert seen.page.evaluate(unnamed) == 0
        uncaptioned = (
            "[...document.querySelectorAll('table')].filter((e) => !e.caption || !e.caption.textContent).length"
        )
        assert seen.page.evaluate(uncaptioned) == 0
        # Figures change every second; what is said aloud does not.
        said = seen.page.get_by_role("status").inner_text()
        seen.page.wait_for_timeout(900)
        assert seen.page.get_by_role("status").inner_text() == said
        assert seen.page.locator("[aria-live], [role=alert]").count() == 0


def test_dark_and_light_are_chosen_and_kept(browser: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with scripted_page() as page, watched(browser, page.address, scheme="dark") as seen:
        live(seen.page)
        dark = seen.page.evaluate(ground)
        seen.page.locator(".theme label", has_text="Light").click()
        light = seen.page.evaluate(ground)
        assert light != dark
        seen.page.reload()
        live(seen.page)
        assert seen.page.evaluate(ground) == light
        seen.page.locator(".theme label", has_text="Auto").click()
        assert seen.page.evaluate(ground) == dark
        seen.page.emulate_media(color_scheme="light")
        assert seen.page.evaluate(ground) == light


def test_less_motion_where_it_is_asked_for(browser: Browser) -> None:
    with scripted_page() as page, watched(browser, page.address, reduced_motion="reduce") as seen:
        live(seen.page)
        seen.settle()
        moving = """[...document.querySelectorAll('*')].filter((e) => { const s = getComputedStyle(e);
            return s.transitionDuration !== '0s' || s.animationName !== 'none'; }).length"""
        assert seen.page.evaluate(moving) == 0


def test_a_panel_that_fails_leaves_the_others_alone(browser: Browser) -> None:
    with scripted_page() as page:
        page.rows[0]["notes"] = None
        with watched(browser, page.address) as seen:
            live(seen.page)
            expect(seen.page.locator("button.name")).to_have_count(2)
            expect(seen.page.get_by_text("cannot be drawn")).not_to_have_count(0)
            page.rows[0] = replica_row("spec-0")
            expect(seen.page.get_by_text("cannot be drawn")).to_have_count(0)


def test_a_hundred_classes_and_long_names(browser: Browser) -> None:
    with scripted_page() as page:
        name = "a-class-with-a-very-long-name-that-goes-on-and-on-until-it-ends"
        classes = [name, *(f"class-{i}" for i in range(12))]
        row = page.policy["map"]["chat"]
        page.policy = {**page.policy, "classes": classes, "default_class": name, "map": dict.fromkeys(classes, row)}
        for curve in page.curves["curves"].values():
            curve["tokens"] = dict.fromkeys(classes, curve["tokens"]["chat"])
        page.rows = [replica_row(f"replica-{'x' * 80}-{i}", tau_s=dict.fromkeys(classes, 0.01)) for i in range(3)]
        for width in WIDTHS:
            with watched(browser, page.address, width=width) as seen:
                live(seen.page)
                seen.settle()
                assert seen.faults_of_layout() == []
                assert seen.complaints == []
