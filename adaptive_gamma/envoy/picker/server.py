"""The picker's port: ext_proc and health on one gRPC server in the process's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from adaptive_gamma.admin import bind
from adaptive_gamma.envoy.picker.health import HealthService
from adaptive_gamma.envoy.picker.picker import Picker
from adaptive_gamma.envoy.picker.stream import ResponseSide, is_envoy, until_picked, whole
from adaptive_gamma.envoy.picker.wire import EXT_PROC_SERVICE, HEALTH_SERVICE
from adaptive_gamma.errors import AddressError, ConfigurationError

__all__ = ["PickerServer"]

_log = logging.getLogger("adaptive_gamma.picker")

_BESIDE_THE_BODY = 1024 * 1024
_LARGEST = 2**31 - 1
_LOOK_UP_S = 1.0
_PROCESS = f"/{EXT_PROC_SERVICE}/Process"


class PickerServer:
    """Answers gateways, from ``start`` to ``stop``.

    Args:
        picker: what is asked.
        address: ``host:port``; port 0 takes a free one.
        credentials: for TLS; None speaks in the clear.
        response_side: whether streams are closed behind the pick.
    """

    def __init__(
        self, picker: Picker, address: str, *, credentials: Any = None, response_side: ResponseSide = "auto"
    ) -> None:
        self.picker = picker
        self.port = 0
        self._address = address
        self._credentials = credentials
        self._side: ResponseSide = response_side
        self._tasks: list[asyncio.Task[None]] = []
        self._server: Any = None

    async def start(self) -> None:
        """Look at the replicas, and listen. Raises ConfigurationError when the address cannot be bound."""
        largest = min(_LARGEST, self.picker.settings.limits.body_bytes + _BESIDE_THE_BODY)
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),  # a second picker on the port is a mistake, not a share
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_concurrent_streams", 100_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
            ]
        )
        health = HealthService(self.picker)
        server.add_generic_rpc_handlers(
            (
                _ExtProc(self.picker, self._side),
                grpc.method_handlers_generic_handler(
                    HEALTH_SERVICE,
                    {
                        "Check": grpc.unary_unary_rpc_method_handler(health.check),
                        "Watch": grpc.unary_stream_rpc_method_handler(health.watch),
                    },
                ),
            )
        )
        try:
            if self._credentials is None:
                self.port = server.add_insecure_port(self._address)
            else:
                self.port = server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise self._refusal(str(error)) from error
        if not self.port:
            raise self._refusal("the address cannot be had")
        await self.picker.look_up()
        await self.picker.fleet.start()
        await server.start()
        self._server = server
        self._tasks = [asyncio.get_running_loop().create_task(self._look_up(), name="look up")]

    def _refusal(self, said: str) -> ConfigurationError:
        """Why there is no port, which grpc does not tell: what a socket of our own meets there."""
        try:
            bind(self._address, "").close()
        except AddressError as error:
            return ConfigurationError("--listen", "", error.problem)
        return ConfigurationError("--listen", "", f"cannot listen on {self._address}: {said}")

    async def stop(self, *, linger_s: float, grace_s: float) -> int:
        """Stop being asked, answer for ``linger_s`` those who have not noticed, finish what is open; how many
        requests were cut after ``grace_s`` more."""
        self.picker.draining = True
        if linger_s > 0:
            await asyncio.sleep(linger_s)
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        stopping = loop.create_task(self._server.stop(grace_s))
        await asyncio.wait({stopping}, timeout=max(0.0, end - loop.time()))
        cut = self.picker.open_streams
        if cut:
            _log.warning("%d requests had no pick yet and are cut", cut)
        await stopping
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.picker.fleet.stop()
        return cut

    async def _look_up(self) -> None:
        """Again and again, and at once where a replica has come that is given by name."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_UP_S):
                    await self.picker.look_up_due.wait()
            await self.picker.look_up()


class _ExtProc:
    """The method ``Process``, in the form that suits who calls it.

    A stream that is closed behind the pick ends with one answer: grpc sends that and the end in one go where the method
    is said to have one answer only, and the wire is the same.
    """

    def __init__(self, picker: Picker, side: ResponseSide) -> None:
        self._picker = picker
        self._side = side
        self._closing = grpc.stream_unary_rpc_method_handler(self._until_picked)
        self._passing = grpc.stream_stream_rpc_method_handler(self._whole)

    def service(self, call: Any) -> Any:
        """What grpc asks for each call; None for a method that is not this one."""
        if call.method != _PROCESS:
            return None
        closes = self._side == "close" or (self._side == "auto" and is_envoy(call.invocation_metadata))
        return self._closing if closes else self._passing

    async def _until_picked(self, _: AsyncIterator[bytes], context: Any) -> bytes:
        return await until_picked(self._picker, context)

    async def _whole(self, _: AsyncIterator[bytes], context: Any) -> None:
        await whole(self._picker, context)
