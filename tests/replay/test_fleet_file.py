from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.replay import ReplicaPlan, default_fleet, parse_fleet, read_fleet
from tests.replay.standin import HandPolicy


def test_counts_schedules_and_plain_replicas(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "replicas:\n"
        "  - {name: spec, gamma: 5, count: 2}\n"
        "  - {name: dynamic, gamma: [[1, 8, 7], [9, 64, 0]], max_num_seqs: 64}\n"
        "  - {name: plain, gamma: 0}\n"
    )
    assert read_fleet(path) == [
        ReplicaPlan("spec-0", True, 5),
        ReplicaPlan("spec-1", True, 5),
        ReplicaPlan("dynamic", True, GammaSchedule([(1, 8, 7), (9, 64, 0)]), 64),
        ReplicaPlan("plain", False, 0),
    ]


def test_without_a_file_two_speculative_replicas_and_a_plain_one() -> None:
    policy = HandPolicy()
    fleet = default_fleet(policy)
    assert [(p.speculative, p.max_num_seqs) for p in fleet] == [(True, 256), (True, 256), (False, 256)]
    assert fleet[0].gamma == max(policy.best_gamma(c, b) for c in policy.classes for b in range(1, 257))


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("", "", "found nothing"),
        ("[]", "", "expected keys"),
        ("replica: []", "replica", "did you mean 'replicas'"),
        ("{}", "replicas", "missing"),
        ("replicas: []", "replicas", "expected a list"),
        ("replicas: {name: a}", "replicas", "expected a list"),
        ("replicas: [x]", "replicas.0", "found 'x'"),
        ("replicas: [{gamma: 1}]", "replicas.0.name", "missing"),
        ("replicas: [{name: a}]", "replicas.0.gamma", "missing"),
        ("replicas: [{name: 3, gamma: 1}]", "replicas.0.name", "found 3"),
        ("replicas: [{name: a, gama: 1}]", "replicas.0.gama", "did you mean 'gamma'"),
        ("replicas: [{name: a, gamma: true}]", "replicas.0.gamma", "found True"),
        ("replicas: [{name: a, gamma: 2.5}]", "replicas.0.gamma", "found 2.5"),
        ("replicas: [{name: a, gamma: auto}]", "replicas.0.gamma", "found 'auto'"),
        ("replicas: [{name: a, gamma: -1}]", "replicas.0.gamma", "not within 0..64"),
        ("replicas: [{name: a, gamma: 65}]", "replicas.0.gamma", "not within 0..64"),
        ("replicas: [{name: a, gamma: []}]", "replicas.0.gamma", "start at 1"),
        ("replicas: [{name: a, gamma: [[2, 3, 1]]}]", "replicas.0.gamma", "start at 1"),
        ("replicas: [{name: a, gamma: [[1, 8, 7], [8, 9, 3]]}]", "replicas.0.gamma", "overlap at 8"),
        ("replicas: [{name: a, gamma: [[1, 8]]}]", "replicas.0.gamma.0", "[first, last, gamma]"),
        ("replicas: [{name: a, gamma: [[1, 8, 99]]}]", "replicas.0.gamma.0.2", "not within 0..64"),
        ("replicas: [{name: a, gamma: 1, count: 0}]", "replicas.0.count", "not within"),
        ("replicas: [{name: a, gamma: 1, count: 1001}]", "replicas.0.count", "not within"),
        ("replicas: [{name: a, gamma: 1, max_num_seqs: many}]", "replicas.0.max_num_seqs", "found 'many'"),
        ("replicas: [{name: a, gamma: 1}, {name: a, gamma: 0}]", "replicas", "two replicas have the name 'a'"),
    ],
)
def test_what_is_wrong_is_named(text: str, key: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_fleet(yaml.safe_load(text), "fleet.yaml")
    assert (caught.value.source, caught.value.key) == ("fleet.yaml", key)
    assert says in str(caught.value)


@pytest.mark.parametrize(("body", "says"), [(b"replicas: [", "line 1, column 12"), (b"\xff\xfe\x00", "not UTF-8")])
def test_a_file_that_is_not_yaml(tmp_path: Path, body: bytes, says: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(body)
    with pytest.raises(ConfigurationError, match=says):
        read_fleet(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_fleet(tmp_path / "none.yaml")
