"""The traces that a command is given: opened, and in figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy import CLASS_ALIASES
from adaptive_gamma.routing import CLASSES, canonical_class
from adaptive_gamma.simulation.replay import (
    ClassedTrace,
    ReplayPolicy,
    Trace,
    Workload,
    read_trace,
    synthetic_trace,
)
from adaptive_gamma.simulation.replay.synthetic_trace import PREFIX

__all__ = ["TRACE_HELP", "class_named", "open_trace", "trace_file", "trace_summary", "trace_words", "workload_summary"]

TRACE_HELP = (
    "Trace with the columns TIMESTAMP, ContextTokens, GeneratedTokens, or synthetic:conversation, synthetic:code."
    " Its requests have CLASS (of the policy; code and math mean structured, prose means chat), else the policy's"
    " default class. Several traces are merged, each with its first request at 0."
)


def open_trace(spec: str, policy: ReplayPolicy, seed: int) -> ClassedTrace:
    """``FILE[=CLASS]`` or ``synthetic:SHAPE[=CLASS]``.

    Raises:
        ConfigurationError: the file cannot be read, or the policy knows no such class.
        TraceError: a line that cannot be read.
    """
    path, named = _split(spec)
    request_class = policy.default_class if named is None else class_named(named, policy, f"--trace {spec}")
    if path.startswith(PREFIX):
        trace: Trace = synthetic_trace(path.removeprefix(PREFIX), seed)
    else:
        trace = read_trace(path)
    return ClassedTrace(trace, request_class, named)


def trace_file(spec: str) -> str:
    """The file, or ``synthetic:SHAPE``, of a trace's specification."""
    return _split(spec)[0]


def _split(spec: str) -> tuple[str, str | None]:
    # A file may have "=" in its name; a class is split off only where the whole is not a file.
    if "=" not in spec or Path(spec).exists():
        return spec, None
    path, _, named = spec.rpartition("=")
    return path, named


def class_named(name: str, policy: ReplayPolicy, source: str) -> str:
    """The policy's class of that name. Raises ConfigurationError, with ``source``, where there is none."""
    known = [*policy.classes, *(n for n in (*CLASSES, *CLASS_ALIASES) if n not in policy.classes)]
    if name not in known:
        raise ConfigurationError(source, "", f"no class {name!r}; there are {', '.join(known)}", nearest(name, known))
    return policy.class_for(canonical_class(name) if name not in policy.classes else name)


def trace_summary(classed: ClassedTrace) -> dict[str, Any]:
    """A trace in figures."""
    trace = classed.trace
    return {
        "source": trace.source,
        "class": classed.request_class,
        "class_given": classed.named,
        "requests": len(trace),
        "span_s": trace.span_s,
        "prompt_tokens": sum(trace.prompt_tokens),
        "output_tokens": sum(trace.output_tokens),
    }


def trace_words(summary: Mapping[str, Any]) -> str:
    """A trace's summary in a line: where it is from, and which of the policy's classes its requests are taken as."""
    given, taken = summary["class_given"], summary["class"]
    if given is None:
        how = "the policy's default, as no class was given"
    else:
        how = "as given" if given == taken else f"which is what {given} means in this policy"
    return f"trace {summary['source']}: {summary['requests']:,} requests as class {taken}, {how}"


def workload_summary(workload: Workload, scale: float) -> dict[str, Any]:
    """A workload in figures; ``scale`` is the factor on its arrival rate."""
    span = workload.arrival_s[-1] - workload.arrival_s[0]
    by_class = [workload.class_of.count(i) for i in range(len(workload.classes))]
    return {
        "scale": scale,
        "requests": len(workload),
        "span_s": span,
        "requests_per_second": len(workload) / span if span > 0 else None,
        "prompt_tokens": sum(workload.prompt_tokens),
        "output_tokens": workload.generated_tokens,
        "requests_by_class": dict(zip(workload.classes, by_class, strict=True)),
    }
