"""Faults that a hostile reading of the data path found, each in its smallest form."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import time
from collections.abc import Collection

import pytest

from adaptive_gamma.fleet.choice import Choice
from adaptive_gamma.proxy.client_connection import ClientConnection
from adaptive_gamma.proxy.waiting import WaitingRoom
from adaptive_gamma.routing import RequestNeeds
from adaptive_gamma.routing.endpoints import EndpointTable
from tests.support.gated_engine import EngineExchange, GatedEngine, Script, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy

QUICK = {"idle_timeout_s": 1, "first_byte_timeout_s": 600}


def deaf_socket(port: int) -> socket.socket:
    """A client whose kernel takes little and that reads only when told."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    return sock


def large(size: int) -> Script:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"x" * size)

    return script


async def begun(x: EngineExchange) -> None:
    x.head()
    x.chunk(b"data: x\n\n")


async def filled(proxy: RunningProxy, sock: socket.socket, *, paused: bool) -> ClientConnection:
    """Ask again and again without reading, until an answer that is whole stays in part in the transport's buffer."""
    for _ in range(2000):
        before = proxy.count("ok")
        sock.sendall(post())
        await until(lambda: proxy.count("ok") == before + 1, "answered")  # noqa: B023
        connection: ClientConnection = next(iter(proxy.server.data.connections))
        assert connection.exchange is None
        if connection.paused if paused else connection.unsent_bytes:
            return connection
    raise AssertionError("the kernel took everything")


async def test_a_client_that_reads_nothing_is_cut_although_it_asks_again() -> None:
    """The first answer is written out only in part; the second request takes the stall's timer away."""
    async with GatedEngine(large(90_000)) as engine, running_proxy([engine], limits=QUICK) as proxy:
        sock = deaf_socket(proxy.port)
        try:
            await filled(proxy, sock, paused=True)
            engine.script = begun
            sock.sendall(post())
            await until(lambda: not proxy.server.data.connections, "the client that does not read is cut")
            assert proxy.in_flight == 0
        finally:
            sock.close()


async def test_a_client_that_reads_nothing_cannot_pile_up_answers() -> None:
    """Each further request adds what its answer's head came with to a buffer that is full already."""
    async with GatedEngine(large(90_000)) as engine, running_proxy([engine], limits=QUICK) as proxy:
        sock = deaf_socket(proxy.port)
        try:
            connection = await filled(proxy, sock, paused=True)
            for _ in range(100):
                if not proxy.server.data.connections:
                    break
                sock.sendall(post())
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert connection.unsent_bytes < 2_000_000
        finally:
            sock.close()


async def test_a_body_that_stops_is_given_up_although_the_client_read_meanwhile() -> None:
    """Reading on what was left of the answer before takes the body's timer away."""
    async with GatedEngine(large(90_000)) as engine, running_proxy([engine], limits=QUICK) as proxy:
        sock = deaf_socket(proxy.port)
        try:
            await filled(proxy, sock, paused=True)
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{")
            await asyncio.sleep(0.1)
            sock.setblocking(False)

            async def drain() -> bytes:
                tail = b""
                while part := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
                    tail = (tail + part)[-400:]
                return tail

            assert b"body_timeout" in await asyncio.wait_for(drain(), 5)
        finally:
            sock.close()


async def test_an_idle_connection_with_unread_bytes_is_closed_for_good() -> None:
    """Less than the high-water mark is unsent when the idle time is over: a close that waits for it never comes."""
    async with GatedEngine(large(20_000)) as engine, running_proxy([engine], limits=QUICK) as proxy:
        sock = deaf_socket(proxy.port)
        try:
            proxy.server.data._data_config.keep_alive_s = 1
            connection = await filled(proxy, sock, paused=False)
            assert not connection.paused
            await until(lambda: not proxy.server.data.connections, "the connection is gone")
        finally:
            sock.close()


async def test_nothing_is_served_behind_a_refusal_that_closes() -> None:
    """While draining, a pipelined request behind an early refusal comes after our own half-close."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        proxy.server.data._data_config.closing = True
        client.send(b"GET /nope HTTP/1.1\r\nhost: a\r\n\r\n" + post())
        raw, _ = await client.everything()
        await asyncio.sleep(0.2)
        assert raw.count(b"HTTP/1.1 ") == 1, raw
        assert not engine.requests
        assert not proxy.count("internal_error")


async def test_two_that_waited_too_long_while_room_appeared() -> None:
    """A place appears without a word (a replica came up); the first one's refusal sends the second."""
    room_now = False
    said: list[str] = []

    class Waiter:
        def __init__(self, name: str) -> None:
            self.name = self.waits_for = name

        def on_fault(self) -> None:
            said.append(f"{self.name} failed")

        def try_again(self) -> bool:
            if room_now:
                said.append(f"{self.name} sent")
            return room_now

        def waited_too_long(self) -> None:
            said.append(f"{self.name} late")
            room.leave(self)
            room.room_made()  # as Exchange._end does

    room = WaitingRoom(lambda: 10, lambda: 0.1)
    waiters = [Waiter(name) for name in "abc"]
    for waiter in waiters:
        room.enter(waiter)
    room_now = True
    await asyncio.sleep(0.7)
    assert len(room) == 0, said
    assert sorted(word[0] for word in said) == ["a", "b", "c"]


async def test_many_who_wait_for_one_model_do_not_hold_up_another() -> None:
    async def silent(x: EngineExchange) -> None:
        """The test speaks for the engine."""

    async with (
        GatedEngine(silent, models=["a"]) as one,
        GatedEngine(silent, models=["b"]) as other,
        running_proxy([one, other], load={"max_in_flight": 1, "queue": 100, "queue_timeout_s": 4}) as proxy,
    ):
        await proxy.plane.fleet.check_health_once()
        clients = []

        async def ask(model: str) -> object:
            client = await proxy.client().__aenter__()
            clients.append(client)
            client.send(post(body={"model": model, "prompt": "x"}))
            return client

        await ask("a")
        await ask("b")
        await until(lambda: len(one.exchanges) == len(other.exchanges) == 1, "both are full")
        for _ in range(32):
            await ask("a")
        await until(lambda: len(proxy.plane.waiting) == 32, "all wait for a")
        await ask("b")
        await until(lambda: len(proxy.plane.waiting) == 33, "one waits for b")
        other.exchanges[0].answer(200, b"{}")
        try:
            await until(lambda: len(other.exchanges) == 2 or not proxy.plane.waiting, "its turn came or went")
            assert len(other.exchanges) == 2
        finally:
            for client in clients:
                client.drop()


async def test_a_feature_an_engine_was_started_without_does_not_take_it_down() -> None:
    """llama.cpp answers /v1/embeddings with 501 unless started with --embeddings."""
    async with GatedEngine(answer_json(501)) as engine, running_proxy([engine]) as proxy:
        for _ in range(3):
            answer = await proxy.ask(post("/v1/embeddings", {"model": "m", "input": "x"}))
            assert answer.status == 501
        assert proxy.plane.fleet.states[0].healthy
        assert proxy.plane.not_ready_because != "no replica is healthy"


async def test_a_body_is_dropped_once_it_cannot_be_sent_again() -> None:
    async with GatedEngine(begun) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        answer_to = post(body={"prompt": "x" * 3_000_000})
        client.send(answer_to)
        await client.head()
        await client.chunk()
        exchange = next(iter(proxy.server.data.connections)).exchange
        gc.collect()
        held = [len(exchange._body), len(exchange._call._body)]
        assert held == [0, 0]


async def test_a_client_cannot_write_tracebacks_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        answer = await client.ask(b"GET http://h HTTP/1.1\r\nhost: a\r\n\r\n", "GET")
        assert answer.status in (400, 404)
        assert not [record for record in caplog.records if record.exc_info]


async def test_http_1_0_stays_so_when_it_offers_an_upgrade() -> None:
    async def stream(x: EngineExchange) -> None:
        x.head()
        x.chunk(b"hello")
        x.end()

    async with GatedEngine(stream) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        body = b'{"prompt": "x"}'
        client.send(
            b"POST /v1/completions HTTP/1.0\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        raw, _ = await client.everything()
        assert b"chunked" not in raw, raw


async def test_an_early_answer_to_one_that_waits_to_send_leaves_no_doubt() -> None:
    """A client told 404 in place of 100 may keep the body; its next request must not be read as that body."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(b"POST /nope HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 500\r\n\r\n")
        answer = await client.answer()
        assert answer.status == 404
        assert answer.one("connection") == "close"


async def test_a_fault_of_one_who_waits_is_not_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room made by one request sends another; what goes wrong there reaches the first one's ``finish``."""

    async def gated(x: EngineExchange) -> None:
        """The test speaks for the engine."""

    async with (
        GatedEngine(gated) as engine,
        running_proxy([engine], load={"max_in_flight": 1, "queue": 5, "queue_timeout_s": 3}) as proxy,
        proxy.client() as good,
        proxy.client() as bad,
    ):
        good.send(post())
        await engine.arrived()
        bad.send(post(body={"model": "poison", "prompt": "x"}))
        await until(lambda: len(proxy.plane.waiting) == 1, "waits")
        choose = proxy.plane.chooser.choose

        def faulty(needs: RequestNeeds, tried: Collection[str]) -> Choice:
            if needs.model == "poison":
                raise ZeroDivisionError
            return choose(needs, tried)

        monkeypatch.setattr(proxy.plane.chooser, "choose", faulty)
        engine.exchanges[0].head()
        engine.exchanges[0].chunk(b"x")
        engine.exchanges[0].end()
        async with asyncio.timeout(2):
            assert (await good.answer()).complete
            assert (await bad.answer()).status == 500
        assert not proxy.plane.waiting


async def test_bytes_that_came_before_a_request_are_not_its_answer() -> None:
    """They are in the kernel when the idle connection is taken, and the event loop has not seen them yet.

    Once taken for an answer they shift every later one on that connection: each client gets the one before its own.
    """

    async def echo(x: EngineExchange) -> None:
        x.answer(200, x.request.one("x-token") or b"")

    async with GatedEngine(echo) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        assert (await client.ask(post(headers=(("x-token", "1"),)))).body == b"1"
        connection = next(iter(proxy.server.data.connections))
        os.write(
            engine.exchanges[0].transport.get_extra_info("socket").fileno(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nEVIL",
        )
        connection.data_received(post(headers=(("x-token", "2"),)))  # in the same turn of the loop
        answers = [(await client.answer()).body]
        answers.append((await client.ask(post(headers=(("x-token", "3"),)))).body)
        assert answers == [b"2", b"3"]


async def test_a_body_of_many_small_values_does_not_hold_up_the_rest() -> None:
    """8 of the 64 MB a body may have."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        worst = 0.0

        async def watch() -> None:
            nonlocal worst
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0.005)
                worst, last = max(worst, time.perf_counter() - last), time.perf_counter()

        request = post(body=b'{"prompt": "x", "a": [' + b"[]," * 2_600_000 + b"0]}")
        watching = asyncio.create_task(watch())
        answer = await client.ask(request)
        watching.cancel()
        assert answer.status in (200, 400, 413)
        assert worst < 0.25


async def test_small_chunks_of_a_body_cost_no_more_than_large_ones() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        client.send(b"2\r\nab\r\n" * 100_000)
        connection: ClientConnection | None = None
        await until(lambda: bool(proxy.server.data.connections), "connected")
        connection = next(iter(proxy.server.data.connections))
        await until(lambda: connection._body_size == 200_000, "read")
        parts = connection._body._parts
        assert sum(map(sys.getsizeof, parts)) + sys.getsizeof(parts) < 400_000


def test_a_models_name_goes_no_step_up_behind_a_line_break() -> None:
    assert EndpointTable().find("/v1/models/x\n/../../reset_prefix_cache") is None
