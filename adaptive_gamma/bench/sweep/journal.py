"""The folder of a sweep: what was planned, and every finished run, on disk before the next one starts.

    plan.json       what is measured and what the engines report; written once
    rows.jsonl      a row for every finished run, in the form that ``policy build`` and the importers read
    details.jsonl   what a row has no place for, written before the row

A run counts as finished when its row stands with its line end; half a line, which a kill can leave, is cut off.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from adaptive_gamma.bench.row import Source, SweepRow, row_from_json, row_to_json
from adaptive_gamma.errors import AdaptiveGammaError, SweepError

__all__ = ["JOURNAL_FILES", "PLAN_SCHEMA", "Cell", "Journal", "run_cell"]

PLAN_SCHEMA = "adaptive-gamma/sweep-plan/v1"
JOURNAL_FILES = ("plan.json", "rows.jsonl", "details.jsonl", "summary.json")
"""All that is written into the folder."""
_CELL_KEYS: Mapping[str, type] = {"arm": str, "concurrency_asked": int, "request_class": str, "run": str}
Cell = tuple[str, int, str, str]
"""Arm, concurrency, class and run: what tells one finished run from every other."""


def run_cell(row: SweepRow) -> Cell:
    """Which run a row is of."""
    return (row.arm or "", row.concurrency_asked or 0, row.request_class or "", row.run)


class Journal:
    """The folder, locked for one process while it is open; use as a context manager.

    Raises:
        SweepError: another process has it open, or a file in it was changed by somebody else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] | None = None
        self.rows: list[SweepRow] = []
        self.details: dict[Cell, dict[str, Any]] = {}
        self.cut_bytes = 0
        """Bytes of half-written lines that were cut off."""
        self._lock: int | None = None

    @property
    def rows_file(self) -> Path:
        """The rows."""
        return self.folder / "rows.jsonl"

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise SweepError(str(self.folder), "", f"cannot hold results: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._unlock()
            raise SweepError(str(self.folder), "", "another sweep is writing here") from None
        try:
            self._load()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unlock()

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Write the plan, whole or not at all."""
        self.write_document("plan.json", plan)
        self.plan = dict(plan)

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a file of the folder, whole or not at all."""
        temporary = self.folder / f".{name}.new"
        with temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / name)
        self._sync_folder()

    def record(self, row: SweepRow, detail: Mapping[str, Any]) -> None:
        """Put a finished run on disk; it is there when this returns."""
        cell = run_cell(row)
        named = {"arm": cell[0], "concurrency_asked": cell[1], "request_class": cell[2], "run": cell[3]}
        self._append(self.folder / "details.jsonl", {**named, **detail})
        self._append(self.rows_file, row_to_json(row))
        self.details[cell] = dict(detail)
        self.rows.append(row)

    def finished(self) -> set[Cell]:
        """The runs that are on disk."""
        return {run_cell(row) for row in self.rows}

    # -- files --------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        plan = self.folder / "plan.json"
        if plan.exists():
            self.plan = _checked(_object(plan.read_bytes(), str(plan)), str(plan))
        for number, line in enumerate(self._lines(self.rows_file), start=1):
            source = Source(str(self.rows_file), number)
            self.rows.append(row_from_json(_object(line, str(source)), source))
        if self.rows and self.plan is None:
            raise SweepError(str(self.folder), "plan.json", "is missing beside rows of a sweep; use another folder")
        details = self.folder / "details.jsonl"
        for number, line in enumerate(self._lines(details), start=1):
            where = f"{details}:{number}"
            values = _object(line, where)
            for key, kind in _CELL_KEYS.items():
                if not isinstance(values.get(key), kind):
                    raise SweepError(where, key, "is missing or of the wrong kind")
            self.details[values["arm"], values["concurrency_asked"], values["request_class"], values["run"]] = values

    def _lines(self, path: Path) -> list[bytes]:
        """The whole lines of a file; half a line at its end is cut off."""
        if not path.exists():
            return []
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self.cut_bytes += len(content) - whole
            with path.open("r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())
        return [line for line in content[:whole].split(b"\n") if line.strip()]

    def _append(self, path: Path, values: Mapping[str, Any]) -> None:
        line = json.dumps(values, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        new = not path.exists()
        try:
            with path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise AdaptiveGammaError(f"{path} cannot be written: {error.strerror}") from error
        if new:
            self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _checked(plan: dict[str, Any], where: str) -> dict[str, Any]:
    """The plan, with what is read of it later there."""
    if plan.get("schema") != PLAN_SCHEMA:
        raise SweepError(where, "schema", f"expected {PLAN_SCHEMA!r}, got {plan.get('schema')!r}")
    for key, kind in (("id", str), ("made_at", str), ("identity", dict), ("arms", list)):
        if not isinstance(plan.get(key), kind):
            raise SweepError(where, key, "is missing or of the wrong kind")
    for number, arm in enumerate(plan["arms"]):
        for key, wanted in (("name", str), ("url", str), ("fixed_length", bool), ("reported", dict)):
            if not isinstance(arm, dict) or not isinstance(arm.get(key), wanted):
                raise SweepError(where, f"arms[{number}].{key}", "is missing or of the wrong kind")
        for key in ("engine", "engine_version", "served_model", "model", "drafter", "speculative", "gamma"):
            if key not in arm["reported"]:
                raise SweepError(where, f"arms[{number}].reported.{key}", "is missing")
    return plan


def _object(text: bytes, where: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SweepError(where, "", f"is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise SweepError(where, "", "expected a JSON object")
    return values
