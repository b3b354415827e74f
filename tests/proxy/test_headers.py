"""Header fields in both directions."""

from __future__ import annotations

import re

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy


async def test_what_reaches_the_engine() -> None:
    headers = (
        ("authorization", "Bearer client"),
        ("x-custom", "1"),
        ("x-custom", "2"),
        ("cookie", "a=b"),
        ("connection", "keep-alive, x-private"),
        ("x-private", "secret"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic x"),
        ("proxy-connection", "keep-alive"),
        ("trailer", "x-t"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-adaptive-gamma-replica", "r9"),
        ("x-adaptive-gamma-internal", "1"),
        ("x-adaptive-gamma-class", "code"),
        ("user-agent", "test"),
    )
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        await proxy.ask(post(headers=headers))
        request = engine.requests[0]
        names = " ".join(sorted(name.decode().lower() for name, _ in request.headers))
        assert names == (
            "authorization content-length cookie host user-agent x-custom x-custom x-forwarded-for x-request-id"
        )
        assert request.all("x-custom") == [b"1", b"2"]
        assert request.one("host") == engine.url.removeprefix("http://").encode()
        assert request.one("authorization") == b"Bearer client"
        assert request.one("x-forwarded-for") == b"10.0.0.1, 127.0.0.1"


async def test_engine_key_replaces_the_clients() -> None:
    async with GatedEngine() as engine, running_proxy([engine], engine_api_key="k3y") as proxy:
        await proxy.ask(post(headers=(("authorization", "Bearer client"), ("authorization", "Bearer two"))))
        assert engine.requests[0].one("authorization") == b"Bearer k3y"
        await proxy.ask(post())
        assert engine.requests[1].one("authorization") == b"Bearer k3y"


async def test_no_authorization_is_made_up() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        await proxy.ask(post())
        assert engine.requests[0].one("authorization") is None


@pytest.mark.parametrize("sent", ["abc-1.2_X", "a" * 128])
async def test_request_id_of_the_client(sent: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=(("x-request-id", sent),)))
        assert answer.one("x-request-id") == sent
        assert engine.requests[0].one("x-request-id") == sent.encode()


@pytest.mark.parametrize("sent", ["a b", "a/b", "a" * 129, "", "é", 'x";drop'])
async def test_request_ids_that_are_not_harmless_are_replaced(sent: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=(("x-request-id", sent),)))
        new = answer.one("x-request-id")
        assert new is not None
        assert re.fullmatch("[0-9a-f]{32}", new)
        assert engine.requests[0].one("x-request-id") == new.encode()


async def test_what_reaches_the_client() -> None:
    async def script(x: EngineExchange) -> None:
        x.answer(
            200,
            b"{}",
            [
                ("Date", "Mon, 01 Jan 2024 00:00:00 GMT"),
                ("Server", "engine"),
                ("Set-Cookie", "a=1"),
                ("Set-Cookie", "b=2"),
                ("Connection", "keep-alive, X-Hop"),
                ("X-Hop", "1"),
                ("Keep-Alive", "timeout=5"),
                ("X-Request-Id", "engine-made"),
                ("x-adaptive-gamma-reason", "forged"),
                ("X-Custom", "é"),
            ],
        )

    async with GatedEngine(script) as engine, running_proxy([engine], gammas=[3]) as proxy:
        answer = await proxy.ask(post(headers=(("x-request-id", "mine"), ("x-adaptive-gamma-class", "code"))))
        assert answer.one("date") == "Mon, 01 Jan 2024 00:00:00 GMT"
        assert answer.one("server") == "engine"
        assert answer.all("set-cookie") == ["a=1", "b=2"]
        assert answer.one("content-length") == "2"
        assert answer.one("x-custom") == "Ã©" or answer.one("x-custom") == "é"
        assert answer.one("x-request-id") == "mine"
        assert answer.one("x-hop") is answer.one("keep-alive") is answer.one("connection") is None
        own = {name: value for name, value in answer.headers if name.startswith("x-adaptive-gamma-")}
        assert own == {
            "x-adaptive-gamma-replica": "r0",
            "x-adaptive-gamma-pool": "speculative",
            "x-adaptive-gamma-gamma": "3",
            "x-adaptive-gamma-class": "structured",
            "x-adaptive-gamma-reason": "only_replica",
        }


async def test_own_answers_carry_one_date_server_and_id() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post("/nothing", headers=(("x-request-id", "mine"),)))
        assert answer.one("date") is not None
        assert answer.one("server") == "adaptive-gamma"
        assert answer.one("x-request-id") == "mine"


@pytest.mark.parametrize(
    ("classify", "sent", "expected"),
    [
        ({}, "prose", "chat"),
        ({}, "made-up", "unsure"),
        ({"header": None}, "code", "unsure"),
        ({"header": "X-Task"}, "code", "unsure"),
    ],
)
async def test_class_header(classify: dict[str, object], sent: str, expected: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine], classify=classify) as proxy:
        answer = await proxy.ask(post(body={"prompt": [1, 2]}, headers=(("x-adaptive-gamma-class", sent),)))
        assert answer.one("x-adaptive-gamma-class") == expected
        assert engine.requests[0].one("x-adaptive-gamma-class") is None


async def test_class_header_of_another_name() -> None:
    async with GatedEngine() as engine, running_proxy([engine], classify={"header": "X-Task"}) as proxy:
        answer = await proxy.ask(post(body={"prompt": [1, 2]}, headers=(("x-task", "math"),)))
        assert answer.one("x-adaptive-gamma-class") == "structured"
        assert engine.requests[0].one("x-task") is None


async def test_retry_after_of_an_engine_is_kept() -> None:
    async with GatedEngine(answer_json(503, {}, [("retry-after", "11")])) as engine, running_proxy([engine]) as proxy:
        assert (await proxy.ask(post())).one("retry-after") == "11"
