"""One browser for all tests here. Without a Chromium or axe-core they are skipped, and fail where CI is true."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.chromium import AXE, chromium_path, launched


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    missing = [name for name, there in (("Chromium", chromium_path()), ("axe-core", AXE.is_file())) if not there]
    if missing:
        reason = f"{' and '.join(missing)} not found; make test-page fetches what it can"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()
