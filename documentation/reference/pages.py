"""Which reference pages there are, and what makes each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from documentation.reference.admin_api import admin_api_page
from documentation.reference.command_line import command_line_page
from documentation.reference.configuration import configuration_page
from documentation.reference.metrics import metrics_page
from documentation.reference.policy_file import policy_file_page
from documentation.reference.python_api import python_api_page

__all__ = ["FOLDER", "PAGES", "pages"]

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line_page,
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "policy-file.md": policy_file_page,
    "admin-api.md": admin_api_page,
    "python-api.md": python_api_page,
}


def pages() -> dict[str, str]:
    """The text of every page, by file name."""
    return {name: make() for name, make in PAGES.items()}
