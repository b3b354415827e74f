"""The report of a dry run as a page: what is kept of each run for it, and how it is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adaptive_gamma.cli.policy.picture import policy_picture
from adaptive_gamma.page import report_page
from adaptive_gamma.simulation.replay import PolicyRun, RoutingPolicy, World, policy_figures, replay, routing_policies
from adaptive_gamma.simulation.replay.plots import PERCENTILES, distributions, pool_sizes, timeline_figures
from adaptive_gamma.simulation.replay.timeline import Timeline

if TYPE_CHECKING:
    from rich.progress import Progress

    from adaptive_gamma.policy import Policy

__all__ = ["Plots", "report_of"]

_ADAPTIVE = "adaptive"
_TAIL = 1.15
"""A run goes on after its last request has come, seldom for longer than this."""
_OF_SIZES = ("mean_latency_s", "p99_latency_s", "mean_tpot_ms", "p99_ttft_s", "tokens_per_second", "gpu_busy_share")


class Plots:
    """Keeps of each run what the plots need, which does not grow with the number of requests."""

    def __init__(self, world: World, chosen: Sequence[RoutingPolicy]) -> None:
        self.world = world
        self.runs: dict[str, dict[str, Any]] = {}
        """By routing policy: ``distributions`` and ``timeline``."""
        self._timelines: dict[str, Timeline] = {}
        arrival = world.workload.arrival_s
        self._start, self._span = arrival[0], _TAIL * (arrival[-1] - arrival[0])
        self.chosen = [routing.name for routing in chosen]

    def timeline(self, name: str) -> Timeline:
        """Where the run of this name is to be recorded."""
        found = self._timelines[name] = Timeline(self._start, self._span)
        return found

    def ran(self, run: PolicyRun) -> None:
        """The run is done."""
        workload = self.world.workload
        figures = timeline_figures(run, workload, self._timelines.pop(run.name))
        if run.name != _ADAPTIVE:
            del figures["gamma_by_replica"], figures["decoding_by_replica"]
        self.runs[run.name] = {"distributions": distributions(run, workload), "timeline": figures}


def report_of(document: dict[str, Any], plots: Plots, policy: Policy, what_if: Progress | None) -> str:
    """The page.

    Args:
        document: what ``dry-run --json`` prints.
        plots: what was kept of its runs.
        policy: that was replayed.
        what_if: shows how far the runs with other sizes of the pools have come; None leaves these out.
    """
    sources = ", ".join(str(trace["source"]) for trace in document["traces"])
    return report_page(
        f"{policy.name}: dry run",
        "dry_run_report.js",
        {
            **document,
            "picture": policy_picture(policy, policy.classes),
            "percentiles": list(PERCENTILES),
            "plots": plots.runs,
            "what_if": None if what_if is None else _other_sizes(document, plots.world, policy, what_if),
            "sources": sources,
        },
    )


def _other_sizes(document: dict[str, Any], world: World, policy: Policy, progress: Progress) -> list[dict[str, Any]]:
    """Figures of the decision on as many replicas with other numbers of speculative ones."""
    adaptive = routing_policies(policy.max_gamma)[_ADAPTIVE]
    given = sum(plan.speculative for plan in world.plans)
    rows = []
    fleets = pool_sizes(world.plans, policy)
    task = progress.add_task("other sizes of the pools", total=len(fleets))
    for size, plans in fleets:
        figures = document["policies"].get(_ADAPTIVE) if size == given else None
        if figures is None:
            other = replace(world, plans=plans)
            figures = policy_figures(replay(other, adaptive), other.workload)
        rows.append(
            {
                "speculative": size,
                "plain": len(plans) - size,
                "given": size == given,
                "gammas": sorted({str(plan.as_dict()["gamma"]) for plan in plans if plan.speculative}),
                **{name: figures[name] for name in _OF_SIZES},
            }
        )
        progress.advance(task)
    return rows
