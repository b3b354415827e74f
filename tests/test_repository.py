"""What is kept in the repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_MOST_BYTES = 1 << 20


def git(*arguments: str) -> list[str]:
    """The lines git prints; skips where this is no checkout."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout with git")
    run = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip(f"git says: {run.stderr.strip()}")
    return run.stdout.splitlines()


def test_nothing_that_is_ignored_is_kept() -> None:
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard") == []


def test_nothing_large_is_kept() -> None:
    """Tools and models are fetched or made, never kept."""
    large = [name for name in git("ls-files") if (ROOT / name).is_file() and (ROOT / name).stat().st_size > _MOST_BYTES]
    assert large == []
