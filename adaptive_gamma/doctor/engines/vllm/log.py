"""Reads a vLLM log line by line into the starts it tells of; what is kept does not grow with the log."""

from __future__ import annotations

import re
from typing import Literal

from adaptive_gamma.doctor.engines.vllm import texts
from adaptive_gamma.doctor.engines.vllm.running import RunningLines
from adaptive_gamma.doctor.engines.vllm.settings import settings_of_arguments, settings_of_config
from adaptive_gamma.doctor.evidence import Capture, Downgrade, Fact, ServerStart, Settings
from adaptive_gamma.doctor.finding import Evidence

__all__ = ["VllmLog"]

_SHOWN = 240
"""Letters of a line that are shown as evidence."""
_MOST_STARTS = 64
"""Starts kept of one log: the first, and the last ones."""
_MOST_OF_A_KIND = 32
_TWO_RUNNERS = (0, 24, 0)
_PREFIX = re.compile(r"^.*?(?=\b(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d )")


class _Start:
    """One start while its lines come in."""

    def __init__(self, file: str, line: int) -> None:
        self.file = file
        self.line = line
        self.asked = Settings()
        self.told = Settings()
        self.configured = False
        self.runner: Fact[str] | None = None
        self.eager: Evidence | None = None
        self.downgrades: dict[tuple[str, str, str | None], Downgrade] = {}
        self.skipped: Evidence | None = None
        self.finished: Evidence | None = None
        self.captures: dict[tuple[str, str | None], Capture] = {}
        self.progress = False
        self.sizes: dict[str, Fact[int]] = {}
        self.modes: dict[str, int] = {}
        self.modes_evidence: Evidence | None = None
        self.backend: Fact[str] | None = None
        self.kv: Fact[int] | None = None
        self.context_cut: Fact[tuple[int, int]] | None = None
        self.table_dropped: Fact[str] | None = None
        self.drafter_eager: Evidence | None = None
        self.scheduled_cut: Evidence | None = None
        self.ready: Evidence | None = None
        self.died: Evidence | None = None
        self.died_of: Evidence | None = None
        self.shut_down: Evidence | None = None
        self.running = RunningLines()

    @property
    def ended(self) -> bool:
        return self.ready is not None or self.died is not None or self.shut_down is not None

    def result(self) -> ServerStart:
        return ServerStart(
            file=self.file,
            line=self.line,
            engine="vllm",
            asked=self.asked,
            told=self.told,
            runner=self.runner,
            eager=self.eager,
            downgrades=tuple(self.downgrades.values()),
            capture_skipped=self.skipped,
            capture_finished=self.finished,
            captures=tuple(self.captures.values()),
            progress_kept=self.progress,
            captured_sizes=dict(self.sizes),
            runtime_modes=dict(self.modes),
            runtime_evidence=self.modes_evidence,
            attention_backend=self.backend,
            kv_tokens=self.kv,
            context_cut=self.context_cut,
            table_dropped=self.table_dropped,
            drafter_eager=self.drafter_eager,
            scheduled_tokens_cut=self.scheduled_cut,
            ready=self.ready,
            died=self.died,
            died_of=self.died_of,
            shut_down=self.shut_down,
            drafts=self.running.drafts(),
            steps=self.running.steps(),
            load=self.running.load(),
        )


class VllmLog:
    """Takes lines and gives starts.

    A line with the configuration begins a start; so does the command line, where the start before it has come to
    something. Data-parallel ranks each print their configuration, which begins nothing.

    Args:
        file: the log's name, for evidence.
    """

    wanted = texts.ANY
    own = texts.EXCLUSIVE

    def __init__(self, file: str) -> None:
        self._file = file
        self._starts: list[_Start] = []
        self._now = _Start(file, 1)
        self.starts_seen = 0

    def take(self, number: int, line: str) -> None:
        """Read one line; ``number`` counts from 1."""
        now = self._now
        if "Iteration(" in line and (found := texts.ITERATION.search(line)) is not None:
            now.running.add_step(found, self._at(number, line))
            return
        if (found := texts.LOAD.search(line)) is not None:
            now.running.add_load(found, self._at(number, line))
            return
        if "SpecDecoding" in line and (found := texts.DRAFTS.search(line)) is not None:
            now.running.add_drafts(found, self._at(number, line))
            return
        if (found := texts.ARGUMENTS.search(line)) is not None:
            if self._now.ended or self._now.configured or self._now.running.seen:
                self._begin(number)
            evidence = self._at(number, line)
            self._now.asked = settings_of_arguments(found["arguments"], evidence)
            return
        if (found := texts.CONFIG.search(line)) is not None:
            self._configure(number, line, found)
            return
        self._start_up(number, line)
        self._graphs(number, line)
        self._life(number, line)

    def starts(self) -> tuple[ServerStart, ...]:
        """What was read, in order; a log that holds no start-up gives one start that knows little."""
        return tuple(start.result() for start in (*self._starts, self._now))

    @property
    def has_start(self) -> bool:
        """Whether the configuration of any start is in the log."""
        return any(start.configured for start in (*self._starts, self._now))

    def _at(self, number: int, line: str) -> Evidence:
        text = _PREFIX.sub("", line, count=1) if len(line) < 4096 else line
        return Evidence("line", f"{self._file}:{number}", text.strip()[:_SHOWN])

    def _begin(self, number: int) -> None:
        self._starts.append(self._now)
        if len(self._starts) > _MOST_STARTS:
            del self._starts[1]
        self._now = _Start(self._file, number)

    def _configure(self, number: int, line: str, found: re.Match[str]) -> None:
        if (self._now.ended and self._now.configured) or self._now.running.seen:
            self._begin(number)
        now = self._now
        evidence = self._at(number, line)
        told = settings_of_config(found["config"], found["version"], found["generation"], evidence)
        if not now.configured:
            now.told = told
            now.configured = True
            self.starts_seen += 1

    def _start_up(self, number: int, line: str) -> None:
        now = self._now
        if texts.RUNNER_V1.search(line):
            now.runner = Fact("v1", self._at(number, line))
        elif texts.RUNNER_V2.search(line):
            now.runner = Fact("v2", self._at(number, line))
        elif (found := texts.KV_TOKENS.search(line)) is not None:
            tokens = int(found["tokens"].replace(",", "") or 0)
            # Ranks print it each; the smallest is the one that preempts first.
            if tokens and (now.kv is None or tokens < now.kv.value):
                now.kv = Fact(tokens, self._at(number, line))
        elif (found := texts.DRAFTER_SHORT.search(line)) is not None:
            now.context_cut = Fact((int(found["to"]), int(found["target"])), self._at(number, line))
        elif texts.TABLE_DROPPED_DP.search(line):
            now.table_dropped = Fact("data_parallel", self._at(number, line))
        elif texts.TABLE_DROPPED_METHOD.search(line):
            now.table_dropped = Fact("method", self._at(number, line))
        elif texts.SCHEDULED_CUT.search(line):
            now.scheduled_cut = now.scheduled_cut or self._at(number, line)
        elif now.backend is None and (found := texts.BACKEND.search(line)) is not None:
            name = found["name"] or found["words"].upper().replace(" ", "_").replace("FLASH_ATTENTION", "FLASH_ATTN")
            now.backend = Fact(name.replace("FLASHATTENTION", "FLASH_ATTN"), self._at(number, line))

    def _graphs(self, number: int, line: str) -> None:
        if "raph" not in line and "eager" not in line and "Mode" not in line and "| " not in line:
            return
        now = self._now
        at = self._at(number, line)
        if texts.EAGER.search(line):
            now.eager = now.eager or at
        if (downgrade := _downgrade(line, at)) is not None:
            key = (downgrade.before, downgrade.after, downgrade.backend)
            if len(now.downgrades) < _MOST_OF_A_KIND:
                now.downgrades.setdefault(key, downgrade)
        if texts.CAPTURE_SKIPPED.search(line):
            now.skipped = now.skipped or at
        elif texts.CAPTURE_SKIPPED_V2.search(line):
            now.skipped = now.skipped or at
            now.runner = now.runner or Fact("v2", at)
        if texts.CAPTURE_FINISHED.search(line):
            now.finished = now.finished or at
            if now.told.version is not None and now.told.version.value >= _TWO_RUNNERS:
                by_file = "v2" if texts.RUNNER_FILE_V2.search(line) else "v1" if "[gpu_model_runner" in line else None
                now.runner = now.runner or (Fact(by_file, at) if by_file is not None else None)
        for bar in texts.TARGET_BAR.finditer(line):
            self._captured("target", bar["mode"], Evidence("line", at.where, bar[0]))
            now.runner = now.runner or Fact("v2" if bar["routine"] is None else "v1", at)
        if (old := texts.OLD_BAR.search(line)) is not None:
            shown = Evidence("line", at.where, old[0].rstrip(": "))
            self._captured("target", "FULL" if _is_v0(now) else "PIECEWISE", shown)
        if texts.ENCODER_CAPTURE.search(line):
            self._captured("encoder", None, at)
        elif (drafter := texts.DRAFTER_BAR.search(line)) is not None:
            self._captured("drafter", drafter["mode"], Evidence("line", at.where, drafter[0]))
        if texts.DRAFTER_EAGER.search(line):
            now.drafter_eager = now.drafter_eager or at
        if (profiled := texts.PROFILED.search(line)) is not None:
            for part in texts.PROFILED_PART.finditer(profiled["modes"]):
                now.sizes[part["mode"]] = Fact(int(part["largest"]), at)
        if (row := texts.RUNTIME_ROW.search(line)) is not None:
            now.modes[row["mode"]] = now.modes.get(row["mode"], 0) + int(row["count"])
            now.modes_evidence = now.modes_evidence or at

    def _captured(self, part: Literal["target", "drafter", "encoder"], mode: str | None, at: Evidence) -> None:
        captures = self._now.captures
        if len(captures) < _MOST_OF_A_KIND:
            captures.setdefault((part, mode), Capture(part, mode, at))

    def _life(self, number: int, line: str) -> None:
        now = self._now
        if texts.PROGRESS.search(line):
            now.progress = True
        if texts.READY.search(line):
            now.ready = now.ready or self._at(number, line)
        elif texts.DIED.search(line):
            # What comes after an orderly end is the noise of going down.
            if now.shut_down is None and now.died is None:
                now.died = self._at(number, line)
        elif now.shut_down is None and texts.SHUT_DOWN.search(line):
            if now.died is None:
                now.shut_down = self._at(number, line)
        elif now.died is not None and now.died_of is None and (found := texts.DIED_OF.search(line)) is not None:
            now.died_of = Evidence("line", f"{self._file}:{number}", found["error"][:_SHOWN])


def _is_v0(start: _Start) -> bool:
    return start.told.generation is not None and start.told.generation.value == "v0"


def _downgrade(line: str, at: Evidence) -> Downgrade | None:
    if (found := texts.UNSUPPORTED.search(line)) is not None:
        reason: Literal["speculation", "backend"] = "speculation" if found["spec"] else "backend"
        return Downgrade(at, found["before"], found["after"], found["backend"], found["support"], reason)
    if (found := texts.DYNAMIC_PIECEWISE.search(line)) is not None:
        return Downgrade(at, found["before"], found["after"], reason="table")
    if (found := texts.REQUIRES_PIECEWISE.search(line)) is not None:
        return Downgrade(at, found["before"], found["after"], reason="piecewise")
    if texts.SPLITTING_MODE.search(line):
        return Downgrade(at, "PIECEWISE", "NONE", reason="piecewise")
    if texts.PLATFORM_NONE.search(line):
        return Downgrade(at, "FULL_AND_PIECEWISE", "NONE", reason="platform")
    return None
