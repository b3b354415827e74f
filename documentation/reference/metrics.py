"""The catalogue of metrics, from the pages that the processes themselves render."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptive_gamma.fleet.exposition import Family
from adaptive_gamma.proxy.metrics import OUTCOMES, Histogram
from adaptive_gamma.vllm_plugin.metrics import FAMILIES
from documentation.reference.bodies import POLICY, published_families
from documentation.reference.markdown import page, table

__all__ = ["FamilyInfo", "families", "metrics_page"]

REPLICAS, CLASSES, GAMMA, SERVICES, RANGES = 16, 3, 8, 2, 6
"""The fleet that the numbers of series are given for."""
_BUCKETS = sum(1 for suffix, _, _ in Histogram().rows() if suffix == "_bucket")


@dataclass(frozen=True)
class _Label:
    """How many values a label takes in that fleet, and which these are."""

    most: int
    values: str


_REPLICA = _Label(REPLICAS, "names of replicas; a replica that is gone takes its series along")
_LABELS: Mapping[str, _Label] = {
    "replica": _REPLICA,
    "class": _Label(CLASSES, "classes of the policy"),
    "pool": _Label(2, "`speculative`, `plain`"),
    "outcome": _Label(len(OUTCOMES), ", ".join(f"`{each}`" for each in OUTCOMES)),
    "position": _Label(GAMMA, "draft positions from 0, as engines count them; at most the largest gamma"),
    "batch": _Label(RANGES, "first batch of each range of the schedule in force"),
    "service": _Label(SERVICES, "names under `discovery.services`"),
    "state": _Label(2, "`ready`, `not_ready`"),
    "elsewhere": _Label(2, "`yes`, `no`"),
    "choice": _Label(2, "`sent`, `decided`"),
    "cluster": _Label(2 * CLASSES + 1, "clusters of the Envoy: classes times sets of replicas that models leave"),
    "result": _Label(3, "`exported`, `failed`, `dropped`"),
    "file": _Label(5, "kinds of files written"),
    "engine": _Label(1, "vLLM's own: the data parallel rank"),
    "model_name": _Label(1, "vLLM's own"),
    "le": _Label(_BUCKETS, "upper edges in seconds, from 0.005 to 600, and `+Inf`"),
}
_OF_A_FAMILY: Mapping[tuple[str, str], _Label] = {
    ("adaptive_gamma_requests", "replica"): _Label(REPLICAS + 1, "replicas, and `none`: ended before one was chosen"),
    ("adaptive_gamma_requests", "class"): _Label(CLASSES + 1, "classes of the policy, and `none`"),
    ("adaptive_gamma_picks", "replica"): _Label(REPLICAS + 1, "replicas, and `none`: answered in an engine's place"),
    ("adaptive_gamma_acceptance", "class"): _Label(CLASSES + 1, "classes of the policy, and `all`"),
    ("adaptive_gamma_decisions", "reason"): _Label(
        9, "the nine words of [why a request went where it did](../decision.md#reasons)"
    ),
    ("adaptive_gamma_retries", "reason"): _Label(
        4, "`connect_error`, `rejected_429`, `rejected_503`, `stale_connection`"
    ),
    ("adaptive_gamma_scrape_failures", "reason"): _Label(
        10,
        "`timeout`, `connect`, `protocol`, `status_NNN`, `empty`, `encoding`, `not_metrics`, `no_series`, `too_large`, "
        "`truncated`, `internal`: those that happened",
    ),
    ("adaptive_gamma_gamma_changes", "reason"): _Label(
        5, "the reasons of [a change of gamma](../gamma-control.md#setting-gamma) that changed it"
    ),
    ("adaptive_gamma_gamma_change_failures", "reason"): _Label(
        6, "short words of [what went wrong](../gamma-control.md#a-schedule-while-vllm-runs): those that happened"
    ),
    ("adaptive_gamma_discovery_failures", "reason"): _Label(8, "short words of what went wrong: those that happened"),
}


@dataclass(frozen=True)
class FamilyInfo:
    """One family of a page."""

    name: str
    """With ``_total`` where it is a counter."""
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def base(self) -> str:
        return self.name.removesuffix("_total")

    @property
    def series(self) -> int:
        """At most, in the fleet the page tells of."""
        values = math.prod(label_of(self.base, name).most for name in self.labels)
        return values * (_BUCKETS + 2) if self.kind == "histogram" else values


def label_of(family: str, name: str) -> _Label:
    """What is known of a label of a family. Raises LookupError for one that nobody has described."""
    label = _OF_A_FAMILY.get((family, name)) or _LABELS.get(name)
    if label is None:
        raise LookupError(f"{family}: say in {__file__} which values the label {name!r} takes, and how many")
    return label


def families() -> dict[str, list[FamilyInfo]]:
    """What each process publishes, by its command; ``vllm`` is the plugin inside of a vLLM."""
    found = {command: [_info(each) for each in published] for command, published in published_families().items()}
    return {**found, "vllm": _plugin()}


def _info(family: Family) -> FamilyInfo:
    return _named(family.name, family.kind, family.labels, family.help)


def _named(name: str, kind: str, labels: tuple[str, ...], words: str) -> FamilyInfo:
    return FamilyInfo(f"{name}_total" if kind == "counter" else name, kind, labels, words)


def _plugin() -> list[FamilyInfo]:
    vllm = ("model_name", "engine")
    return [_named(each.name, each.kind, (*vllm, *each.labels), each.help) for each in FAMILIES]


_WHERE = {
    "serve": "The page `/metrics` of the admin port of `adaptive-gamma serve`.",
    "envoy": "The page of `adaptive-gamma envoy`. Requests are counted in Envoy's own statistics.",
    "picker": "The page of `adaptive-gamma picker`.",
    "vllm": "Added to the page of a vLLM that has [our plugin](../vllm.md#a-gamma-that-can-be-set).",
}


def metrics_page() -> str:
    """The page."""
    found = families()
    shared = {each.name for each in found["serve"]} & {each.name for each in found["envoy"]}
    shared &= {each.name for each in found["picker"]}
    parts = [
        "Every series begins with `adaptive_gamma_`. Those of engines are never published again. What is not known has "
        "no sample: a missing one is not 0.",
        f"`series` is how many there are at most in a fleet of {REPLICAS} replicas whose policy has {CLASSES} "
        f"classes and "
        f"gamma up to {GAMMA} (as `{POLICY}` has), a schedule of {RANGES} ranges on each replica, "
        f"and {SERVICES} places of discovery. None of it grows with traffic, clients or models.",
        "## Shared by serve, envoy and picker",
        "What is known of the replicas.",
        _table([each for each in found["serve"] if each.name in shared]),
    ]
    for command, where in _WHERE.items():
        own = [each for each in found[command] if each.name not in shared]
        total = sum(each.series for each in found[command])
        parts += [f"## {'vLLM plugin' if command == 'vllm' else command}", where, _table(own)]
        parts.append(
            f"At most {total:,} series in such a fleet{', the shared ones included' if command != 'vllm' else ''}."
        )
    parts += ["## Labels", _label_table(found)]
    return page("Metrics", *parts)


def _table(rows: Sequence[FamilyInfo]) -> str:
    return table(
        ("metric", "type", "labels", "series", "meaning"),
        [
            (f"`{each.name}`", each.kind, ", ".join(f"`{name}`" for name in each.labels), f"{each.series:,}", each.help)
            for each in rows
        ],
    )


def _label_table(found: Mapping[str, list[FamilyInfo]]) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for published in found.values():
        for family in published:
            for name in (*family.labels, *(("le",) if family.kind == "histogram" else ())):
                label = label_of(family.base, name)
                where = f"`{family.name}`" if (family.base, name) in _OF_A_FAMILY else ""
                users = rows.setdefault((name, label.values), [])
                if where and where not in users:
                    users.append(where)
    return table(
        ("label", "only in", "values"),
        [(f"`{name}`", ", ".join(users), values) for (name, values), users in sorted(rows.items(), key=_first_general)],
    )


def _first_general(row: tuple[tuple[str, str], list[str]]) -> tuple[str, list[str]]:
    (name, _), users = row
    return name, users
