"""From one set of clusters to the next: nothing is named by routes before it is there, or gone before they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.envoy.files.plan import Plan, make_plan
from adaptive_gamma.envoy.files.switch import PlanSwitch, Written
from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import ReplicaState

POLICY = load_policy("demo-llamacpp-cpu")


def plan_of(**models: str | None) -> Plan:
    """A plan for replicas by name, each with its models, as letters; None: not known."""
    states = [
        ReplicaState(name=name, models=None if listed is None else frozenset(listed)) for name, listed in models.items()
    ]
    return make_plan(states, POLICY, default_class="unsure", structure_apart=False)


def names(written: Written) -> set[str]:
    return {cluster.name for cluster in written.clusters}


def holders(written: Written, cluster: str) -> frozenset[str]:
    return next(each.replicas for each in written.clusters if each.name == cluster)


def cluster_of(written: Written, model: str) -> str:
    """Where the routes send a chat request for a model."""
    lookup = written.routes.lookup
    return f"{lookup[f'model:{model}']}-{lookup['class:chat']}"


def test_a_group_keeps_its_name_when_replicas_come_and_go() -> None:
    before, after = plan_of(r0="a", r1="b"), plan_of(r0="a", r1="b", r2="c", r3="a")
    for model in "ab":
        assert before.lookup[f"model:{model}"] == after.lookup[f"model:{model}"]
    assert plan_of(r0="a").lookup["model:a"] == plan_of(r5="a").lookup["model:a"] == "any"


def test_replicas_alone_change_at_once() -> None:
    switch = PlanSwitch()
    switch.write(plan_of(r0="a"), {"anything"}, 0.0)
    wanted = plan_of(r0="a", r1="a")
    assert switch.write(wanted, {"anything"}, 1.0) == Written(wanted.clusters, wanted)


def test_another_model_comes_and_goes() -> None:
    switch, one, two = PlanSwitch(), plan_of(r0="a"), plan_of(r0="a", r1="b")
    known = names(switch.write(one, set(), 0.0))
    waiting = switch.write(two, known, 1.0)
    assert waiting.routes is one
    assert holders(waiting, cluster_of(waiting, "a")) == {"r0"}, "not yet r1, which does not have it"
    assert names(waiting) == known | {cluster.name for cluster in two.clusters}
    assert switch.write(two, known, 1.1).routes is one

    switched = switch.write(two, names(waiting), 1.2)
    assert switched.routes is two
    assert holders(switched, "any-chat") == {"r0"}, "requests may still go by the routes before"
    settled = switch.write(two, names(waiting), 2.3)
    assert settled == Written(two.clusters, two)
    assert holders(settled, "any-chat") == {"r0", "r1"}

    back = switch.write(one, names(settled), 3.0)
    assert back.routes is one, "all of its clusters are there"
    assert holders(back, "any-chat") == {"r0"}
    assert holders(back, cluster_of(settled, "b")) == frozenset(), "nobody has it any more"
    assert names(switch.write(one, names(settled), 4.1)) == known


@pytest.mark.parametrize("known", [None])
def test_an_envoy_that_does_not_say_is_not_waited_for(known: None) -> None:
    switch, two = PlanSwitch(), plan_of(r0="a", r1="b")
    switch.write(plan_of(r0="a"), known, 0.0)
    assert switch.write(two, known, 0.1) == Written(two.clusters, two)


MODELS = {"r0": "a", "r1": "ab", "r2": "b", "r3": "bc", "r4": None}
FLEETS = st.sets(st.sampled_from(sorted(MODELS)), min_size=1)


@given(steps=st.lists(st.tuples(FLEETS, st.booleans(), st.floats(0.01, 2.0)), min_size=1, max_size=12))
def test_requests_of_now_and_of_before_find_replicas_that_have_their_model(
    steps: list[tuple[set[str], bool, float]],
) -> None:
    """``steps``: the fleet, whether Envoy has read the files since, and the seconds that pass."""
    switch, now = PlanSwitch(), 0.0
    known: set[str] = set()
    written: Written | None = None
    for fleet, read, passed in steps:
        now += passed
        if written is not None and read:
            known = names(written)
        before = written
        written = switch.write(plan_of(**{name: MODELS[name] for name in sorted(fleet)}), known, now)
        if not known:
            known = names(written)  # the first files are there before Envoy is
        assert {f"any-{name}" for name in POLICY.classes} <= names(written)
        assert names(written) >= {cluster.name for cluster in written.routes.clusters}
        assert {name for cluster in written.clusters for name in cluster.replicas} <= fleet
        for routes in [written.routes, *([] if before is None else [before.routes])]:
            for key, group in routes.lookup.items():
                if not key.startswith("model:"):
                    continue
                held = next(each.replicas for each in routes.clusters if each.name == f"{group}-chat")
                if held & fleet:
                    model = key.removeprefix("model:")
                    for name in holders(written, f"{group}-chat"):
                        assert model in (MODELS[name] or model), (model, name)
