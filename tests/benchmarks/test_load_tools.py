"""The mock engine and the load client against each other: counts agree, streams are whole, cuts are seen."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator

import pytest

from adaptive_gamma.engines.vllm import VllmDialect
from benchmarks.contestants import plain_request
from benchmarks.disconnect import PHASES, disconnect_ms
from benchmarks.load_tools import LoadTools, MockEngine, build_load_tools, find_compiler

_CHECKED = ("-Werror", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> LoadTools:
    if find_compiler() is None:
        reason = "no C compiler here (cc, gcc, clang or $CC)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return build_load_tools(tmp_path_factory.mktemp("load_tools"), *_CHECKED)


@pytest.fixture
def engine(tools: LoadTools) -> Iterator[MockEngine]:
    with tools.mock_engine() as engine:
        yield engine


def _page(engine: MockEngine, path: str, replica: int = 0) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", engine.ports[replica], timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_closed_loop_and_the_engine_count_the_same(tools: LoadTools, engine: MockEngine) -> None:
    with tools.load("closed", engine.ports[0], connections=8, seconds=0.3) as load:
        result = load.result()
    stats = engine.stats()
    assert result["requests"] == stats["requests"] > 8
    assert result["failed"] == result["unanswered"] == 0
    assert result["connections"] == stats["generating_connections"] == 8
    assert 0 < result["latency_p50_us"] <= result["latency_p99_us"] <= result["latency_max_us"]
    assert stats["running"] == stats["aborted"] == 0


def test_an_open_loop_sends_as_many_as_its_rate_says(tools: LoadTools, engine: MockEngine) -> None:
    with tools.load("open", engine.ports[1], rate=200, seconds=0.5) as load:
        result = load.result()
    assert result["requests"] == engine.stats()["requests"] == 100
    assert result["failed"] == result["unanswered"] == 0


def test_paced_streams_arrive_whole_and_in_order(tools: LoadTools, engine: MockEngine) -> None:
    with tools.load("streams", engine.ports[0], streams=40, chunks=25, rate=100, spread_ms=100) as load:
        assert load.all_flow()
        assert load.counters()["chunks"] >= 40
        result = load.result()
    assert result["complete"] == result["requests"] == result["connections"] == 40
    assert result["disordered"] == result["failed"] == result["unanswered"] == 0
    assert result["chunks"] == engine.stats()["chunks"] == 40 * 25
    assert 0 < result["delay_p50_us"] <= result["delay_p99_us"] <= result["delay_max_us"]


def test_streams_cut_off_are_not_counted_as_whole(tools: LoadTools, engine: MockEngine) -> None:
    with tools.load("streams", engine.ports[0], streams=5, chunks=1000, rate=50, limit_ms=200) as load:
        result = load.result()
    assert result["complete"] == result["requests"] == 0
    assert result["unanswered"] == 5


class _Scripted:
    """Answers one request with fixed bytes and closes."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._answer = answer

    def serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, self._listener:
            connection.recv(65_536)
            connection.sendall(self._answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass


def _stream(*lines: str, end: str = "0\r\n\r\n") -> bytes:
    events = [f"data: {line}\n\n" for line in lines]
    # One event in two chunks, to see that chunk boundaries do not matter.
    pieces = [piece for event in events for piece in (event[:9], event[9:])]
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return (head + "".join(f"{len(piece):X}\r\n{piece}\r\n" for piece in pieces) + end).encode()


_DONE = "[DONE]"
_FIRST, _SECOND = (
    '{"content": "@seq:0000000000:00000000000000000001"}',
    '{"content":"@seq:0000000001:00000000000000000002"}',
)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (_stream(_FIRST, _SECOND, _DONE), "complete"),
        (_stream(_SECOND, _FIRST, _DONE), "disordered"),
        (_stream(_FIRST, _DONE), "disordered"),
        (_stream(_FIRST, _FIRST, _SECOND, _DONE), "disordered"),
        (_stream(_FIRST, _SECOND), "disordered"),
        (_stream(_FIRST, _DONE, _SECOND), "disordered"),
        (_stream(_FIRST, _SECOND, _DONE, end=""), "failed"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", "failed"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: [DONE]\n\n", "failed"),
    ],
)
def test_what_is_wrong_with_a_stream_is_seen(tools: LoadTools, answer: bytes, outcome: str) -> None:
    server = _Scripted(answer)
    with tools.load("streams", server.port, streams=1, chunks=2, limit_ms=20_000) as load:
        server.serve()
        result = load.result()
    assert result[outcome] == 1
    assert result["complete"] == (outcome == "complete")


@pytest.mark.parametrize("phase", PHASES)
def test_the_engine_sees_a_client_leave(engine: MockEngine, phase: str) -> None:
    assert all(taken >= 0 for taken in disconnect_ms(engine.ports[0], engine, phase, 2))
    stats = engine.stats()
    assert stats["aborted"] == 2
    assert stats["running"] == 0


def test_a_slow_reader_loses_nothing(engine: MockEngine) -> None:
    """More than the sockets hold is kept by the engine until it is read."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", engine.ports[0]))
        client.sendall(plain_request("x-mock-rate: 1000000", stream=True, max_tokens=40_000))
        while engine.stats()["chunks"] < 40_000:
            pass
        seen = bytearray()
        while not seen.endswith(b"0\r\n\r\n"):
            seen += client.recv(1 << 20)
    assert seen.count(b"@seq:") == 40_000
    assert seen.count(b"data: [DONE]") == 1


def test_the_engine_answers_what_a_proxy_asks_of_vllm(engine: MockEngine) -> None:
    assert _page(engine, "/health")[0] == 200
    assert '"id":"bench"' in _page(engine, "/v1/models")[1]
    assert _page(engine, "/nothing")[0] == 404
    drafting = VllmDialect().read({"/metrics": _page(engine, "/metrics")[1]})
    plain = VllmDialect().read({"/metrics": _page(engine, "/metrics", replica=1)[1]})
    assert (drafting.speculative, drafting.gamma, drafting.running) == (True, 4, 0)
    assert (plain.speculative, plain.gamma, plain.waiting) == (False, None, 0)
