"""Ports in the process's event loop: one that is bound and listens, and the admin port on it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI

from adaptive_gamma.admin.guard import AdminConnection, HostGuard
from adaptive_gamma.errors import ConfigurationError

__all__ = ["BACKLOG", "KEEP_ALIVE_S", "AdminPort", "Listener", "bind"]

KEEP_ALIVE_S = 75
BACKLOG = 4096


def bind(address: str, key: str) -> socket.socket:
    """A socket that listens on ``host:port``; port 0 takes a free one.

    Raises ConfigurationError, in the name of the setting ``key``, where the address cannot be had.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, int(port)))
        # Two sockets may be bound to one port; only listening tells that it is taken.
        bound.listen(BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError("settings", key, f"cannot listen on {address}: {reason}") from error
    bound.setblocking(False)
    return bound


class Listener:
    """One bound port, served by uvicorn.

    Raises ConfigurationError when the address cannot be bound.
    """

    def __init__(self, config: uvicorn.Config, address: str, key: str) -> None:
        self._socket = bind(address, key)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.port: int = port
        self._config = config
        self._server = uvicorn.Server(config)

    async def start(self) -> None:
        """Accept connections."""
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[self._socket])

    @property
    def connections(self) -> list[Any]:
        """Those that are open now."""
        return list(self._server.server_state.connections)

    def begin_drain(self) -> None:
        """Close idle connections and close the others after their answers; new ones are still taken."""
        for connection in self.connections:
            connection.shutdown()

    def abandon(self) -> None:
        """Give the port up before ``start``."""
        self._socket.close()

    async def close(self) -> None:
        """Stop listening and wait for what runs to end."""
        for server in self._server.servers:
            server.close()
        self._socket.close()
        while self._server.server_state.tasks:
            await asyncio.wait(set(self._server.server_state.tasks))


class AdminPort(Listener):
    """The admin port: a FastAPI application on uvicorn's own HTTP, in the form that limits heads (h11).

    Args:
        app: the application.
        address: ``host:port``; port 0 takes a free one.
        names: further names under which it may be asked; see ``HostGuard``.

    Raises:
        ConfigurationError: the address cannot be bound.
    """

    def __init__(self, app: FastAPI, address: str, names: Sequence[str] = ()) -> None:
        own = [address.rpartition(":")[0].lower(), *map(str.lower, names)]
        config = uvicorn.Config(
            HostGuard(app, own), http=AdminConnection, loop="none", ws="none", lifespan="off", log_config=None,
            access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S,
            backlog=BACKLOG,
        )  # fmt: skip
        super().__init__(config, address, "admin")

    def cut(self, client: object) -> None:
        """Break the connection of one client, its address as the application is told it."""
        for connection in self.connections:
            if connection.client == client:
                connection.transport.abort()

    async def stop(self) -> None:
        """Break every connection, and close the port."""
        self.begin_drain()
        for connection in self.connections:
            connection.transport.abort()
        await self.close()
