"""What came of a plan, sorted by what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptive_gamma.simulation.control import ORACLE

from .plan import Plan, TraceCase, Unit

__all__ = ["Results", "Row", "mean"]

Row = dict[str, Any]


def mean(rows: Sequence[Row], field: str) -> float:
    """Of a field that no row lacks."""
    return sum(float(row[field]) for row in rows) / len(rows)


class Results:
    """Results of units, as they come.

    Args:
        plan: what is run.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: dict[str, list[Row]] = {}
        """By case, contestants in their order, and of each its seeds."""
        self.held: dict[tuple[int, int], dict[str, float]] = {}
        """By load and seed, tokens a second of each contestant."""
        self.margins: dict[tuple[int, float], dict[str, float]] = {}
        self.falls: dict[bool, list[Row]] = {False: [], True: []}
        """By whether gammas are set, one a seed."""
        self.gamma_edges: list[Row] = []
        """One a seed."""
        self.pool_edges: list[Row] = []
        self.recoveries: list[list[Row]] = []
        """One a seed, of each its classes."""

    def take(self, unit: Unit, result: Any) -> None:
        """Take in the result of a unit."""
        kind = unit[0]
        if kind == "trace":
            rows = self.rows.setdefault(unit[1].key, [])
            rows += result
            rows.sort(key=lambda row: (int(row["place"]), int(row["seed"])))
        elif kind == "held":
            self.held[unit[1], unit[2]] = result
        elif kind == "margin":
            self.margins[unit[1], unit[2]] = result
        elif kind == "fall":
            self.falls[unit[2]].append(result)
        elif kind == "gamma edge":
            self.gamma_edges.append(result)
        elif kind == "pool edge":
            self.pool_edges.append(result)
        else:
            self.recoveries.append(result)

    def names(self, case: TraceCase) -> list[str]:
        """Those that ran, in their order."""
        return list(dict.fromkeys(row["name"] for row in self.rows[case.key]))

    def runs(self, case: TraceCase, name: str) -> list[Row]:
        """Of one contestant, by seed."""
        return [row for row in self.rows[case.key] if row["name"] == name]

    def over(self, case: TraceCase, name: str, other: str, field: str) -> list[float]:
        """By seed that both ran with: a figure of one over the same of the other."""
        others = {row["seed"]: float(row[field]) for row in self.runs(case, other)}
        return [float(row[field]) / others[row["seed"]] for row in self.runs(case, name) if row["seed"] in others]

    def held_shares(self, load: int, name: str) -> list[float]:
        """By seed: tokens a second at a held load over the oracle's."""
        return [rates[name] / rates[ORACLE] for (at, _), rates in sorted(self.held.items()) if at == load]
