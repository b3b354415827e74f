"""Log of a vLLM server with ``--enable-logging-iteration-details``: each engine step with its tokens and its time.

From 0.25 on a line names the engine and the KV cache use; 0.14 to 0.24 have neither. Generation tokens are those
SCHEDULED: sequences x (gamma + 1). What the start of the log says of the configuration (version, model, drafter) is
taken from there; ``speculative_config=None`` there is a plain server, and without that line the server is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.raw import RawRow, Stated
from adaptive_gamma.bench.row import StepSeen, SweepRow
from adaptive_gamma.bench.source import Source

__all__ = ["FORMAT", "LEAST_STEPS", "has_iterations", "iteration_rows"]

FORMAT = "vllm-iterations"
LEAST_STEPS = 3
"""Steps of one kind below which their median is not believed."""
LEAST_KV_USAGE = 0.01
"""The log prints KV use to 0.1 %; below this its rounding is more than a tenth."""

_ITERATION = re.compile(
    r"(?:Engine (?P<engine>\d{1,9}): )?Iteration\(\d+\): (?P<context_requests>\d{1,9}) context requests, "
    r"(?P<context_tokens>\d{1,9}) context tokens, (?P<requests>\d{1,9}) generation requests, "
    r"(?P<tokens>\d{1,9}) generation tokens, iteration elapsed time: (?P<ms>\d{1,12}(?:\.\d{1,9})?) ms"
    r"(?:, GPU KV cache usage: (?P<kv>\d{1,3}(?:\.\d{1,6})?)%)?"
)
_NEARLY = re.compile(r"Iteration\(\d+\)")
_CONFIG = re.compile(r"LLM engine \(v(?P<version>[^)\s]{1,40})\) with config: model='(?P<model>[^']{1,300})'")
_SPECULATIVE = re.compile(r"speculative_config=(?P<config>None|SpeculativeConfig\((?P<inside>[^)]{0,400})\))")
_SERVED = re.compile(r"served_model_name=(?P<name>[^,\s]{1,200}),")
_METHOD = re.compile(r"method='([^']{1,60})'")
_TOKENS = re.compile(r"num_spec_tokens=(\d{1,3})")
_KV_SIZE = re.compile(r"KV cache size: ([\d,]{1,20}) tokens")


@dataclass(slots=True)
class _Server:
    """What the log has said of the server so far."""

    line: int = 0
    version: str | None = None
    model: str | None = None
    drafter: str | None = None
    stated: Stated | None = None
    kv_tokens: int | None = None


@dataclass(slots=True)
class _Steps:
    """Steps of one kind."""

    server: _Server
    first_line: int
    milliseconds: list[float] = field(default_factory=list)
    contexts: list[float] = field(default_factory=list)


def has_iterations(text: str) -> bool:
    """Whether a text holds iteration lines, whole or cut."""
    return _NEARLY.search(text) is not None


def iteration_rows(file: str, text: str, findings: Findings) -> Iterator[RawRow]:
    """One row for each kind of step (sequences, tokens, prompt tokens) seen often enough: its median time."""
    server = _Server()
    kinds: dict[tuple[int, int, int, int], _Steps] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if (found := _ITERATION.search(line)) is not None:
            _add_step(kinds, server, number, found)
        elif _NEARLY.search(line):
            findings.skipped(Source(file, number), "is an iteration line that cannot be read", "Iteration")
        elif (config := _CONFIG.search(line)) is not None:
            server = _started(number, line, config)
        elif (size := _KV_SIZE.search(line)) is not None:
            server.kv_tokens = int(size[1].replace(",", "") or 0) or None
    rare = 0
    for (_, sequences, tokens, prefill), steps in kinds.items():
        if len(steps.milliseconds) < LEAST_STEPS:
            rare += len(steps.milliseconds)
            continue
        yield _row(file, sequences, tokens, prefill, steps)
    if rare:
        findings.note(
            Source(file), f"{rare} steps of kinds seen fewer than {LEAST_STEPS} times are left out", "Iteration"
        )


def _started(number: int, line: str, config: re.Match[str]) -> _Server:
    served = _SERVED.search(line)
    server = _Server(number, config["version"], served["name"] if served else config["model"])
    speculative = _SPECULATIVE.search(line)
    where = f"speculative_config in line {number}"
    if speculative is not None and speculative["config"] == "None":
        server.stated = Stated(0, False, where)
    elif speculative is not None:
        tokens, method = _TOKENS.search(speculative["inside"]), _METHOD.search(speculative["inside"])
        server.drafter = method[1] if method else None
        server.stated = Stated(int(tokens[1]), True, where) if tokens else None
    return server


def _add_step(
    kinds: dict[tuple[int, int, int, int], _Steps], server: _Server, number: int, found: re.Match[str]
) -> None:
    sequences, tokens, prefill = int(found["requests"]), int(found["tokens"]), int(found["context_tokens"])
    milliseconds = float(found["ms"])
    if sequences == 0 or tokens < sequences or milliseconds == 0:
        return
    steps = kinds.setdefault((server.line, sequences, tokens, prefill), _Steps(server, number))
    steps.milliseconds.append(milliseconds)
    if found["kv"] is not None and server.kv_tokens and (usage := float(found["kv"]) / 100) >= LEAST_KV_USAGE:
        steps.contexts.append(usage * server.kv_tokens / (sequences + int(found["context_requests"])))


def _row(file: str, sequences: int, tokens: int, prefill: int, steps: _Steps) -> RawRow:
    server = steps.server
    drafts, rest = divmod(tokens - sequences, sequences)
    stated = server.stated
    if stated is not None and stated.speculative is False and tokens > sequences:
        stated = None
    if tokens > sequences and rest == 0 and (stated is None or stated.gamma != drafts):
        # A schedule drafts fewer than the configured maximum; the tokens scheduled tell what this step drafted.
        stated = Stated(drafts, True, "the tokens scheduled")
    elif tokens == sequences and stated is not None and stated.speculative:
        stated = Stated(0, True, stated.where)
    elif rest:
        stated = None
    row = SweepRow(
        source=Source(file, steps.first_line),
        format=FORMAT,
        engine="vllm",
        engine_version=server.version,
        model=server.model,
        drafter=server.drafter,
        concurrency=float(sequences),
        completed=len(steps.milliseconds),
        step=StepSeen(
            seconds=median(steps.milliseconds) * 1e-3,
            sequences=sequences,
            tokens_per_sequence=tokens / sequences,
            scheduled_tokens=tokens + prefill,
            context_tokens=median(steps.contexts) if steps.contexts else None,
            includes_drafter=tokens > sequences,
            prefill_tokens=prefill,
        ),
        run=f"line {server.line}" if server.line else "",
    )
    return RawRow(row, stated)
