"""``adaptive-gamma roofline``: what a policy's physics says for each batch and gamma."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np

from adaptive_gamma.cli.policy import whole_numbers
from adaptive_gamma.policy import Policy, build_policy, load_policy
from adaptive_gamma.roofline import compute_bound_batch

__all__ = ["command", "roofline_report"]

_LARGEST_DEFAULT_BATCH = 512
_LARGEST_BATCH = 65_536


@click.command("roofline", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("policy_file", metavar="POLICY")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--batch", help="Batches, such as 1,2,4; the default is powers of two up to the policy's largest or 512.")
@click.option("--max-gamma", type=click.IntRange(1, 64), help="Largest gamma; the default is the policy's.")
@click.option("--context", type=click.IntRange(1), help="Context in tokens; the default is the policy's middle bucket.")
def command(policy_file: str, as_json: bool, batch: str | None, max_gamma: int | None, context: int | None) -> None:
    """Print the roofline's numbers of POLICY, a file or a shipped name such as article-h100-27b.

    JSON keys: weight_read_ms (t_w), kv_read_ms_per_sequence (k) and compute_ms_per_token (c), for a linear step time
    its t0, KV cost at the context, and cost per token; compute_bound_batch {gamma: B*, null where the step never turns
    compute-bound}; classes.NAME with expected_tokens {gamma: E}, best_gamma {batch: gamma}, speedup {batch: {gamma:
    over plain, null beyond the capture limit}} and break_even_batch {gamma: first batch below 1.0, or null}.
    """
    policy = load_policy(policy_file)
    batches = (
        whole_numbers(batch, "--batch", _LARGEST_BATCH) if batch is not None else _default_batches(policy.max_batch)
    )
    report = roofline_report(policy, batches, max_gamma, context)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print_tables(report)


def roofline_report(
    policy: Policy, batches: list[int], max_gamma: int | None = None, context: int | None = None
) -> dict[str, Any]:
    """The JSON object of the command.

    Break-even batches are searched up to the policy's largest batch (or the largest asked for).
    """
    policy = _narrowed(policy, max(batches), max_gamma, context)
    place = policy.context_buckets[len(policy.context_buckets) // 2]
    terms = policy.cost.step.terms(place)
    gammas = range(1, policy.max_gamma + 1)
    every = np.arange(1, policy.max_batch + 1)
    classes: dict[str, Any] = {}
    for name in policy.classes:
        speedup = policy.cost.speedup(every, np.asarray(gammas)[:, None], place, policy.curves[name])
        allowed = policy.cost.allowed(every, np.asarray(gammas)[:, None])
        classes[name] = {
            "expected_tokens": {str(g): policy.expected_tokens(name, g) for g in gammas},
            "best_gamma": {str(b): policy.best_gamma(name, b, place) for b in batches},
            "speedup": {
                str(b): {str(g): float(speedup[g - 1, b - 1]) if allowed[g - 1, b - 1] else None for g in gammas}
                for b in batches
            },
            "break_even_batch": {str(g): _first_below_one(speedup[g - 1]) for g in gammas},
        }
    return {
        "policy": policy.name,
        "context_tokens": place,
        "weight_read_ms": terms.weight_seconds * 1e3,
        "kv_read_ms_per_sequence": terms.kv_seconds_per_sequence * 1e3,
        "compute_ms_per_token": terms.token_seconds * 1e3,
        "compute_bound_batch": {
            str(g): compute_bound_batch(terms.weight_seconds, terms.token_seconds, terms.kv_seconds_per_sequence, g)
            for g in gammas
        },
        "classes": classes,
    }


def _narrowed(policy: Policy, largest_batch: int, max_gamma: int | None, context: int | None) -> Policy:
    """The policy at one context and up to the batch and gamma asked for."""
    limits = policy.inputs.limits
    wanted_gamma = limits.max_gamma if max_gamma is None else max_gamma
    changed = limits.model_copy(
        update={
            "max_batch": max(limits.max_batch, largest_batch),
            "max_gamma": wanted_gamma,
            "min_gamma": min(limits.min_gamma, wanted_gamma),
            "context_buckets": list(limits.context_buckets) if context is None else [context],
        }
    )
    if changed == limits:
        return policy
    return build_policy(policy.inputs.model_copy(update={"limits": changed}), name=policy.name, source=policy.name)


def _default_batches(max_batch: int) -> list[int]:
    return [1 << i for i in range(10) if 1 << i <= min(max_batch, _LARGEST_DEFAULT_BATCH)]


def _first_below_one(speedup: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> int | None:
    below = np.flatnonzero(speedup < 1.0)
    return int(below[0]) + 1 if below.size else None


def _print_tables(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{report['policy']}, context {report['context_tokens']}: weights (t_w) {report['weight_read_ms']:.3f} ms per "
        f"step, KV (k) {report['kv_read_ms_per_sequence']:.5f} ms per sequence, compute (c) "
        f"{report['compute_ms_per_token']:.5f} ms per token",
        highlight=False,
        soft_wrap=True,
    )
    bound = report["compute_bound_batch"]
    console.print(
        "compute-bound from batch: " + ", ".join(f"gamma {g}: {_number(b, '.1f')}" for g, b in bound.items()),
        highlight=False,
        soft_wrap=True,
    )
    for name, part in report["classes"].items():
        table = Table(title=f"{name}: speed-up over plain by gamma", title_justify="left")
        table.add_column("batch", justify="right")
        for gamma in bound:
            table.add_column(gamma, justify="right")
        table.add_column("best", justify="right")
        for batch, row in part["speedup"].items():
            table.add_row(batch, *(_number(v, ".3f") for v in row.values()), str(part["best_gamma"][batch]))
        table.add_section()
        table.add_row("E", *(_number(v, ".3f") for v in part["expected_tokens"].values()), "")
        table.add_row("< 1 at", *(_number(v, "d") for v in part["break_even_batch"].values()), "")
        console.print(table)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
