"""What came of a plan, sorted by what it is about."""

from __future__ import annotations

from typing import Any

from adaptive_gamma.simulation.control import CONTROL, ORACLE

from .cases import Plan, TraceCase, Unit

__all__ = ["Results", "Row"]

Row = dict[str, Any]


class Results:
    """Results of units, as they come.

    Args:
        plan: what is run.
        left_out: its cases that cannot be run here.
    """

    def __init__(self, plan: Plan, left_out: tuple[TraceCase, ...]) -> None:
        self.plan = plan
        self.left_out = left_out
        self.rows: dict[str, list[Row]] = {}
        """By case, contestants in their order."""
        self.held: dict[int, dict[str, float]] = {}
        """By load, tokens a second of each contestant."""
        self.margins: dict[tuple[int, float], dict[str, float]] = {}
        self.falls: dict[bool, list[Row]] = {False: [], True: []}
        """By whether gammas are set."""
        self.gamma_edge: Row = {}
        self.pool_edge: Row = {}

    @property
    def cases(self) -> list[TraceCase]:
        """Those that were run."""
        return [case for case in self.plan.traces if case.key in self.rows]

    def take(self, unit: Unit, result: Any) -> None:
        """Take in the result of a unit."""
        kind = unit[0]
        if kind == "trace":
            rows = self.rows.setdefault(unit[1].key, [])
            rows += result
            rows.sort(key=lambda row: int(row["place"]))
        elif kind == "held":
            self.held[unit[1]] = result
        elif kind == "margin":
            self.margins[unit[1], unit[2]] = result
        elif kind == "fall":
            self.falls[unit[2]].append(result)
        elif kind == "gamma edge":
            self.gamma_edge = result
        else:
            self.pool_edge = result

    def row(self, case: TraceCase, name: str) -> Row:
        return next(row for row in self.rows[case.key] if row["name"] == name)

    def loop(self, case: TraceCase) -> Row:
        """The closed loop's row."""
        return self.row(case, CONTROL)

    def oracle(self, case: TraceCase) -> Row:
        return self.row(case, ORACLE)

    def fixed(self, case: TraceCase) -> list[Row]:
        return [row for row in self.rows[case.key] if row["name"].startswith("fixed-")]
