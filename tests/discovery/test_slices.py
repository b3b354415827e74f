"""What several slices say together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.config import ReplicaSettings, ServiceSettings
from adaptive_gamma.discovery import Endpoint, Found, merged, replica_name
from adaptive_gamma.discovery.slices import SliceStore
from tests.discovery.fake_api import endpoint, slice_of

SPEC = ServiceSettings(name="spec", service="spec", gamma=5, max_in_flight=7)
PLAIN = ServiceSettings(name="plain", service="plain", gamma=0)


def _found(*slices: dict[str, Any], port: int | str | None = None) -> Found:
    store = SliceStore()
    store.replace(slices)
    return store.found(port)


def test_slices_of_a_service_are_merged_and_each_pod_is_there_once() -> None:
    found = _found(
        slice_of("a", endpoint("10.0.0.1", "p1"), endpoint("10.0.0.2", "p2", ready=False)),
        slice_of("b", endpoint("10.0.0.2", "p2"), endpoint("10.0.0.3", "p3", terminating=True)),
        slice_of("c", endpoint("fd00::1", "p1"), family="IPv6"),
    )
    assert found.endpoints == (
        Endpoint("p1", "10.0.0.1", 8000),
        Endpoint("p2", "10.0.0.2", 8000),
        Endpoint("p3", "10.0.0.3", 8000, ready=False),
    )


@pytest.mark.parametrize("first", [True, False])
def test_an_address_is_ready_if_one_slice_says_so(first: bool) -> None:
    found = _found(
        slice_of("a", endpoint("10.0.0.1", "p1", ready=first)), slice_of("b", endpoint("10.0.0.1", ready=not first))
    )
    assert found.endpoints == (Endpoint("p1", "10.0.0.1", 8000, ready=True),)


def test_ready_is_what_is_not_said_to_be_otherwise() -> None:
    slices = slice_of(
        "a",
        endpoint("10.0.0.1", "p1", ready=None),
        endpoint("10.0.0.2", "p2", ready=True, terminating=True),
        endpoint("10.0.0.3", "p3", ready=False),
        {"addresses": ["10.0.0.4"], "conditions": None, "targetRef": None},
    )
    assert [(e.name, e.ready) for e in _found(slices).endpoints] == [
        ("10.0.0.4", True), ("p1", True), ("p2", False), ("p3", False),
    ]  # fmt: skip


def test_an_evicted_pod_has_no_address_and_is_left_out() -> None:
    found = _found(slice_of("a", endpoint(None, "p1", ready=False), endpoint("10.0.0.2", "p2")))
    assert [e.name for e in found.endpoints] == ["p2"]
    assert found.notes == ("a: 1 endpoints without an address",)


def test_of_two_pods_of_one_name_the_ready_one_is_taken() -> None:
    old, new = endpoint("10.0.0.1", "spec-0", terminating=True), endpoint("10.0.0.9", "spec-0")
    assert _found(slice_of("a", old), slice_of("b", new)).endpoints == (Endpoint("spec-0", "10.0.0.9", 8000),)


def test_a_target_that_is_no_pod_gives_no_name() -> None:
    node = {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Node", "name": "worker"}}
    assert _found(slice_of("a", node)).endpoints == (Endpoint("10.0.0.1", "10.0.0.1", 8000),)


@pytest.mark.parametrize(("port", "number"), [(None, 8000), ("http", 8000), (9000, 9000)])
def test_the_port_by_name_by_number_or_the_only_one(port: int | str | None, number: int) -> None:
    assert _found(slice_of("a", endpoint("10.0.0.1", "p1")), port=port).endpoints[0].port == number


def test_a_port_that_is_not_there_is_said_so() -> None:
    found = _found(slice_of("a", endpoint("10.0.0.1", "p1")), port="grpc")
    assert found == Found((), ("a: a port named 'grpc' is not known; it has http",))
    two = slice_of("a", endpoint("10.0.0.1", "p1"))
    two["ports"].append({"name": "metrics", "port": 9090})
    assert _found(two).notes == ("a: which of its ports is meant is not known; it has http, metrics",)
    assert _found({**two, "ports": [{"name": None, "port": 8000}]}).endpoints[0].port == 8000
    assert _found({**two, "ports": None}, port=8000).endpoints[0].port == 8000


@pytest.mark.parametrize(
    "broken",
    [
        {}, {"metadata": None}, {"metadata": {"name": 3}}, {"metadata": {"name": "a"}, "endpoints": 7},
        {"metadata": {"name": "a"}, "endpoints": [None, 3, {"addresses": "x"}, {"addresses": [3]}], "ports": {}},
        {"metadata": {"name": "a"}, "endpoints": [{"addresses": ["10.0.0.1"], "conditions": 1}], "ports": [3]},
    ],
)  # fmt: skip
def test_what_is_malformed_is_left_out(broken: dict[str, Any]) -> None:
    assert _found(broken).endpoints == ()


def test_replicas_take_the_settings_of_their_service() -> None:
    spec = _found(slice_of("a", endpoint("10.0.0.1", "p1"), endpoint("fd00::2")))
    plain = _found(slice_of("b", endpoint("10.0.0.9", "q1", ready=False)))
    static = ReplicaSettings(name="fixed", url="http://10.1.1.1:8000")
    replicas = merged([static], [(SPEC, spec), (PLAIN, plain)])
    assert [(r.name, r.url, r.gamma, r.max_in_flight) for r in replicas.replicas] == [
        ("fixed", "http://10.1.1.1:8000", "auto", None),
        ("spec-fd00--2", "http://[fd00::2]:8000", 5, 7),
        ("spec-p1", "http://10.0.0.1:8000", 5, 7),
        ("plain-q1", "http://10.0.0.9:8000", 0, None),
    ]
    assert (replicas.not_ready, replicas.notes) == (frozenset({"plain-q1"}), dict[str, tuple[str, ...]]())


def test_an_engine_is_there_once() -> None:
    """An address that is configured, or that two services have, counts once: where it is configured, where it is
    ready, where it comes first."""
    both = _found(slice_of("a", endpoint("10.0.0.1", "p1"), endpoint("10.0.0.2", "p2", ready=False)))
    ready = _found(slice_of("b", endpoint("10.0.0.2", "p2"), endpoint("10.1.1.1", "p3")))
    static = ReplicaSettings(name="fixed", url="http://10.1.1.1:8000")
    replicas = merged([static], [(SPEC, both), (PLAIN, ready)])
    assert [replica.name for replica in replicas.replicas] == ["fixed", "spec-p1", "plain-p2"]
    assert replicas.notes == {
        "spec": ("spec-p2 at http://10.0.0.2:8000: another replica has this address",),
        "plain": ("plain-p3 at http://10.1.1.1:8000: another replica has this address",),
    }


def test_no_more_than_max_replicas() -> None:
    found = _found(slice_of("a", *(endpoint(f"10.0.0.{n}", f"p{n}") for n in range(9))))
    replicas = merged([], [(SPEC.model_copy(update={"max_replicas": 2}), found)])
    assert [replica.name for replica in replicas.replicas] == ["spec-p0", "spec-p1"]
    assert replicas.notes["spec"] == ("9 endpoints are more than max_replicas (2); the first 2 by name are taken",)


def test_an_address_that_is_none_is_left_out() -> None:
    replicas = merged([], [(SPEC, Found((Endpoint("x", "not an address", 1),)))])
    assert (replicas.replicas, replicas.notes) == ((), {"spec": ("spec-x: 'not an address' is no address",)})


@settings(deadline=None)
@given(own=st.text(min_size=1, max_size=300), service=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,30}", fullmatch=True))
def test_names_are_bounded_and_of_the_right_characters(own: str, service: str) -> None:
    name = replica_name(service, own)
    assert ReplicaSettings(name=name, url="http://h:1").name == name == replica_name(service, own)
    assert name.startswith(f"{service}-")


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert replica_name("s", "a" * 80 + "1") != replica_name("s", "a" * 80 + "2")


_ENDPOINTS = st.builds(
    endpoint,
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", None]),
    st.sampled_from(["p1", "p2", None]),
    ready=st.sampled_from([True, False, None]),
    terminating=st.sampled_from([True, False, None]),
)
_SLICES = st.builds(
    lambda name, endpoints, family: slice_of(name, *endpoints, family=family),
    st.sampled_from("abc"),
    st.lists(_ENDPOINTS, max_size=4),
    st.sampled_from(["IPv4", "IPv6"]),
)


@settings(deadline=None)
@given(events=st.lists(st.tuples(st.sampled_from(["put", "drop", "list"]), _SLICES), max_size=12))
def test_any_sequence_of_events_ends_where_a_fresh_list_begins(events: list[tuple[str, dict[str, Any]]]) -> None:
    store, cluster = SliceStore(), dict[str, dict[str, Any]]()
    for kind, item in events:
        name = item["metadata"]["name"]
        before = store.found(None)
        if kind == "put":
            cluster[name] = item
            changed = store.put(item)
        elif kind == "drop":
            cluster.pop(name, None)
            changed = store.drop(item)
        else:
            changed = store.replace(list(cluster.values()))
        assert changed or store.found(None) == before, "what changes is told"
    assert store.found(None) == _found(*reversed(list(cluster.values())))
    service = [(SPEC, store.found(None))]
    replicas = merged([], service).replicas
    assert len({r.name for r in replicas}) == len({r.url for r in replicas}) == len(replicas)
