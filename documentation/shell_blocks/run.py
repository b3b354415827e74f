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

from adaptive_gamma.cli.demo.llama_server import available as llama_missing
from documentation.shell_blocks.find import ROOT, Block, Page

__all__ = ["Result", "left_out", "run_page"]

BLOCK_S = 600.0
"""Longest time for one block: two real vLLM start within it on two busy cores."""
_CHECK_EVERY_S = 0.5
_ENDS_WITHIN_S = 30.0
_TOOLS = (".tools/bin", ".venv-envoy/bin", ".venv-vllm/bin")
"""Where `make chart-tools`, `make test-envoy` and `make test-vllm` put programs; looked at last."""
_NOT_LINKED = {".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "build", "site"}
_BASH = shutil.which("bash") or "bash"
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
    """``ran``, ``ended`` (it ran, goes on by its nature, and was ended), ``not run``, ``failed`` or ``not reached``."""
    detail: str = ""
    seconds: float = 0.0

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.block.line}"


def run_page(page: Page) -> list[Result]:
    """Run its blocks in order; after one that fails the others are not reached."""
    results: list[Result] = []
    if not any(left_out(block) is None for block in page.commands):
        return [Result(page, block, "not run", left_out(block) or "") for block in page.commands]
    with tempfile.TemporaryDirectory(prefix="docs-test-") as name:
        terminal = _Terminal(Path(name))
        failed = False
        try:
            for block in page.blocks:
                if block.title is not None:
                    terminal.save(block)
                if block.runs_by is None:
                    continue
                reason = left_out(block)
                if reason is not None:
                    results.append(Result(page, block, "not run", reason))
                elif failed:
                    results.append(Result(page, block, "not reached"))
                else:
                    began = time.monotonic()
                    problem = terminal.run(block)
                    failed = problem is not None
                    status = "failed" if failed else "ran" if block.until is None else "ended"
                    results.append(Result(page, block, status, problem or "", time.monotonic() - began))
        finally:
            terminal.close()
    return results


def left_out(block: Block) -> str | None:
    """Why this block is not run here, or None."""
    if block.not_run is not None:
        return block.not_run
    missing = [f"needs {name}: {bringer}" for name, bringer in block.needs if not _has(name)]
    return "; ".join(missing) or None


def _has(name: str) -> bool:
    if name == "llama.cpp":
        return llama_missing() is None
    return shutil.which(name, path=_search_path()) is not None


def _search_path() -> str:
    here = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.pathsep.join([*here, *(str(ROOT / folder) for folder in _TOOLS)])


class _Terminal:
    """A folder with what a clone of the repository has in it, and the shell's state from block to block."""

    def __init__(self, folder: Path) -> None:
        self._cwd = folder / "adaptive-gamma"
        self._cwd.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in _NOT_LINKED:
                (self._cwd / entry.name).symlink_to(entry)
        self._groups: list[int] = []
        venv = self._cwd / ".venv"
        if not venv.is_symlink():
            venv.symlink_to(Path(sys.executable).parents[1])
        home = folder / "home"
        home.mkdir()
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ADAPTIVE_GAMMA_")},
            "PATH": _search_path(),
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
            command = [_BASH, "-c", _SHELL.replace("{block}", block.reader_has + block.text)]
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
            if block.until is not None:
                return self._run_until(process, block.until)
            self._groups.append(process.pid)
            try:
                code = process.wait(BLOCK_S)
            except subprocess.TimeoutExpired:
                return f"not over after {BLOCK_S:g} s\n{self._said()}"
        return None if code == 0 else f"exit code {code}\n{self._said()}"

    def _run_until(self, process: subprocess.Popen[bytes], until: str) -> str | None:
        """Wait for what the block is to bring about, and end it with all that it started."""
        deadline = time.monotonic() + BLOCK_S
        script = _SHELL.partition("{block}")[0] + until
        try:
            while process.poll() is None:
                check = [_BASH, "-c", script]
                done = subprocess.run(check, cwd=self._cwd, env=self._environment, capture_output=True, check=False)
                if done.returncode == 0:
                    return None
                if time.monotonic() > deadline:
                    return f"after {BLOCK_S:g} s `{until}` has not succeeded\n{self._said()}"
                time.sleep(_CHECK_EVERY_S)
            return f"it ended, with exit code {process.returncode}, before `{until}` succeeded\n{self._said()}"
        finally:
            _end_groups([process.pid], _ENDS_WITHIN_S, process)

    def _said(self) -> str:
        text = self._output.read_text(encoding="utf-8", errors="replace")
        return text if len(text) < 4000 else f"...{text[-4000:]}"

    def close(self) -> None:
        """End every process that a block started."""
        _end_groups(self._groups, 5.0)


def _end_groups(groups: list[int], within_s: float, leader: subprocess.Popen[bytes] | None = None) -> None:
    """End processes by the groups they are in: asked first, made to after some seconds."""
    _signal(groups, signal.SIGTERM)
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if leader is not None:
            leader.poll()  # else it stays in its group, as a process that nobody has waited for
        if not _signal(groups, 0):
            return
        time.sleep(0.05)
    _signal(groups, signal.SIGKILL)
    if leader is not None:
        leader.wait()


def _signal(groups: list[int], number: int) -> bool:
    """Whether any of them is left."""
    left = False
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            left = True
    return left
