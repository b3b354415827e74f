"""What is written, without an Envoy."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.addresses import Address, AddressBook
from adaptive_gamma.envoy.files import Place, make_plan, read_clusters
from adaptive_gamma.envoy.files.arrivals import Arrivals
from adaptive_gamma.envoy.files.endpoints import endpoints_file
from adaptive_gamma.envoy.files.listener import internal_headers
from adaptive_gamma.envoy.files.own_load import OwnLoad
from adaptive_gamma.envoy.files.writer import FileWriter
from adaptive_gamma.errors import ConfigurationError, ScrapeError
from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import ReplicaState, RequestNeeds
from adaptive_gamma.routing.shares import Share, Shares
from tests.envoy.filter_only import POLICY, rendered, settings_with, states_of
from tests.support.gated_engine import DEADLINE_S

NAMES = st.text("abclsx-", max_size=10)


@given(header=NAMES, other=NAMES)
def test_all_of_our_own_headers_are_dropped_but_one(header: str, other: str) -> None:
    trusted = f"x-adaptive-gamma-{header}"
    dropped = re.compile(internal_headers(trusted))
    assert not dropped.fullmatch(trusted)
    if other != header:
        assert dropped.fullmatch(f"x-adaptive-gamma-{other}")
    assert not dropped.fullmatch(f"x-{other}")
    for elsewhere in (None, "x-class"):
        assert re.fullmatch(internal_headers(elsewhere), trusted)


def plan_of(states: list[ReplicaState], structure_apart: bool = False):  # type: ignore[no-untyped-def]
    return make_plan(states, load_policy(POLICY), default_class="unsure", structure_apart=structure_apart)


def test_one_cluster_for_each_class_and_demand() -> None:
    states = states_of(settings_with())
    plan = plan_of(states, structure_apart=True)
    names = {cluster.name for cluster in plan.clusters}
    classes = {plan.lookup[f"class:{name}"] for name in ("structured", "chat", "unsure")}
    demands = ("", "-sampling", "-structure", "-sampling-structure")
    assert names == {f"any-{name}{demand}" for name in classes for demand in demands} | {"any-search"}
    assert plan.lookup["class:code"] == plan.lookup["class:structured"]
    assert plan.lookup["model:m"] == "any"
    assert "other" not in plan.lookup  # an unknown model is refused


def test_models_part_the_replicas() -> None:
    a, b, c = (ReplicaState(name, speculative=False, gamma=0) for name in "abc")
    a.models, b.models, c.models = frozenset({"x", "both"}), frozenset({"y", "both"}), None
    plan = plan_of([a, b, c])
    groups = {cluster.name.split("-")[0]: cluster.replicas for cluster in plan.clusters}
    assert {model: groups[plan.lookup[f"model:{model}"]] for model in ("x", "y", "both")} == {
        "x": {"a", "c"},
        "y": {"b", "c"},
        "both": {"a", "b", "c"},
    }
    assert groups[plan.lookup["other"]] == {"c"}


def test_class_names_of_any_kind_make_distinct_clusters() -> None:
    class Classes:
        classes = ("a.b", "a_b", "a b")

        def class_for(self, name: str) -> str:
            return name if name in self.classes else "a.b"

    plan = make_plan([ReplicaState("r")], Classes(), default_class="chat", structure_apart=False)  # type: ignore[arg-type]
    assert len({cluster.name for cluster in plan.clusters}) == len(plan.clusters) == 3 * 2 + 1


def test_endpoints_by_tier() -> None:
    plan = plan_of(states_of(settings_with()))
    states = {
        "one": ReplicaState("one", speculative=True, gamma=3),
        "two": ReplicaState("two", speculative=False, gamma=0, healthy=False),
        "three": ReplicaState("three", draining=True),
        "nowhere": ReplicaState("nowhere"),
    }
    shares = Shares((Share("one", 5, "class", 2), Share("nowhere", 1, "class", 0)), ("two",), ("three",))
    addresses = {name: Address("10.0.0.1", 80, "host:80", name == "two") for name in ("one", "two", "three")}
    cluster = next(each for each in plan.clusters if each.name == "any-chat")
    (found,) = endpoints_file(cluster, shares, states, addresses, {})["resources"]
    tiers = [(tier["priority"], *tier["lb_endpoints"]) for tier in found["endpoints"]]
    assert [(priority, one["load_balancing_weight"], one["health_status"]) for priority, one in tiers] == [
        (0, 5, "HEALTHY"),
        (1, 1, "UNHEALTHY"),
        (2, 1, "DRAINING"),
    ]
    shown = [one["metadata"]["filter_metadata"] for _, one in tiers]
    assert shown[0] == {
        "adaptive_gamma": {"replica": "one", "pool": "speculative", "class": "chat", "reason": "class", "gamma": "2"}
    }
    assert shown[1]["envoy.transport_socket_match"] == {"tls": True}
    assert "gamma" not in shown[2]["adaptive_gamma"]  # not known
    assert "policy" not in found
    before = {("any-chat", "two"): "low_load", ("any-structured", "three"): "class"}
    (again,) = endpoints_file(cluster, shares, states, addresses, before)["resources"]
    told = [tier["lb_endpoints"][0]["metadata"]["filter_metadata"]["adaptive_gamma"] for tier in again["endpoints"]]
    assert [each["reason"] for each in told] == ["class", "low_load", "fallback"]
    full = endpoints_file(cluster, replace(shares, at_capacity=True), states, addresses, {})
    assert full["resources"][0]["policy"]["drop_overloads"][0]["category"] == "at_capacity"


def test_files_are_written_only_when_they_changed(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path / "deep" / "out", private=False)
    assert writer.write("endpoints/a.json", {"x": 1})
    file = tmp_path / "deep" / "out" / "endpoints" / "a.json"
    inode = file.stat().st_ino
    assert not writer.write("endpoints/a.json", {"x": 1})
    assert file.stat().st_ino == inode
    assert writer.write("endpoints/a.json", {"x": 2})
    assert json.loads(file.read_text()) == {"x": 2}
    assert [each.name for each in file.parent.iterdir()] == ["a.json"]
    writer.forget({"endpoints/a.json", "not-mine.json"})
    assert not file.exists()


def test_a_key_makes_the_files_private(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, private=True)
    writer.write("a.json", {})
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be made"):
        FileWriter(tmp_path / "file" / "out", private=False)
    writer = FileWriter(tmp_path / "out", private=False)
    (tmp_path / "out" / "a.json").mkdir()
    (tmp_path / "out" / "a.json" / "full").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        writer.write("a.json", {})


def test_the_key_is_in_the_routes_and_nowhere_else() -> None:
    settings = settings_with(engine_api_key="very-secret")
    files = rendered(settings, Place(Path("/out"), settings.listen, "127.0.0.1:9901"))
    assert [name for name, content in files.items() if "very-secret" in json.dumps(content)] == ["routes.json"]


CLUSTERS = {
    "cluster_statuses": [
        {
            "name": "any-chat",
            "host_statuses": [
                {
                    "address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}},
                    "stats": [{"name": "rq_active", "value": "3", "type": "GAUGE"}, {"name": "rq_total", "value": "9"}],
                },
                {
                    "address": {"socket_address": {"address": "10.0.0.2", "port_value": 80}},
                    "stats": [{"name": "rq_active"}, {"name": "rq_total"}],
                },
            ],
        },
        {"name": "empty"},
    ]
}


def test_envoys_page_of_clusters() -> None:
    load = read_clusters(json.dumps(CLUSTERS).encode())
    assert load.active["any-chat"] == Counter({("10.0.0.1", 80): 3, ("10.0.0.2", 80): 0})
    assert load.total["any-chat"] == 9
    assert not read_clusters(b"{}").active


@pytest.mark.parametrize("page", [b"", b"[]", b"not json", b'{"cluster_statuses": [{}]}', b'{"cluster_statuses": [3]}'])
def test_what_is_no_page_of_clusters(page: bytes) -> None:
    with pytest.raises(ScrapeError):
        read_clusters(page)


def test_arrivals_are_a_smoothed_rate() -> None:
    arrivals = Arrivals(smoothing_s=1.0)
    arrivals.count(Counter({"a": 100}), 0.0)
    assert arrivals.rate("a") == 0.0
    for step in range(1, 101):
        arrivals.count(Counter({"a": 100 + step, "b": 0}), step * 0.1)
    assert arrivals.rate("a") == pytest.approx(10.0, rel=0.01)
    arrivals.count(Counter({"a": 3}), 10.1)  # Envoy began anew
    assert 0 < arrivals.rate("a") < 10.0
    for step in range(200):
        arrivals.count(Counter({"a": 3}), 10.2 + step * 0.1)
    assert arrivals.rate("a") < 1e-6
    assert arrivals.rate("b") == arrivals.rate("never") == 0.0


def test_what_may_have_been_ours_when_an_engine_counted() -> None:
    own = OwnLoad(kept_s=1.0)
    assert own.most_at(0.0) is None
    own.look(0.0, active=2, begun=10)
    own.look(0.1, active=0, begun=11)
    # Two were open when the scrape began, one more began until the last look.
    assert own.most_at(0.05) == 3
    assert own.most_at(0.1) == 0
    own.look(0.2, active=1, begun=12)
    assert own.most_at(0.15) == 1
    own.look(5.0, active=4, begun=20)
    assert own.most_at(5.5) == 4
    own.look(5.1, active=0, begun=3)  # Envoy began anew
    assert own.most_at(5.0) == 0


async def test_addresses_are_looked_up_and_kept() -> None:
    now = [0.0]
    book = AddressBook(5.0, lambda: now[0])
    urls = ["http://localhost:81", "https://127.0.0.1", "http://[::1]:82", "http://no-such-host.invalid:1"]
    found = await book.look_up(urls)
    assert found["http://localhost:81"][1:] == (81, "localhost:81", False)
    assert found["http://localhost:81"].ip in ("127.0.0.1", "::1")
    assert found["https://127.0.0.1"] == Address("127.0.0.1", 443, "127.0.0.1", True)
    assert found["http://[::1]:82"].ip == "::1"
    assert "http://no-such-host.invalid:1" not in found
    assert set(await book.look_up(urls[:1])) == {urls[0]}


async def test_names_that_are_looked_up_in_vain_hold_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that is down answers late: names are asked for together, and one that had an address not all the time.

    Weights wait for this."""
    now, asked, answer = [0.0], Counter[str](), asyncio.Event()
    up = True

    async def getaddrinfo(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
        asked[host] += 1
        if asked.total() % 3 == 0:
            answer.set()
        await answer.wait()
        if not up:
            raise OSError("no answer")
        return [(2, 1, 6, "", (f"10.0.0.{host[-1]}", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    book = AddressBook(5.0, lambda: now[0])
    urls = [f"http://e{n}:80" for n in range(3)]
    async with asyncio.timeout(DEADLINE_S):
        found = await book.look_up(urls)
    assert [found[url].ip for url in urls] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    answer.clear()
    up, now[0] = False, 6.0
    assert await book.look_up(urls) == found
    assert await book.look_up(urls) == found
    assert set(asked.values()) == {2}
    up, now[0] = True, 12.0
    assert await book.look_up(urls) == found
    assert set(asked.values()) == {3}


def test_settings_that_envoy_is_told() -> None:
    settings = Settings.model_validate(
        {
            "policy": POLICY,
            "replicas": [{"name": "a", "url": "http://127.0.0.1:1"}],
            "limits": {"connect_timeout_s": 1.5, "first_byte_timeout_s": 7, "idle_timeout_s": 9, "body_bytes": 1234},
            "retry": {"attempts": 3},
        }
    )
    files = rendered(settings, Place(Path("/out"), settings.listen, "127.0.0.1:9901"))
    assert {cluster["connect_timeout"] for cluster in files["clusters.json"]["resources"]} == {"1.5s"}
    (host,) = files["routes.json"]["resources"][0]["virtual_hosts"]
    assert host["request_body_buffer_limit"] == 1234
    routes = [route["route"] for route in host["routes"] if "route" in route]
    assert {route["timeout"] for route in routes} == {"0s"}
    assert {route["idle_timeout"] for route in routes} == {"9s"}
    decided = [route["retry_policy"] for route in routes if "cluster_header" in route]
    assert {policy["per_try_timeout"] for policy in decided} == {"7s"}
    assert {policy["num_retries"] for policy in decided} == {3}
    needs = {cluster.needs for cluster in plan_of([ReplicaState("a")]).clusters}
    assert RequestNeeds("chat", parameters=frozenset({"min_p", "logit_bias"})) in needs
