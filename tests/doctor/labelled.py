"""The labelled logs, and what the doctor makes of one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from adaptive_gamma.cli.doctor import command

__all__ = ["LOGS", "REAL", "Labelled", "doctor", "labelled_logs"]

LOGS = Path(__file__).parent / "logs"
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "vllm"


@dataclass(frozen=True, slots=True)
class Labelled:
    """A log and what is to be found in it."""

    name: str
    path: Path
    codes: tuple[str, ...]
    notes: tuple[str, ...]
    options: tuple[str, ...] = ()
    plain: Path | None = None
    exit_code: int | None = None

    @property
    def expected_exit(self) -> int:
        """By what is to be found."""
        return self.exit_code if self.exit_code is not None else 1 if self.codes else 0


def labelled_logs() -> list[Labelled]:
    """Those written from the texts of each version."""
    labels = yaml.safe_load((LOGS / "labels.yaml").read_text())
    return [
        Labelled(
            name,
            LOGS / f"{name}.log",
            tuple(label["codes"]),
            tuple(label["notes"]),
            tuple(label["options"]),
            LOGS / f"{label['plain']}.log" if "plain" in label else None,
            label.get("exit"),
        )
        for name, label in labels.items()
    ]


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The command's exit code and its JSON."""
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


def found_in(log: Labelled) -> tuple[int, list[str], list[str], dict[str, Any]]:
    """Exit code, codes of problems and warnings, codes of notes, and the whole diagnosis."""
    plain = () if log.plain is None else ("--plain-log", str(log.plain))
    code, said = doctor("--log", str(log.path), *plain, *log.options)
    findings = said["findings"]
    return (
        code,
        sorted(each["code"] for each in findings if each["severity"] != "note"),
        sorted(each["code"] for each in findings if each["severity"] == "note"),
        said,
    )
