"""Resident memory of ``adaptive-gamma serve`` with many open streams."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .measure import Figure

__all__ = ["memory_figures"]

_POLICY = Path(__file__).resolve().parents[1] / "policies" / "h100-llama3-8b-eagle3.yaml"
_BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"token "}}]}\n\n'


def _resident_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else float("nan")


class _Engine:
    """Answers every generation with a stream that goes on until ``release``."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.connections: set[asyncio.Task[None]] = set()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self.connections.add(task)
        task.add_done_callback(self.connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head.lower())
                if length:
                    await reader.readexactly(int(length[1]))
                if not head.startswith(b"POST"):
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                writer.write(_HEAD)
                while not self.release.is_set():
                    writer.write(b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT))
                    await writer.drain()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.release.wait(), 0.5)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


async def _measure(streams: int) -> tuple[float, float, int]:
    engine = _Engine()
    server = await asyncio.start_server(engine.connected, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(
            f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\npolicy: {_POLICY}\n"
            f'replicas: [{{name: r, url: "http://127.0.0.1:{port}", gamma: 4}}]\n'
            "health: {down_after: 100}\n"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        listen = None
        while listen is None:
            line = (await process.stdout.readline()).decode()
            if not line:
                raise RuntimeError("serve ended before it listened")
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            listen = int(found[1]) if found else None
        drain = asyncio.ensure_future(process.stdout.read())
        idle = _resident_mb(process.pid)
        request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
        )
        clients = []
        for _ in range(streams):
            reader, writer = await asyncio.open_connection("127.0.0.1", listen)
            writer.write(request)
            clients.append((reader, writer))
        opened = 0
        for reader, _ in clients:
            await asyncio.wait_for(reader.readuntil(b"token"), 30)
            opened += 1
        loaded = _resident_mb(process.pid)
        engine.release.set()
        for _, writer in clients:
            writer.close()
        process.terminate()
        await process.wait()
        await drain
    server.close()
    await asyncio.gather(*engine.connections)
    return idle, loaded, opened


def memory_figures(streams: int = 1000) -> Iterator[Figure]:
    """Resident MB idle and with ``streams`` open; skipped where the process may not open enough files."""
    needed = 4 * streams + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        yield Figure(f"proxy resident, {streams} streams", float("nan"), "MB", 120.0, note=f"file limit {hard}")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    idle, loaded, opened = asyncio.run(_measure(streams))
    yield Figure("proxy resident, idle", idle, "MB")
    yield Figure(f"proxy resident, {opened} open streams", loaded, "MB", 120.0)
