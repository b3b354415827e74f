"""An admin port in the process's event loop, whatever is behind it."""

from __future__ import annotations

import asyncio
import contextlib

import uvicorn
from fastapi import FastAPI

from adaptive_gamma.errors import ConfigurationError

__all__ = ["AdminPort"]


class AdminPort:
    """The admin port, from ``start`` to ``stop``.

    Args:
        app: the application behind it.
        address: ``host:port``; port 0 takes a free one.
    """

    def __init__(self, app: FastAPI, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._config = uvicorn.Config(
            app, host=host.strip("[]"), port=int(port), http="h11", loop="none", ws="none",
            lifespan="off", log_config=None, access_log=False, server_header=False, proxy_headers=False,
        )  # fmt: skip
        self._address = address
        self._server = uvicorn.Server(self._config)
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen. Raises ConfigurationError when the address cannot be bound."""
        try:
            bound = self._config.bind_socket()
        except SystemExit:  # uvicorn's word for it
            raise ConfigurationError("settings", "admin", f"cannot listen on {self._address}") from None
        host, port = bound.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[bound])

    async def stop(self) -> None:
        """Close the port and its connections."""
        self._server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await self._server.shutdown()
