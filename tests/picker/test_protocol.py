"""The endpoint picker's protocol, by a gateway that is written out message by message."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import pytest

from adaptive_gamma.envoy.picker.wire import EXT_PROC_SERVICE, BodyMode
from tests.support.gated_engine import until
from tests.support.gateway import (
    CODE,
    DESTINATION,
    DUPLEX,
    PROSE,
    busy_engine,
    drained,
    immediate,
    picked,
    running_picker,
)

FREE = 1
"""A port nobody listens on: replicas that are never reached."""


async def test_code_and_prose_go_where_they_are_cheapest() -> None:
    async with busy_engine() as spec, busy_engine() as plain, running_picker([spec, plain], [2, 0]) as run:
        code, prose = picked(await run.gateway.ask(CODE)), picked(await run.gateway.ask(PROSE))
        assert code.endpoint == f"{run.endpoints[0]},{run.endpoints[1]}"
        assert prose.endpoint == f"{run.endpoints[1]},{run.endpoints[0]}"
        assert code.shown == {
            "replica": "r0", "class": "structured", "pool": "speculative", "reason": "class", "gamma": "2",
        }  # fmt: skip
        assert (prose.shown["class"], prose.shown["pool"]) == ("chat", "plain")


async def test_duplex_answers_nothing_before_the_end_and_hands_the_body_back() -> None:
    async with busy_engine() as spec, busy_engine() as plain, running_picker([spec, plain], [2, 0]) as run:
        stream = run.gateway.stream()
        whole = json.dumps({**CODE, "padding": "x" * 200_000}).encode()
        await stream.headers()
        for start in range(0, len(whole), 30_000):
            part = whole[start : start + 30_000]
            await stream.body(part, end=start + 30_000 >= len(whole))
        assert picked(await stream.answer()).shown["class"] == "structured"
        pieces = [answer.request_body.response.body_mutation.streamed_response for answer in await drained(stream)]
        assert b"".join(piece.body for piece in pieces) == whole
        assert [piece.end_of_stream for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert max(len(piece.body) for piece in pieces) < 64 * 1024


async def test_an_end_that_comes_as_an_empty_part() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream()
        await stream.headers()
        await stream.body(CODE, end=False)
        await stream.body(b"")
        picked(await stream.answer())
        (piece,) = await drained(stream)
        assert piece.request_body.response.body_mutation.streamed_response.end_of_stream


async def test_buffered_is_answered_on_headers_and_on_the_body() -> None:
    async with busy_engine() as spec, busy_engine() as plain, running_picker([spec, plain], [2, 0]) as run:
        stream = run.gateway.stream()
        await stream.headers(mode=BodyMode.BUFFERED)
        first = await stream.answer()
        assert first.WhichOneof("response") == "request_headers"
        assert not first.request_headers.response.header_mutation.set_headers
        await stream.body(CODE)
        answer = await stream.answer()
        assert picked(answer, "request_body").shown["replica"] == "r0"
        assert not answer.request_body.response.HasField("body_mutation")
        assert await stream.ended() == grpc.StatusCode.OK


async def test_a_body_that_is_only_partly_shown_decides_without_it() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream()
        await stream.headers(mode=BodyMode.BUFFERED_PARTIAL)
        await stream.answer()
        await stream.body(b'{"prompt": "half of', end=False)
        assert picked(await stream.answer(), "request_body").shown["class"] == "unsure"


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED])
async def test_modes_that_show_no_body_pick_by_the_headers(mode: int) -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream()
        await stream.headers(mode=mode, x_adaptive_gamma_class="code")
        answer = picked(await stream.answer())
        assert answer.shown["class"] == "structured"
        assert "x-adaptive-gamma-class" in answer.removed
        assert await stream.ended() == grpc.StatusCode.OK


async def test_a_gateway_that_names_no_mode_is_taken_for_duplex() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        assert picked(await run.gateway.ask(CODE, mode=None)).endpoint == run.endpoints[0]


@pytest.mark.parametrize("mode", [DUPLEX, BodyMode.BUFFERED, BodyMode.NONE])
async def test_header_only_get(mode: int) -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream()
        await stream.headers("/v1/models", "GET", end=True, mode=mode)
        assert picked(await stream.answer()).endpoint == run.endpoints[0]
        assert await stream.ended() == grpc.StatusCode.OK


@pytest.mark.parametrize("body", [b"{", b"[]", b"", b"\xff\xfe{"])
async def test_invalid_json_is_400(body: bytes) -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        status, _, error = immediate(await run.gateway.ask(body))
        assert (status, error["code"], error["type"]) == (400, "invalid_json", "invalid_request_error")
        assert run.picker.picks == {("none", "client_error"): 1}


async def test_a_request_without_a_model_goes_anywhere_and_one_nobody_has_is_404() -> None:
    async with busy_engine(models=["a"]) as one, busy_engine(models=["b"]) as two, running_picker([one, two]) as run:
        assert picked(await run.gateway.ask({"prompt": "x"})).endpoint
        assert picked(await run.gateway.ask({"model": "b", "prompt": "x"})).endpoint == run.endpoints[1]
        status, _, error = immediate(await run.gateway.ask({"model": "c", "prompt": "x"}))
        assert (status, error["code"]) == (404, "model_not_found")


async def test_paths_and_methods_are_those_of_the_data_port_unless_any_may_come() -> None:
    async with busy_engine() as engine:
        async with running_picker([engine]) as run:
            for path, method, expected in (("/sleep", "POST", 404), ("/v1/completions", "DELETE", 405)):
                stream = run.gateway.stream()
                await stream.headers(path, method, end=True)
                status, headers, _ = immediate(await stream.answer())
                assert status == expected
                assert ("allow" in headers) == (status == 405)
        async with running_picker([engine], options={"any_path": True}) as run:
            stream = run.gateway.stream()
            await stream.headers("/anything?x=1", "GET", end=True)
            assert picked(await stream.answer()).endpoint == run.endpoints[0]


async def test_no_endpoint_is_503() -> None:
    async with busy_engine(models=["a"]) as engine, running_picker([engine]) as run:
        run.picker.fleet.set_draining("r0", True)
        status, headers, error = immediate(await run.gateway.ask({"model": "a", "prompt": "x"}))
        assert (status, error["code"], headers["retry-after"]) == (503, "no_replica", "1")


async def test_all_down_is_tried_all_the_same() -> None:
    async with running_picker([f"http://127.0.0.1:{FREE}"], health={"interval_s": 3600, "down_after": 1}) as run:
        assert not run.picker.fleet.states[0].healthy
        assert picked(await run.gateway.ask(CODE)).shown["reason"] == "fallback"


async def test_full_replicas_are_shed_with_429() -> None:
    load = {"max_in_flight": 4}
    async with busy_engine(running=2, waiting=1) as engine, running_picker([engine], load=load) as run:
        assert picked(await run.gateway.ask(CODE))
        status, headers, error = immediate(await run.gateway.ask(CODE))
        assert (status, error["code"], error["type"]) == (429, "at_capacity", "rate_limit_error")
        assert headers["retry-after"] == "1"
        assert run.picker.picks["none", "rejected"] == 1


@pytest.mark.parametrize("form", ["list", "commas"])
async def test_the_best_of_a_subset(form: str) -> None:
    async with busy_engine() as a, busy_engine() as b, busy_engine(3) as c, running_picker([a, b, c]) as run:
        assert picked(await run.gateway.ask(CODE)).endpoint.startswith(run.endpoints[2])

        async def ask(*allowed: str) -> Any:
            hint: list[str] | str = list(allowed) if form == "list" else ", ".join(allowed)
            return await run.gateway.ask(CODE, subset=hint)

        assert picked(await ask(run.endpoints[1], run.endpoints[2])).endpoint == (
            f"{run.endpoints[2]},{run.endpoints[1]}"
        )
        assert picked(await ask(run.endpoints[0])).endpoint == run.endpoints[0]
        # Those that are not known here are passed over.
        assert picked(await ask("10.0.0.1:80", run.endpoints[1])).endpoint == run.endpoints[1]
        assert picked(await ask("127.0.0.1")).endpoint.startswith(run.endpoints[2])
        for none in (("10.0.0.1:80",), ()):
            status, _, error = immediate(await ask(*none))
            assert (status, error["code"]) == (503, "no_replica")


async def test_fallbacks_are_as_many_as_retries() -> None:
    async with busy_engine(1) as a, busy_engine(2) as b, busy_engine(3) as c:
        for attempts, expected in ((0, 1), (1, 2), (2, 3)):
            async with running_picker([c, b, a], retry={"attempts": attempts}) as run:
                places = picked(await run.gateway.ask(CODE)).endpoint.split(",")
                assert places == run.endpoints[::-1][:expected]


async def test_what_a_client_sends_of_ours_is_removed_or_overwritten() -> None:
    async with busy_engine() as engine, running_picker([engine], engine_api_key="secret") as run:
        sent = {DESTINATION: "10.0.0.1:22", "x-adaptive-gamma-replica": "x", "authorization": "Bearer own"}
        answer = picked(await run.gateway.ask(CODE, **sent))
        assert answer.set_headers == {DESTINATION: run.endpoints[0], "authorization": "Bearer secret"}
        assert answer.removed == ["x-adaptive-gamma-replica"]


async def test_trailers_of_a_request() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream()
        await stream.headers()
        await stream.body(CODE, end=False)
        await stream.send(request_trailers={})
        picked(await stream.answer())
        piece, trailers = await drained(stream)
        assert not piece.request_body.response.body_mutation.streamed_response.end_of_stream
        assert trailers.WhichOneof("response") == "request_trailers"


async def test_another_gateway_keeps_its_stream_and_gets_the_response_side_answered() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream(envoy=False)
        await stream.headers(response_mode=DUPLEX)
        await stream.body(CODE)
        picked(await stream.answer())
        await stream.answer()
        await stream.body(b"")  # a second end, which some send: no answer to it
        await stream.send(response_headers={})
        told = await stream.answer()
        put = {o.header.key: o.header.raw_value for o in told.response_headers.response.header_mutation.set_headers}
        assert put["x-adaptive-gamma-replica"] == b"r0"
        await stream.send(response_body={"body": b"data: x\n\n"})
        piece = (await stream.answer()).response_body.response.body_mutation.streamed_response
        assert (piece.body, piece.end_of_stream) == (b"data: x\n\n", False)
        await stream.send(response_trailers={})
        assert (await stream.answer()).WhichOneof("response") == "response_trailers"
        await stream.call.done_writing()
        assert await stream.ended() == grpc.StatusCode.OK


async def test_a_gateway_that_closes_early_leaves_nothing_behind() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream()
        await stream.headers()
        await stream.body(b'{"prompt":', end=False)
        await until(lambda: run.picker.open_streams == 1, "the stream is open")
        stream.call.cancel()
        await until(lambda: run.picker.open_streams == 0, "the stream is gone")
        half = run.gateway.stream()
        await half.headers()
        await half.call.done_writing()
        assert await half.call.code() == grpc.StatusCode.CANCELLED
        assert picked(await run.gateway.ask(CODE))
        assert run.picker.picks == {("r0", "ok"): 1}


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async with busy_engine() as engine, running_picker([engine], limits={"idle_timeout_s": 0.2}) as run:
        stream = run.gateway.stream()
        await stream.headers()
        status, _, error = immediate(await stream.answer())
        assert (status, error["code"]) == (408, "request_timeout")
        assert await stream.ended() == grpc.StatusCode.OK


@pytest.mark.parametrize("told", [True, False])
async def test_too_large_a_body(told: bool) -> None:
    async with busy_engine() as engine, running_picker([engine], limits={"body_bytes": 1000}) as run:
        stream = run.gateway.stream()
        if told:
            await stream.headers(content_length="1001")
        else:
            await stream.headers()
        if not told:
            await stream.body(b"x" * 1001, end=False)
        assert immediate(await stream.answer())[0] == 413


async def test_bodies_that_are_held_have_a_limit_all_together() -> None:
    async with (
        busy_engine() as engine,
        running_picker([engine], limits={"body_bytes": 1000, "bodies_bytes": 1000}) as run,
    ):
        first = run.gateway.stream()
        await first.headers()
        await first.body(b"x" * 900, end=False)
        await until(lambda: run.picker.body_room.held == 900, "the first body is held")
        second = run.gateway.stream()
        await second.headers()
        await second.body(b"x" * 101, end=False)
        status, _, error = immediate(await second.answer())
        assert (status, error["code"]) == (503, "too_many_bodies")
        first.call.cancel()
        await until(lambda: run.picker.body_room.held == 0, "the room is given back")
        assert picked(await run.gateway.ask(CODE))
        assert run.picker.body_room.held == 0


async def test_conformance_header_is_heeded_only_in_tests() -> None:
    async with busy_engine() as a, busy_engine() as b:
        for heeded in (True, False):
            async with running_picker([a, b], options={"test_selection": heeded, "any_path": True}) as run:
                wanted = run.endpoints[::-1]
                stream = run.gateway.stream()
                await stream.headers("/x", "GET", end=True, test_epp_endpoint_selection=",".join(wanted))
                answer = picked(await stream.answer())
                assert (answer.shown["reason"] == "test") == heeded
                if heeded:
                    assert answer.endpoint == ",".join(wanted)


async def test_health_names() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        names = ("", "liveness", "readiness", "inference-extension", EXT_PROC_SERVICE)
        assert [await run.gateway.health(name) for name in names] == [1] * 5
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await run.gateway.health("other")
        assert error.value.code() == grpc.StatusCode.NOT_FOUND
        watch = run.gateway.watch("")
        first = await watch.read()
        run.picker.draining = True
        second = await asyncio.wait_for(watch.read(), 10)
        assert (first, second) == (b"\x08\x01", b"\x08\x02")
        watch.cancel()
        assert [await run.gateway.health(name) for name in names] == [2, 1, 2, 2, 2]


async def test_no_engine_up_is_not_ready_but_gateways_may_ask() -> None:
    async with running_picker([f"http://127.0.0.1:{FREE}"], health={"interval_s": 3600, "down_after": 1}) as run:
        assert (await run.gateway.health("readiness"), await run.gateway.health(EXT_PROC_SERVICE)) == (2, 1)


async def test_stopping_finishes_the_pick_under_way() -> None:
    async with busy_engine() as engine, running_picker([engine]) as run:
        stream = run.gateway.stream()
        await stream.headers()
        await until(lambda: run.picker.open_streams == 1, "the stream is open")
        stopping = asyncio.create_task(run.server.stop(linger_s=0, grace_s=10))
        await until(lambda: run.picker.draining, "draining")
        await stream.body(CODE)
        assert picked(await stream.answer()).endpoint == run.endpoints[0]
        assert await stopping == 0
