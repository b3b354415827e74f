"""The fleet a replay runs on: a short YAML file, or two speculative replicas and a plain one.

replicas:
  - {name: spec, gamma: 5, count: 2}                          # spec-0 and spec-1, gamma 5 at every load
  - {name: dynamic, gamma: [[1, 8, 7], [9, 64, 3]]}           # the engine's own schedule: [first, last, gamma]
  - {name: plain, gamma: 0, max_num_seqs: 128}                # no drafter
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.routing import GammaSchedule, GammaSetting
from adaptive_gamma.simulation.replay.pricing import ReplayPolicy
from adaptive_gamma.yaml_text import parse_yaml, read_text

__all__ = [
    "DEFAULT_MAX_NUM_SEQS",
    "LARGEST_GAMMA",
    "ReplicaPlan",
    "default_fleet",
    "largest_gamma",
    "parse_fleet",
    "read_fleet",
]

DEFAULT_MAX_NUM_SEQS = 256
LARGEST_GAMMA = 64
"""A fleet may draft more than its policy would choose, up to this."""
_KEYS = ("name", "gamma", "count", "max_num_seqs")
_MOST_REPLICAS = 1_000
_MOST_SEQS = 65_536


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One replica as it would be started."""

    name: str
    speculative: bool
    """Whether it runs a drafter; one that does not is plain, and its gamma is 0."""
    gamma: GammaSetting
    max_num_seqs: int = DEFAULT_MAX_NUM_SEQS

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        gamma = [list(r) for r in self.gamma.ranges] if isinstance(self.gamma, GammaSchedule) else self.gamma
        return {
            "name": self.name,
            "pool": "speculative" if self.speculative else "plain",
            "gamma": gamma,
            "max_num_seqs": self.max_num_seqs,
        }


def largest_gamma(plan: ReplicaPlan) -> int:
    """The longest draft of a replica, in tokens."""
    return plan.gamma.largest if isinstance(plan.gamma, GammaSchedule) else plan.gamma


def default_fleet(policy: ReplayPolicy) -> list[ReplicaPlan]:
    """Two speculative replicas and a plain one.

    The speculative ones use the largest gamma that is the policy's best for some class at some batch (at least 1):
    what a model card would advise, set at start-up and kept.
    """
    batches = range(1, min(policy.max_batch, DEFAULT_MAX_NUM_SEQS) + 1)
    gamma = max(policy.best_gamma(name, batch) for name in policy.classes for batch in batches)
    speculative = [ReplicaPlan(f"spec-{i}", True, max(gamma, 1)) for i in range(2)]
    return [*speculative, ReplicaPlan("plain-0", False, 0)]


def read_fleet(path: str | Path) -> list[ReplicaPlan]:
    """Read a fleet file.

    Raises:
        ConfigurationError: the file cannot be read, or a key or value in it cannot be used.
    """
    source = str(path)
    try:
        text = read_text(Path(path), "utf-8-sig")
    except OSError as error:
        raise ConfigurationError(source, "", f"the fleet file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(source, "", f"the fleet file is not UTF-8: {error.reason}") from error
    return parse_fleet(parse_yaml(text, source), source)


def parse_fleet(data: object, source: str) -> list[ReplicaPlan]:
    """A fleet from parsed YAML; ``source`` names it in errors.

    Raises:
        ConfigurationError: a key or value that cannot be used.
    """
    top = _mapping(data, source, "", ("replicas",))
    if "replicas" not in top:
        raise ConfigurationError(source, "replicas", "missing; a fleet file holds a list of replicas")
    entries = top["replicas"]
    if not isinstance(entries, list) or not entries:
        raise ConfigurationError(source, "replicas", f"expected a list of replicas, found {_show(entries)}")
    plans: list[ReplicaPlan] = []
    for i, entry in enumerate(entries):
        plans += _replica(entry, source, f"replicas.{i}")
        if len(plans) > _MOST_REPLICAS:
            raise ConfigurationError(source, "replicas", f"more than {_MOST_REPLICAS} replicas")
    names: set[str] = set()
    for plan in plans:
        if plan.name in names:
            raise ConfigurationError(source, "replicas", f"two replicas have the name {plan.name!r}")
        names.add(plan.name)
    return plans


def _replica(entry: object, source: str, key: str) -> list[ReplicaPlan]:
    values = _mapping(entry, source, key, _KEYS)
    for required in ("name", "gamma"):
        if required not in values:
            raise ConfigurationError(source, f"{key}.{required}", "missing")
    name = values["name"]
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(source, f"{key}.name", f"expected text, found {_show(name)}")
    count = _whole(values.get("count", 1), source, f"{key}.count", 1, _MOST_REPLICAS)
    seqs = _whole(values.get("max_num_seqs", DEFAULT_MAX_NUM_SEQS), source, f"{key}.max_num_seqs", 1, _MOST_SEQS)
    gamma = _gamma(values["gamma"], source, f"{key}.gamma")
    names = [name] if "count" not in values else [f"{name}-{i}" for i in range(count)]
    return [ReplicaPlan(n, gamma != 0, gamma, seqs) for n in names]


def _gamma(value: object, source: str, key: str) -> GammaSetting:
    if not isinstance(value, list):
        return _whole(
            value, source, key, 0, LARGEST_GAMMA, "0 for plain, a gamma, or a schedule [[first, last, gamma], ...]"
        )
    ranges: list[tuple[int, int, int]] = []
    for i, item in enumerate(value):
        if not isinstance(item, list) or len(item) != 3:
            raise ConfigurationError(source, f"{key}.{i}", f"expected [first, last, gamma], found {_show(item)}")
        first = _whole(item[0], source, f"{key}.{i}.0", 1, _MOST_SEQS)
        last = _whole(item[1], source, f"{key}.{i}.1", 1, _MOST_SEQS)
        ranges.append((first, last, _whole(item[2], source, f"{key}.{i}.2", 0, LARGEST_GAMMA)))
    try:
        return GammaSchedule(ranges)
    except ValueError as error:
        raise ConfigurationError(source, key, str(error)) from error


def _mapping(value: object, source: str, key: str, allowed: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigurationError(source, key, f"expected keys ({', '.join(allowed)}), found {_show(value)}")
    for name in value:
        if name not in allowed:
            where = f"{key}.{name}" if key else str(name)
            raise ConfigurationError(source, where, "no such key", nearest(str(name), allowed))
    return value


def _whole(value: object, source: str, key: str, low: int, high: int, expected: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(source, key, f"expected {expected or 'a whole number'}, found {_show(value)}")
    if not low <= value <= high:
        raise ConfigurationError(source, key, f"{value} is not within {low}..{high}")
    return value


def _show(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
