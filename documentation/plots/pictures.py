"""What each picture shows. All of it is computed: nothing here is a measurement of ours unless its title says so."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.policy.physics import speculation_cost
from adaptive_gamma.roofline import AcceptanceCurve, compute_bound_batch, largest_captured_gamma
from documentation.plots.style import COLOURS, GREY, figure, log_batches, name_lines, svg

__all__ = ["FOLDER", "PICTURES", "draw"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "plots"
POLICY = "h100-llama3-8b-eagle3"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXT = 2048


@cache
def _policy() -> Policy:
    return load_policy(POLICY)


def speed_up_by_load() -> Figure:
    """Speed-up against load of fixed draft lengths and of the best one, by class."""
    policy = _policy()
    batches = [batch for batch in range(1, 513) if batch < 40 or batch % 4 == 0]
    made, panels = figure(panels=2, height=3.4)
    for axes, name in zip(panels, ("structured", "chat"), strict=True):
        for colour, gamma in zip(COLOURS, (1, 3, 5, 8), strict=False):
            shown = [b for b in batches if b * (gamma + 1) <= 512]
            speed = [policy.speedup(name, b, gamma, CONTEXT) for b in shown]
            axes.plot(shown, speed, color=colour, label=f"gamma {gamma}")
            if shown[-1] < 512:
                axes.plot(shown[-1], speed[-1], marker="x", color=colour, markersize=6)
        best = [_best(policy, name, b) for b in batches]
        axes.plot(batches, best, color=GREY, linestyle=(0, (1, 1.2)), label="best or plain")
        axes.axhline(1.0, color=GREY, linewidth=1.0)
        log_batches(axes, (1, 4, 16, 64, 256))
        axes.set_title("code and maths" if name == "structured" else "chat", color=GREY)
        axes.set_ylim(0.6, 3.0)
    panels[0].set_ylabel("predicted speed-up over plain")
    name_lines(panels[1])
    return made


def _best(policy: Policy, name: str, batch: int) -> float:
    gamma = policy.best_gamma(name, batch, CONTEXT)
    return policy.speedup(name, batch, gamma, CONTEXT) if gamma else 1.0


def best_gamma() -> Figure:
    """The best gamma by load and class."""
    policy = _policy()
    batches = list(range(1, 513))
    made, (axes,) = figure()
    for colour, name in zip(COLOURS, ("structured", "chat"), strict=False):
        axes.step(batches, [policy.best_gamma(name, b, CONTEXT) for b in batches], where="post", color=colour,
                  label="code and maths" if name == "structured" else name)  # fmt: skip
    log_batches(axes, BATCHES)
    axes.set_ylabel("best gamma")
    axes.set_ylim(-0.2, 6)
    name_lines(axes)
    return made


RATES = (0.94, 0.87, 0.80, 0.73, 0.66)
"""Rates by position as an engine would report them: the line of the article that the project started from."""


def acceptance_readings() -> Figure:
    """The same five numbers under the two readings."""
    right, wrong = AcceptanceCurve.from_unconditional(RATES), AcceptanceCurve.from_conditional(RATES)
    positions = np.arange(1, 6)
    made, (rates, tokens) = figure(panels=2)
    rates.plot(positions, right.conditionals(5), color=COLOURS[0], marker="o", label="read as over all drafts")
    rates.plot(positions, wrong.conditionals(5), color=COLOURS[1], marker="o", label="read as conditional")
    rates.set_ylim(0.5, 1.0)
    rates.set_xticks(positions)
    rates.set_xlabel("draft position")
    rates.set_ylabel("conditional acceptance")
    name_lines(rates, loc="lower left")
    gammas = np.arange(0, 6)
    for colour, curve in ((COLOURS[0], right), (COLOURS[1], wrong)):
        tokens.plot(gammas, [curve.expected_tokens(int(g)) for g in gammas], color=colour, marker="o")
    tokens.set_xlabel("gamma")
    tokens.set_ylabel("expected tokens per step")
    return made


def roofline() -> Figure:
    """Memory and compute time of a step by load, and where each gamma turns compute-bound."""
    terms = speculation_cost(_policy().inputs).step.terms(CONTEXT)
    t_w, k, c = terms.weight_seconds, terms.kv_seconds_per_sequence, terms.token_seconds
    batches = np.geomspace(1, 512, 100)
    made, (axes,) = figure()
    axes.plot(batches, 1e3 * (t_w + k * batches), color=GREY, label="reading weights and KV cache")
    for colour, gamma in zip(COLOURS, (0, 3, 7), strict=False):
        axes.plot(batches, 1e3 * c * (gamma + 1) * batches, color=colour, label=f"computing, gamma {gamma}")
        edge = compute_bound_batch(t_w, c, k, gamma)
        if edge is not None and edge <= batches[-1]:
            axes.plot(edge, 1e3 * (t_w + k * edge), marker="o", color=colour)
    log_batches(axes, BATCHES)
    axes.set_yscale("log")
    axes.set_ylim(0.3, 100)
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    axes.set_ylabel("ms per step")
    name_lines(axes, loc="upper left")
    return made


def zero_gamma() -> Figure:
    """What gamma 0 on a speculative engine costs against a plain one."""
    made, (axes,) = figure()
    policy = _policy()
    batches = np.unique(np.geomspace(1, 256, 60).round()).astype(int)
    tax = [
        policy.step_seconds(int(b), 0, CONTEXT) / policy.step_seconds(int(b), 0, CONTEXT, speculative=False) - 1
        for b in batches
    ]
    axes.plot(batches, [100 * each for each in tax], color=COLOURS[0], label="as policies price it")
    label = "measured by others (vLLM issue #49548)"
    axes.plot([2, 189], [6.56, 21.58], linestyle="none", marker="o", color=COLOURS[1], label=label)
    log_batches(axes, (1, 2, 4, 8, 16, 32, 64, 128, 256))
    axes.set_ylabel("extra time per token, %")
    axes.set_ylim(0, 25)
    name_lines(axes, loc="upper left")
    return made


def capture_limit() -> Figure:
    """The longest gamma that still runs captured, and what a step beyond the limit takes."""
    made, (gammas, seconds) = figure(panels=2)
    batches = list(range(1, 513))
    for colour, limit in zip(COLOURS, (512, 1024), strict=False):
        longest = [min(largest_captured_gamma(b, limit) or 0, 16) for b in batches]
        gammas.step(batches, longest, where="post", color=colour, label=f"{limit:,} tokens")
    log_batches(gammas, (1, 4, 16, 64, 256))
    gammas.set_ylabel("longest captured gamma")
    gammas.set_ylim(0, 16.5)
    name_lines(gammas, loc="upper right")
    measured = ROOT / "benchmarks" / "accuracy" / "measured" / "cost_curve_deepseek_v4_flash_b300.csv"
    rows = list(csv.DictReader(line for line in measured.read_text().splitlines() if not line.startswith("#")))
    points = [(float(r["tokens_or_requests"]), 1e3 * float(r["seconds"])) for r in rows if r["what"] == "verify"]
    seconds.plot(*zip(*points, strict=True), color=COLOURS[0], marker=".", markersize=4, linewidth=1.0)
    seconds.axvline(1024, color=GREY, linewidth=1.0, linestyle=":")
    log_batches(seconds, (1, 8, 64, 512, 4096), "tokens in a step")
    seconds.set_yscale("log")
    seconds.set_yticks([5, 20, 100], ["5", "20", "100"])
    seconds.set_ylabel("ms per step, measured by others")
    return made


PICTURES: dict[str, tuple[Callable[[], Figure], str]] = {
    "speed-up-by-load.svg": (speed_up_by_load, f"Predicted speed-up over plain decoding by load, policy {POLICY}"),
    "best-gamma.svg": (best_gamma, f"Best gamma by load and class, policy {POLICY}"),
    "acceptance-readings.svg": (acceptance_readings, "One set of acceptance rates under two readings"),
    "roofline.svg": (roofline, f"Time of a step by the tokens in it, policy {POLICY}"),
    "zero-gamma.svg": (zero_gamma, "What gamma 0 on a speculative engine costs against a plain engine"),
    "capture-limit.svg": (capture_limit, "Longest captured gamma by load, and step time beyond the limit"),
}


def draw(name: str) -> bytes:
    """A picture as SVG."""
    make, title = PICTURES[name]
    return svg(make(), title)
