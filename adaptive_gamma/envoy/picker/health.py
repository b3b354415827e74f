"""gRPC's health service, under the names that gateways and probes ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from adaptive_gamma.envoy.picker.picker import Picker
from adaptive_gamma.envoy.picker.wire import EXT_PROC_SERVICE, HealthCheckRequest, HealthCheckResponse

__all__ = ["HealthService"]

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
_LOOK_S = 0.2


class HealthService:
    """Says which of its names serve.

    ``liveness``: always. ``readiness``: as ``/readyz``. The others, by which a gateway decides whether to ask here:
    once the replicas have been looked at, until the end begins. Were they not to serve while every replica is down, a
    gateway would do without the picker and ask the same replicas blindly.
    """

    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    def status(self, service: str) -> int:
        """The ``ServingStatus`` of a name."""
        if service == "liveness":
            return SERVING
        if service == "readiness":
            return SERVING if self._picker.not_ready_because is None else NOT_SERVING
        if service in ("", "inference-extension", EXT_PROC_SERVICE):
            return SERVING if self._picker.picks_are_answered else NOT_SERVING
        return SERVICE_UNKNOWN

    async def check(self, request: bytes, context: Any) -> bytes:
        """``Check``."""
        status = self.status(HealthCheckRequest.FromString(request).service)
        if status == SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return _said(status)

    async def watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """``Watch``: the status now and at each change."""
        service = HealthCheckRequest.FromString(request).service
        last = None
        while True:
            status = self.status(service)
            if status != last:
                last = status
                yield _said(status)
            await asyncio.sleep(_LOOK_S)


def _said(status: int) -> bytes:
    made: bytes = HealthCheckResponse(status=status).SerializeToString()
    return made
