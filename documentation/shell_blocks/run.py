"""Runs the blocks of one page: one folder, one terminal after the other, everything it started ended at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from documentation.shell_blocks.find import ROOT, Block, Page

__all__ = ["Result", "run_page"]

BLOCK_S = 180.0
"""Longest time for one block."""
_NOT_LINKED = {".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "build", "site"}
_SHELL = """set -eo pipefail
if [ -f "$DOCS_STATE" ]; then . "$DOCS_STATE"; cd "$DOCS_CWD"; fi
{block}
export DOCS_CWD=$PWD
export -p > "$DOCS_STATE"
"""


@dataclass(frozen=True)
class Result:
    """What became of a block."""

    page: Page
    block: Block
    status: str
    """``ran``, ``not run``, ``failed`` or ``not reached``."""
    detail: str = ""
    seconds: float = 0.0

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.block.line}"


def run_page(page: Page) -> list[Result]:
    """Run its blocks in order; after one that fails the others are not reached."""
    results: list[Result] = []
    if not any(block.not_run is None for block in page.commands):
        return [Result(page, block, "not run", block.not_run or "") for block in page.commands]
    with tempfile.TemporaryDirectory(prefix="docs-test-") as name:
        terminal = _Terminal(Path(name))
        failed = False
        try:
            for block in page.blocks:
                if block.title is not None:
                    terminal.save(block)
                if block.runs_by is None:
                    continue
                if block.not_run is not None:
                    results.append(Result(page, block, "not run", block.not_run))
                elif failed:
                    results.append(Result(page, block, "not reached"))
                else:
                    began = time.monotonic()
                    problem = terminal.run(block)
                    failed = problem is not None
                    status = "ran" if problem is None else "failed"
                    results.append(Result(page, block, status, problem or "", time.monotonic() - began))
        finally:
            terminal.close()
    return results


class _Terminal:
    """A folder with what a clone of the repository has in it, and the shell's state from block to block."""

    def __init__(self, folder: Path) -> None:
        self._cwd = folder / "adaptive-gamma"
        self._cwd.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in _NOT_LINKED:
                (self._cwd / entry.name).symlink_to(entry)
        self._groups: list[int] = []
        scripts = Path(sys.executable).parent
        venv = self._cwd / ".venv"
        if not venv.is_symlink():
            venv.symlink_to(scripts.parent)
        home = folder / "home"
        home.mkdir()
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ADAPTIVE_GAMMA_")},
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "DOCS_STATE": str(folder / "state.sh"),
            "DOCS_CWD": str(self._cwd),
            "HOME": str(home),
            "TERM": "dumb",
        }
        self._output = folder / "output"

    def save(self, block: Block) -> None:
        """Save a block under its title, as its reader is told to."""
        path = self._cwd / (block.title or "")
        if path.is_symlink() or any(parent.is_symlink() for parent in path.parents if self._cwd in parent.parents):
            raise ValueError(f"{block.title} is a file of the repository")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def run(self, block: Block) -> str | None:
        """Run it; what was wrong, or None."""
        if block.runs_by == "python":
            command = [sys.executable, "-c", block.text]
        else:
            bash = shutil.which("bash") or "bash"
            command = [bash, "-c", _SHELL.replace("{block}", block.text)]
        # Servers that the block leaves running keep its output open: a file, as a pipe would never end.
        with open(self._output, "wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(process.pid)
            try:
                code = process.wait(BLOCK_S)
            except subprocess.TimeoutExpired:
                return f"not over after {BLOCK_S:g} s\n{self._said()}"
        return None if code == 0 else f"exit code {code}\n{self._said()}"

    def _said(self) -> str:
        text = self._output.read_text(encoding="utf-8", errors="replace")
        return text if len(text) < 4000 else f"...{text[-4000:]}"

    def close(self) -> None:
        """End every process that a block started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for group in self._groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, number)
            if number == signal.SIGTERM:
                self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            alive = False
            for group in self._groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, 0)
                    alive = True
            if not alive:
                return
            time.sleep(0.05)
