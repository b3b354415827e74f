"""``adaptive-gamma demo``: real code and prose prompts, two real engines, and what the proxy does with them."""

from __future__ import annotations

import click

from adaptive_gamma.cli.numbers import FiniteFloat

__all__ = ["command"]


@click.command("demo")
@click.option("--seconds", type=FiniteFloat(1, 600), default=8.0, show_default=True, help="Length of each step.")
@click.option(
    "--concurrency", "steps", default="1,2,4,8", show_default=True, help="Requests kept open in each step, in turn."
)
@click.option("--simulated", is_flag=True, help="Use simulated engines even where llama.cpp can run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Order of the prompts.")
def command(seconds: float, steps: str, simulated: bool, seed: int) -> None:
    """Route real code and prose prompts between a plain and a speculative engine at rising concurrency.

    The engines are two llama.cpp servers with a tiny random model and synthetic acceptance rates where the wheel is
    installed (extra "demo") and the CPU has AVX2; simulated vLLM servers otherwise, and the output says so. Nothing
    leaves 127.0.0.1. Ends with a summary; exit code 0 when no request failed.
    """
    try:
        levels = [int(part) for part in steps.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(1 <= level <= 256 for level in levels):
        raise click.BadParameter("expected numbers from 1 to 256 separated by commas", param_hint="--concurrency")
    from adaptive_gamma.cli.demo.run import run_demo

    raise SystemExit(run_demo(levels, seconds, simulated=simulated, seed=seed))
