"""The recipes of CONTRIBUTING.md, followed: their blocks put into a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "environment", "follow", "printed", "run", "sections"]

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```$", re.M | re.S)


def sections() -> dict[str, list[tuple[str, str]]]:
    """The blocks under each recipe's heading, as (language, text)."""
    _, _, recipes = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Recipes\n")
    parts = re.split(r"^### (.+)$", recipes, flags=re.M)
    return {
        title: [(found[1], found[2]) for found in _BLOCK.finditer(text)]
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def follow(copy: Path) -> None:
    """Copy the package and follow every recipe in the copy."""
    shutil.copytree(ROOT / "adaptive_gamma", copy / "adaptive_gamma", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "policies", copy / "policies")
    for blocks in sections().values():
        for language, text in blocks:
            if language == "python":
                first, _, _ = text.partition("\n")
                path = copy / first.removeprefix("# ")
                assert not path.exists(), f"{path} is no new file"
                path.write_text(text)
            else:
                _apply(copy, text)


def _apply(copy: Path, diff: str) -> None:
    """Make the changes of a diff; lines that it keeps or takes away must stand in the file, in this order."""
    first, *lines = diff.splitlines()
    path = copy / first.removeprefix("--- ")
    text, at = path.read_text().splitlines(), 0
    for line in lines:
        mark, rest = line[:1], line[1:]
        if mark == "+":
            text.insert(at, rest)
            at += 1
            continue
        found = [n for n in range(at, len(text)) if text[n] == rest]
        assert found, f"{first}: there is no line {rest!r} behind line {at}"
        at = found[0]
        if mark == "-":
            del text[at]
        else:
            at += 1
    path.write_text("\n".join(text) + "\n")


def environment(copy: Path) -> dict[str, str]:
    """That of a process which imports the copy, wherever it is started."""
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": ""}


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the copy."""
    return _python(copy, "-m", "adaptive_gamma", *arguments)


def printed(copy: Path, program: str, *arguments: str) -> str:
    """What a program prints that imports the copy."""
    done = _python(copy, "-c", program, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
