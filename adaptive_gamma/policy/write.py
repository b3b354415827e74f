"""A policy as YAML: the same text for the same policy, laid out to be read."""

from __future__ import annotations

from typing import Any

import yaml

from adaptive_gamma.policy.schema import PolicyDocument
from adaptive_gamma.policy.table import Policy

__all__ = ["policy_yaml"]

_TEXT_WIDTH = 110
_TABLE_WIDTH = 4096
_TABLE_NOTE = """
# The table follows from the inputs; do not edit it. Rebuild: adaptive-gamma policy build --inputs FILE -o FILE
#   best_gamma: [first batch, last batch, gamma]
#   speedup:    batch: predicted tokens/s over plain decoding for each of `gammas`; null beyond the capture limit
"""
_SLO_NOTE = """\
#   within_slo: last batch within slo_tpot_seconds, [with the best gamma, plain]
"""
_EVIDENCE_NOTE = """
# What was measured. points: class: arm: [load, batch, context, seconds per token, lowest, highest, runs].
# cells follow from the points and limits: class: context: gamma: which batches are measured.
"""


def policy_yaml(policy: Policy | PolicyDocument) -> str:
    """The file's text. Loading it gives an equal policy; writing that one gives the same text."""
    document = policy.document if isinstance(policy, Policy) else policy
    # Inputs as they were written: a default that nobody set stays a default.
    head = document.model_dump(by_alias=True, exclude={"table", "evidence"}, exclude_none=True, exclude_unset=True)
    shown = {key: value for key, value in head.items() if value not in ("", [])}
    table = document.table.model_dump()
    has_slo = document.inputs.limits.slo_tpot_seconds is not None
    if not has_slo:
        for cells in table["classes"].values():
            for cell in cells.values():
                del cell["within_slo"]
    text = _dumped(shown, _TEXT_WIDTH) + _TABLE_NOTE + (_SLO_NOTE if has_slo else "")
    text += _dumped({"table": table}, _TABLE_WIDTH)
    if document.evidence is not None:
        found = {key: value for key, value in document.evidence.model_dump().items() if value not in ([], {})}
        text += _EVIDENCE_NOTE + _dumped({"evidence": found}, _TABLE_WIDTH)
    return text


class _Dumper(yaml.SafeDumper):
    """Block style down to the leaves; a list of plain values, and a pair of numbers, on one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    """Short text that reads back as the same float, in a form that YAML 1.1 takes for a number too."""
    if value == 0 or 1e-3 <= abs(value) < 1e3:
        return dumper.represent_scalar("tag:yaml.org,2002:float", repr(value))
    precision = next((p for p in range(17) if float(f"{value:.{p}e}") == value), 17)
    digits, _, exponent = f"{value:.{precision}e}".partition("e")
    scientific = f"{digits if '.' in digits else digits + '.0'}e{int(exponent):+03d}"
    if value.is_integer() and len(str(int(value))) <= len(scientific):
        return dumper.represent_scalar("tag:yaml.org,2002:int", str(int(value)))
    return dumper.represent_scalar("tag:yaml.org,2002:float", scientific)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    leaves = not any(isinstance(item, dict | str) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=leaves)


def _mapping(dumper: yaml.SafeDumper, value: dict[Any, Any]) -> yaml.Node:
    numbers = all(isinstance(item, int | float) for item in value.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=numbers)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    folded = len(value) > _TEXT_WIDTH and value == " ".join(value.split())
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=">" if folded else None)


_Dumper.add_representer(float, _number)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(str, _text)


def _dumped(data: dict[str, Any], width: int) -> str:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=True)
    return text
