"""A policy as YAML: the same text for the same policy, laid out to be read."""

from __future__ import annotations

from typing import Any

import yaml

from adaptive_gamma.policy.schema import PolicyDocument
from adaptive_gamma.policy.table import Policy

__all__ = ["policy_yaml"]

_WIDTH = 120
_TABLE_NOTE = """
# The table follows from the inputs; do not edit it. Rebuild: adaptive-gamma policy build --inputs FILE -o FILE
#   best_gamma: [first batch, last batch, gamma]
#   speedup:    batch: predicted tokens/s over plain decoding for each of `gammas`; null beyond the capture limit
"""


def policy_yaml(policy: Policy | PolicyDocument) -> str:
    """The file's text. Loading it gives an equal policy; writing that one gives the same text."""
    document = policy.document if isinstance(policy, Policy) else policy
    data = document.model_dump(by_alias=True, exclude_none=True, exclude_defaults=False)
    head = {key: value for key, value in data.items() if key != "table" and value not in ("", [])}
    table = document.table.model_dump()
    return _dumped(head) + _TABLE_NOTE + _dumped({"table": table})


class _Dumper(yaml.SafeDumper):
    """Block style down to the leaves; a list of plain values, and a pair of numbers, on one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    """Shortest text that reads back as the same float, in a form YAML 1.1 takes for a number too."""
    text = repr(value)
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        digits, _, exponent = f"{value:.17e}".partition("e")
        for precision in range(18):
            if float(f"{value:.{precision}e}") == value:
                digits, _, exponent = f"{value:.{precision}e}".partition("e")
                break
        text = f"{digits if '.' in digits else digits + '.0'}e{int(exponent):+03d}"
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    leaves = not any(isinstance(item, dict | str) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=leaves)


def _mapping(dumper: yaml.SafeDumper, value: dict[Any, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value)


_Dumper.add_representer(float, _number)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(str, _text)


def _dumped(data: dict[str, Any]) -> str:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return text
