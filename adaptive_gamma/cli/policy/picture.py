"""A policy as data for plots: what ``policy show --html`` and the report of a dry run draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adaptive_gamma._version import __version__
from adaptive_gamma.cli.policy.plot import crossings, measured_speedups
from adaptive_gamma.fleet.live import sampled_batches
from adaptive_gamma.policy import Policy, provenance_at

__all__ = ["policy_document", "policy_picture"]

_MOST_NUMBERS = 120_000
"""Of speed-ups in a report, about a megabyte: a policy of many classes and contexts is drawn through fewer batches."""
_FEWEST_BATCHES = 9
_MOST_BATCHES = 49
_POSITIONS = 8


def policy_document(policy: Policy, classes: Sequence[str]) -> dict[str, Any]:
    """All that the page of a policy shows."""
    document, inputs = policy.document, policy.inputs
    limits, drafter = inputs.limits, inputs.drafter
    slo = limits.slo_tpot_seconds
    facts: list[tuple[str, str | None]] = [
        ("Model", None if inputs.model is None else inputs.model.name),
        ("Hardware", None if inputs.hardware is None else inputs.hardware.name),
        ("Drafter", drafter.kind if drafter.family is None else f"{drafter.family} ({drafter.kind})"),
        ("Step time", inputs.step_time.kind.replace("_", " ")),
        ("Classes", f"{', '.join(policy.classes)}; others are taken as {policy.default_class}"),
        ("Gammas", f"{policy.min_gamma} to {policy.max_gamma}"),
        ("Batches", f"1 to {policy.max_batch:,}"),
        ("Context lengths", ", ".join(f"{context:,}" for context in policy.context_buckets)),
        (
            "Captured tokens of a step",
            None if limits.capture_limit_tokens is None else f"{limits.capture_limit_tokens:,}",
        ),
        ("Time per token to hold", None if slo is None else f"{slo * 1000:g} ms"),
    ]
    evidence = policy.evidence
    return {
        "version": __version__,
        "policy": {**policy_picture(policy, classes), "description": document.description},
        "facts": [[name, text] for name, text in facts if text is not None],
        "measured": list(document.measured),
        "assumed": list(document.assumed),
        "sources": list(document.sources),
        "points": None
        if evidence is None
        else sum(len(points) for arms in evidence.points.values() for points in arms.values()),
    }


def policy_picture(policy: Policy, classes: Sequence[str]) -> dict[str, Any]:
    """Map, speed-ups, crossings and acceptance of some classes of a policy."""
    gammas = [gamma for gamma in policy.table.gammas if gamma > 0]
    contexts = policy.context_buckets
    lines = max(len(classes) * len(contexts) * len(gammas), 1)
    batches = sampled_batches(policy.max_batch, min(max(_MOST_NUMBERS // lines, _FEWEST_BATCHES), _MOST_BATCHES))
    positions = max(policy.max_gamma, _POSITIONS)
    return {
        "name": policy.name,
        "classes": list(classes),
        "contexts": list(contexts),
        "context": contexts[policy.context_bucket(None)],
        "max_batch": policy.max_batch,
        "slo_tpot_s": policy.inputs.limits.slo_tpot_seconds,
        "gammas": gammas,
        "batches": batches,
        "cells": {name: [_cell(policy, name, context, gammas, batches) for context in contexts] for name in classes},
        "positions": positions,
        "acceptance": {
            name: {
                "conditional": [round(float(policy.curves[name].conditional_at(i + 1)), 4) for i in range(positions)],
                "tokens": [round(policy.expected_tokens(name, gamma), 4) for gamma in range(positions + 1)],
            }
            for name in classes
        },
    }


def _cell(policy: Policy, name: str, context: int, gammas: Sequence[int], batches: Sequence[int]) -> dict[str, Any]:
    cell, evidence = policy.table.classes[name][context], policy.evidence
    speedup = [[_speedup(policy, name, batch, gamma, context) for batch in batches] for gamma in gammas]
    found: dict[str, Any] = {
        "best_gamma": cell.best_gamma,
        "plain_wins_from": cell.plain_wins_from,
        "within_slo": cell.within_slo,
        "speedup": speedup,
        "crossings": [
            {"batch": each.batch, "gamma": each.gamma, "speedup": round(each.speedup, 4)}
            for each in crossings(policy, name, context)
            if each.gamma != 0  # no gamma is allowed from there on: plain is told by itself
        ],
    }
    if evidence is not None:
        found["extrapolated"] = [
            [provenance_at(evidence, name, context, gamma, batch) == "extrapolated" for batch in batches]
            for gamma in gammas
        ]
        found["measured"] = [
            {
                "gamma": each.gamma,
                "batch": each.batch,
                "speedup": round(each.speedup, 4),
                "low": round(each.low, 4),
                "high": round(each.high, 4),
            }
            for each in measured_speedups(evidence, name, context)
        ]
    return found


def _speedup(policy: Policy, name: str, batch: int, gamma: int, context: int) -> float | None:
    """None beyond the capture limit, as in the table."""
    largest = policy.largest_gamma(batch)
    if largest is not None and gamma > largest:
        return None
    value = policy.speedup(name, batch, gamma, context)
    return round(value, 4) if math.isfinite(value) else None
