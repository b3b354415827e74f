"""What the exports of all engines have in common: the situation of a server, gates on it, and the result."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import yaml

from adaptive_gamma.errors import ConfigurationError, ExportRefused
from adaptive_gamma.policy.export.notes import Note, Severity
from adaptive_gamma.policy.export.prices import Loss
from adaptive_gamma.policy.export.schedule import Schedule
from adaptive_gamma.policy.export.version import Version, parse_version, version_text
from adaptive_gamma.policy.table import Policy

__all__ = [
    "EngineExport",
    "Gate",
    "Runner",
    "ServerOptions",
    "Situation",
    "constant_note",
    "drafter_family",
    "gated",
    "read_version",
    "refuse",
]

EXPORT_SCHEMA = "adaptive-gamma/engine-schedule/v1"

Runner: TypeAlias = Literal["auto", "v1", "v2"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the server is started, as far as a schedule cares."""

    version: str | None = None
    """The engine's version; None is the one the gates were read from, where the engine allows it."""
    method: str | None = None
    """The engine's own name of the drafting method; None takes what the policy's drafter family means."""
    runner: Runner = "auto"
    """vLLM's model runner; auto is the version's default."""
    data_parallel: int = 1
    model: str | None = None
    draft_model: str | None = None
    file: str | None = None
    """Where the engine will find the table, for engines that read it from a file."""
    candidates_by_class: bool = False
    """SGLang: let the engine walk between the best gammas of the classes instead of pinning one."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What gates look at."""

    version: Version | None
    runner: str | None
    method: str | None
    data_parallel: int = 1
    has_zero: bool = False
    constant: bool = False
    """There is one gamma for every batch, and no table."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One thing known of an engine, as data: when it holds, what it means, where it is from.

    All conditions given must hold. ``methods`` and ``other_methods`` do not hold for a method that is not known.
    """

    severity: Severity
    code: str
    message: str
    source: str
    since: Version | None = None
    before: Version | None = None
    runner: str | None = None
    methods: frozenset[str] | None = None
    other_methods: frozenset[str] | None = None
    data_parallel: bool = False
    zero: bool = False
    constant: bool = False
    """Whether it holds of one gamma without a table, too."""

    def holds(self, at: Situation) -> bool:
        if at.constant and not self.constant:
            return False
        if at.version is not None:
            if self.since is not None and at.version < self.since:
                return False
            if self.before is not None and at.version >= self.before:
                return False
        elif self.before is not None:
            return False
        if self.runner is not None and at.runner != self.runner:
            return False
        if self.methods is not None and at.method not in self.methods:
            return False
        if self.other_methods is not None and (at.method is None or at.method in self.other_methods):
            return False
        return (at.data_parallel > 1 or not self.data_parallel) and (at.has_zero or not self.zero)

    def note(self) -> Note:
        return Note(self.severity, self.code, self.message, self.source)


@dataclass(frozen=True, slots=True)
class EngineExport:
    """A schedule in an engine's own form."""

    engine: str
    version: str | None
    policy: str
    schedule: Schedule
    table_key: str
    """What the engine calls the table; the name of its constant where one gamma serves every batch."""
    table: Any
    """The table alone, plain data; a whole number where one gamma serves every batch."""
    config: Any
    """The whole value of the engine's option or file that holds the table."""
    flags: tuple[str, ...]
    """The command that starts the server."""
    notes: tuple[Note, ...]
    file: str | None = None
    """The file named in ``flags`` that must hold ``config``; None where ``flags`` hold it themselves."""
    as_yaml: bool = False
    """Whether that file is YAML."""

    @property
    def command(self) -> str:
        """The flags as one line for a shell."""
        return shlex.join(self.flags)

    @property
    def config_text(self) -> str:
        """``config`` as the engine reads it."""
        if self.as_yaml:
            text: str = yaml.safe_dump(self.config, sort_keys=False, default_flow_style=False)
            return text.rstrip("\n")
        return json.dumps(self.config)

    def to_json(self) -> dict[str, Any]:
        """The whole result as plain data."""
        made = self.schedule
        return {
            "schema": EXPORT_SCHEMA,
            "engine": self.engine,
            "engine_version": self.version,
            "policy": self.policy,
            "class_mix": made.mix,
            "context_tokens": made.context,
            "max_batch": made.max_batch,
            "capture_limit_tokens": made.capture_limit_tokens,
            "table_key": self.table_key,
            "table": self.table,
            "config": self.config,
            "flags": list(self.flags),
            "command": self.command,
            "file": self.file,
            "steps": [[s.first, s.last, s.gamma] for s in made.steps],
            "unmerged_steps": [[s.first, s.last, s.gamma] for s in made.free_steps],
            "merging_loss": _loss_json(made.merging),
            "loss_by_class_and_context": [
                {"class": cell.request_class, "context": cell.context, **_loss_json(cell.loss)} for cell in made.cells
            ],
            "best_single_gamma": {"gamma": made.static_gamma, **_loss_json(made.static)},
            "plain_wins_from": made.plain_wins_from,
            "notes": [note.to_json() for note in self.notes],
        }


def read_version(text: str | None, engine: str) -> Version | None:
    """Raises ConfigurationError for what is no version."""
    if text is None:
        return None
    try:
        return parse_version(text)
    except ValueError as error:
        raise ConfigurationError(f"{engine} version", "", str(error)) from error


def drafter_family(policy: Policy) -> str | None:
    """What the policy's drafter is, or None where the file does not say."""
    drafter = policy.inputs.drafter
    return drafter.family or ("ngram" if drafter.kind == "ngram" else None)


def gated(gates: Iterable[Gate], at: Situation) -> list[Note]:
    """The notes of the gates that hold."""
    return [gate.note() for gate in gates if gate.holds(at)]


def refuse(engine: str, version: Version | None, notes: Sequence[Note], made: Schedule | None) -> None:
    """Raises ExportRefused where one of the notes is a refusal, with the best single gamma as the way out."""
    refusals = [note for note in notes if note.severity == "refusal"]
    if not refusals:
        return
    words = "; ".join(note.message + (f" [{note.source}]" if note.source else "") for note in refusals)
    if made is not None:
        words += (
            f". Without a table the best single gamma up to {made.max_batch} sequences is {made.static_gamma}, "
            f"predicted to lose {made.static.mean:.1%} on average and {made.static.worst:.1%} at batch "
            f"{made.static.worst_batch}"
        )
    raise ExportRefused(engine if version is None else f"{engine} {version_text(version)}", "", words)


def constant_note(key: str, made: Schedule) -> Note:
    """Why there is no table."""
    return Note(
        "note",
        "constant",
        f"one range came out: gamma {made.steps[0].gamma} serves every batch up to {made.max_batch}, so it stands as "
        f"{key} alone; a table of one range would say no more, and tables have costs of their own",
    )


def _loss_json(loss: Loss) -> Mapping[str, float | int]:
    return {"mean": round(loss.mean, 6), "worst": round(loss.worst, 6), "worst_batch": loss.worst_batch}
