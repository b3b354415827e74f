"""What several tests say of engines that are found: a section of the configuration, and slices of one pod."""

from __future__ import annotations

from typing import Any

from tests.discovery.fake_api import FakeApi, endpoint, slice_of
from tests.support.gated_engine import GatedEngine

__all__ = ["kubernetes_section", "pod_of"]


def kubernetes_section(api: FakeApi, **change: Any) -> dict[str, Any]:
    """``discovery`` for one Service, ``spec``, whose engines are plain."""
    services = [{"name": "spec", "service": "spec", "gamma": 0}]
    return {"kind": "kubernetes", "services": services, "kubernetes": {"api_url": api.url}, **change}


def pod_of(engine: GatedEngine, pod: str, service: str = "spec", **conditions: bool) -> dict[str, Any]:
    """A slice with one pod, which is the engine."""
    return slice_of(f"slice-{pod}", endpoint("127.0.0.1", pod, **conditions), port=engine.port, service=service)
