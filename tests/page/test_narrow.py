"""What the system is told of a connection that an event stream is sent on."""

from __future__ import annotations

import asyncio
import socket

import pytest
from fastapi import FastAPI, Request

from adaptive_gamma.admin.port import AdminPort


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no TCP_USER_TIMEOUT")
async def test_the_system_itself_cuts_a_reader_that_takes_nothing() -> None:
    """What waits in its buffers is not seen from here, so that waiting for them to fill takes longer by as much."""
    app, told = FastAPI(), list[int]()
    port = AdminPort(app, "127.0.0.1:0")

    @app.get("/")
    async def narrowed(request: Request) -> None:
        port.narrow(request.scope["client"])
        for connection in port.connections:
            its = connection.transport.get_extra_info("socket")
            told.append(its.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    await port.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()
        await writer.wait_closed()
    finally:
        await port.stop()
    assert told == [20_000]
