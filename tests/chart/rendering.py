"""The chart rendered by a real helm, read by a loader that refuses a key given twice."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.chart.chart_tools import CHART, run

__all__ = ["HELMS", "Manifest", "UniqueKeys", "helm", "merged", "render"]

Manifest = dict[str, Any]
HELMS = ("helm", "helm3")
NAMESPACE = "inference"


class UniqueKeys(yaml.SafeLoader):
    """YAML in which no key stands twice in a mapping: the API server would keep the last one, silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def helm(
    command: str, values: Mapping[str, Any], *, by: str = "helm", kubernetes: str = "1.37.0", release: str = "ag"
) -> tuple[int, str, str]:
    """Exit code, output and errors of ``helm template``, ``helm lint``, or a dry run of ``helm install``."""
    return _helm(command, json.dumps(values), by, kubernetes, release)


@cache
def _helm(command: str, values: str, by: str, kubernetes: str, release: str) -> tuple[int, str, str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "values.json"
        file.write_text(values)
        named = [] if command == "lint" else [release]
        how = ["--dry-run=client"] if command == "install" else ["--kube-version", kubernetes]
        done = run(by, command, *named, CHART, "--values", file, "--namespace", NAMESPACE, *how)
    return done.returncode, done.stdout, done.stderr


def render(values: Mapping[str, Any], **options: str) -> dict[tuple[str, str], Manifest]:
    """The manifests, by kind and name."""
    code, output, errors = helm("template", values, **options)
    assert code == 0, errors
    found: dict[tuple[str, str], Manifest] = {}
    for manifest in yaml.load_all(output, UniqueKeys):
        if manifest is None:
            continue
        key = (manifest["kind"], f"{manifest['metadata'].get('namespace', NAMESPACE)}/{manifest['metadata']['name']}")
        assert key not in found, f"{key} is there twice"
        found[key] = manifest
    return found


def merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values, as helm lays them."""
    made: dict[str, Any] = {}
    for each in values:
        for key, value in each.items():
            before = made.get(key)
            made[key] = merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return made
