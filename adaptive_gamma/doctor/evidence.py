"""What was gathered, in the field's words: of a log's start-up, of a server's pages, of benchmarks. No input or output.

What is not known is None. Whatever is known carries where it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from adaptive_gamma.doctor.finding import Evidence
from adaptive_gamma.engines import EngineReading

__all__ = [
    "PARALLEL_EAGLE",
    "BenchArm",
    "BenchRemark",
    "Capture",
    "Downgrade",
    "DraftsSeen",
    "Fact",
    "LoadSeen",
    "Probe",
    "ServerEvidence",
    "ServerStart",
    "Settings",
    "StepsSeen",
    "Version",
    "known",
]

PARALLEL_EAGLE = "p-eagle"
"""An EAGLE drafter that makes one pass for all tokens; vLLM calls it eagle3 with an option beside."""

T = TypeVar("T")
U = TypeVar("U")

Version: TypeAlias = tuple[int, int, int]
"""(major, minor, patch) of an engine."""


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """A value and where it was read."""

    value: T
    evidence: Evidence

    def map(self, change: Callable[[T], U]) -> Fact[U]:
        """Another value that rests on the same evidence."""
        return Fact(change(self.value), self.evidence)


def known(*facts: Fact[T] | None) -> Fact[T] | None:
    """The first fact that is known."""
    return next((fact for fact in facts if fact is not None), None)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is configured, by one source: its command line, the line it prints of itself, or its info page."""

    version: Fact[Version] | None = None
    generation: Fact[str] | None = None
    """vLLM: ``v0`` or ``v1`` engine."""
    model: Fact[str] | None = None
    speculative: Fact[bool] | None = None
    method: Fact[str] | None = None
    gamma: Fact[int] | None = None
    table: Fact[Any] | None = None
    """Gamma by batch, as written; never empty."""
    adaptive_verification: Fact[bool] | None = None
    dead_options: tuple[Fact[str], ...] = ()
    """Options that are accepted and do nothing, by name."""
    enforce_eager: Fact[bool] | None = None
    graph_mode: Fact[str] | None = None
    capture_limit: Fact[int] | None = None
    """Most tokens a captured step holds."""
    capture_limit_asked: bool = False
    """The limit was set by whoever started the server."""
    max_model_len: Fact[int] | None = None
    max_num_seqs: Fact[int] | None = None
    data_parallel: Fact[int] | None = None
    pipeline_parallel: Fact[int] | None = None
    device: Fact[str] | None = None
    attention_backend: Fact[str] | None = None
    statistics: Fact[bool] | None = None


@dataclass(frozen=True, slots=True)
class Downgrade:
    """The engine changed the graph mode it was asked for."""

    evidence: Evidence
    before: str
    after: str
    backend: str | None = None
    """The attention backend that forced it, where one did."""
    support: str | None = None
    """What that backend can capture, in the engine's word."""
    reason: Literal["speculation", "backend", "table", "piecewise", "platform"] = "backend"


@dataclass(frozen=True, slots=True)
class Capture:
    """Graphs of one kind that were captured."""

    part: Literal["target", "drafter", "encoder"]
    mode: str | None
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class DraftsSeen:
    """What a log's periodic lines say of drafts, added up over lines whose draft length did not vary."""

    drafts: float
    drafted: float
    accepted: float
    per_position: tuple[float, ...]
    """Accepted at each position / drafts: unconditional."""
    lines: int
    varying_lines: int
    """Lines left out because drafts were of several lengths."""
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class StepsSeen:
    """Pure decode steps that a log lists one by one."""

    steps: int
    seconds: float
    """Sum."""
    sequences: float
    """Sum."""
    tokens: float
    """Sum of scheduled tokens."""
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """What a log's periodic lines say of load, over neighbouring lines with the same number of running requests."""

    lines: int
    tokens_per_s: float
    """Sum over those lines."""
    running: float
    """Sum over those lines."""
    acceptance_length: float | None
    """Mean tokens of a step over those lines, the bonus token included; None where a line lacks it."""
    most_running: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class ServerStart:
    """One start of a server as its log tells it."""

    file: str
    line: int
    engine: str
    asked: Settings
    told: Settings
    runner: Fact[str] | None = None
    """vLLM: model runner ``v1`` or ``v2``."""
    eager: Evidence | None = None
    """A line that says that graphs are off because eager mode was asked for."""
    downgrades: tuple[Downgrade, ...] = ()
    capture_skipped: Evidence | None = None
    capture_finished: Evidence | None = None
    captures: tuple[Capture, ...] = ()
    progress_kept: bool = False
    """Progress bars are in the log, so that one which is missing was not drawn."""
    captured_sizes: Mapping[str, Fact[int]] = field(default_factory=dict)
    """Largest captured step by graph mode, where the engine lists it."""
    runtime_modes: Mapping[str, int] = field(default_factory=dict)
    """Steps by the graph mode they ran in, where the engine counts them."""
    runtime_evidence: Evidence | None = None
    attention_backend: Fact[str] | None = None
    kv_tokens: Fact[int] | None = None
    context_cut: Fact[tuple[int, int]] | None = None
    """Drafter's and target's context where the first cut the second."""
    table_dropped: Fact[str] | None = None
    """The table was dropped: ``data_parallel`` or ``method``."""
    drafter_eager: Evidence | None = None
    scheduled_tokens_cut: Evidence | None = None
    ready: Evidence | None = None
    died: Evidence | None = None
    died_of: Evidence | None = None
    shut_down: Evidence | None = None
    drafts: DraftsSeen | None = None
    steps: StepsSeen | None = None
    load: LoadSeen | None = None

    @property
    def subject(self) -> str:
        """How the start is called in findings."""
        return self.file if self.line <= 1 else f"{self.file} (start at line {self.line})"


@dataclass(frozen=True, slots=True)
class Probe:
    """What the answer to one short request said of its drafts."""

    gamma: int | None
    draft_tokens: int | None
    drafts: int | None
    """Steps that drafted."""
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class ServerEvidence:
    """What a server's pages said, over some seconds."""

    url: str
    engine: str | None = None
    version: Fact[Version] | None = None
    first: EngineReading | None = None
    last: EngineReading | None = None
    seconds: float = 0.0
    """Between the first look and the last."""
    looks: int = 0
    most_running: int | None = None
    reset_between: Evidence | None = None
    """A counter fell, or the process is another one."""
    statistics_off: Evidence | None = None
    told: Settings = field(default_factory=Settings)
    info_missing: str | None = None
    """Why the page with the whole configuration was not read."""
    max_model_len: Fact[int] | None = None
    probe: Probe | None = None
    probe_missing: str | None = None
    """Why a request that was asked for told nothing."""

    @property
    def metrics(self) -> str:
        """Where metrics were read, for evidence."""
        return f"{self.url} metrics"


@dataclass(frozen=True, slots=True)
class BenchRemark:
    """What the reader of benchmark results refuses or doubts."""

    where: str
    field: str
    text: str
    made_up_prompts: bool = False


@dataclass(frozen=True, slots=True)
class BenchArm:
    """One measured run."""

    where: str
    name: str
    speculative: bool | None
    gamma: int | None
    load: float | None
    tokens_per_s: float | None
    made_up_prompts: bool
    prompts: str | None
    """Dataset or class, where the file says so; runs of different prompts are not compared."""
    input_tokens: float | None = None
    output_tokens: float | None = None
