"""Which clusters there are: one for each set of replicas that models leave, class, and demand on a replica. Pure.

A request's cluster is named by the class filter out of these parts, so that whatever differs between requests is in the
name, and what differs from one moment to the next is in the cluster's endpoints.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from adaptive_gamma.envoy.files.names import ANY_MODEL, DEMAND_SAMPLING, DEMAND_STRUCTURE, SEARCH_CLUSTER, UNREAD_MODELS
from adaptive_gamma.policy import CLASS_ALIASES
from adaptive_gamma.routing import CLASSES, STRUCTURED_OUTPUT, PolicyPrices, ReplicaState, RequestNeeds, canonical_class
from adaptive_gamma.routing.prompt_members import SAMPLING_MEMBERS

__all__ = ["ClusterPlan", "Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster and whose requests go to it."""

    name: str
    needs: RequestNeeds
    replicas: frozenset[str]
    """Those that have the models of its requests."""
    searched: bool = False
    """Its replicas are asked one after the other until one knows the object."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All clusters, and what the class filter needs to name them."""

    clusters: tuple[ClusterPlan, ...]
    default: str
    """The cluster of requests that are not looked at."""
    lookup: dict[str, str]
    """``class:NAME`` is the part of a cluster's name for a class, ``model:NAME`` for a model, ``model`` for requests
    that name none, ``other`` for models that no replica lists; without it they are refused."""


def make_plan(
    states: Sequence[ReplicaState], policy: PolicyPrices, *, default_class: str, structure_apart: bool
) -> Plan:
    """The plan for replicas whose models are as the states have them.

    Args:
        states: the fleet; only names and models count.
        policy: gives the classes.
        default_class: class of requests that are not looked at.
        structure_apart: whether structured output is kept off replicas that speculate.
    """
    everyone = frozenset(state.name for state in states)
    listed = {model for state in states for model in state.models or ()}
    holders = {
        model: frozenset(s.name for s in states if s.models is None or model in s.models) for model in sorted(listed)
    }
    # A group is called after its models, so that its name keeps its meaning when replicas come and go.
    groups: dict[frozenset[str], str] = {everyone: ANY_MODEL}
    for held in holders.values():
        if held not in groups:
            groups[held] = _called_after(model for model, by in holders.items() if by == held)
    unread = frozenset(state.name for state in states if state.models is None)
    lookup = {"model": ANY_MODEL} | {f"model:{model}": groups[held] for model, held in holders.items()}
    if unread:
        lookup["other"] = groups.setdefault(unread, UNREAD_MODELS)
    parts = _parts(policy.classes)
    for name in (*CLASSES, *policy.classes, *CLASS_ALIASES):
        lookup[f"class:{name}"] = parts[policy.class_for(canonical_class(name))]
    demands = list(_demands(structure_apart))
    clusters = [
        ClusterPlan(f"{group}-{parts[name]}{suffix}", RequestNeeds(name, parameters=parameters), held)
        for held, group in groups.items()
        for name in policy.classes
        for suffix, parameters in demands
    ]
    default = policy.class_for(canonical_class(default_class))
    clusters.append(ClusterPlan(SEARCH_CLUSTER, RequestNeeds(default), everyone, searched=True))
    return Plan(tuple(clusters), f"{ANY_MODEL}-{parts[default]}", lookup)


def _demands(structure_apart: bool) -> Iterator[tuple[str, frozenset[str]]]:
    """What the class filter adds to a cluster's name for what a request asks of its replica."""
    structure = frozenset({STRUCTURED_OUTPUT})
    yield "", frozenset()
    yield DEMAND_SAMPLING, SAMPLING_MEMBERS
    if structure_apart:
        yield DEMAND_STRUCTURE, structure
        yield DEMAND_SAMPLING + DEMAND_STRUCTURE, SAMPLING_MEMBERS | structure


def _called_after(models: Iterable[str]) -> str:
    return "m" + hashlib.sha256("\n".join(models).encode()).hexdigest()[:8]


def _parts(classes: Sequence[str]) -> dict[str, str]:
    """A class's part of a cluster's name: in characters that statistics can bear, no two alike."""
    parts: dict[str, str] = {}
    for name in classes:
        part = plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        number = 2
        while part in parts.values():
            part, number = f"{plain}_{number}", number + 1
        parts[name] = part
    return parts
