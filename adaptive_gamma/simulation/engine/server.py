"""Serving a simulated engine on a socket: for the command, and inside a test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType

import uvicorn

from adaptive_gamma.simulation.engine.app import SERVER_NAME, SimulatedEngine

__all__ = ["run_engine", "serving"]

_SHUTDOWN_S = 1
"""Seconds given to aborted streams to be written out."""


class _Server(uvicorn.Server):
    """uvicorn, with the engine's own end: requests are aborted first, so that no stream stays open and silent."""

    def __init__(self, engine: SimulatedEngine, *, own_signals: bool) -> None:
        super().__init__(
            uvicorn.Config(
                engine,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                headers=[("server", SERVER_NAME)],
                timeout_graceful_shutdown=_SHUTDOWN_S,
            )
        )
        self._engine = engine
        self._own_signals = own_signals

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT only where this process is the engine's own."""
        if self._own_signals:
            with super().capture_signals():
                yield
        else:
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or SIGINT."""
        self._engine.begin_shutdown()
        super().handle_exit(sig, frame)

    def end(self) -> None:
        """What a signal does, without one."""
        self._engine.begin_shutdown()
        self.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_engine(engine: SimulatedEngine, host: str, port: int, *, listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        engine: what to serve.
        host: address to listen on.
        port: 0 lets the system choose.
        listening: called with the url once connections are taken.

    Raises:
        OSError: the address cannot be listened on.
    """
    with contextlib.closing(_listen(host, port)) as listener:
        listener.listen()
        listening(_url(listener))
        _Server(engine, own_signals=True).run(sockets=[listener])


@contextlib.asynccontextmanager
async def serving(engine: SimulatedEngine, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve within the running event loop; gives the url. Leaving aborts what is open and closes the port."""
    with contextlib.closing(_listen(host, port)) as listener:
        server = _Server(engine, own_signals=False)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if task.done():
                    await task
                    raise RuntimeError("the simulated engine did not start")
                await asyncio.sleep(0.005)
            yield _url(listener)
        finally:
            server.end()
            await task
