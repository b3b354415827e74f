"""Header fields that are odd, forged, repeated or named by others, in both directions."""

from __future__ import annotations

import json
import logging
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.raw_client import Answer, post
from tests.support.running_proxy import running_proxy
from tests.support.served import serve

KEY = "sk-engine-7f3a9c2e"


def _sent(engine: GatedEngine, *names: str) -> list[tuple[str, str]]:
    """The fields of these names in the order in which the engine got them."""
    return [
        (name.decode().lower(), value.decode("latin-1"))
        for name, value in engine.requests[-1].headers
        if name.decode().lower() in names
    ]


def _got(answer: Answer, *names: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in answer.headers if name in names]


async def test_repeated_fields_keep_their_order_both_ways() -> None:
    fields = [
        ("x-a", "1"),
        ("x-b", "1"),
        ("x-a", "2"),
        ("cookie", "a=1"),
        ("x-b", "2"),
        ("cookie", "b=2"),
        ("x-a", "3"),
    ]
    back = [("set-cookie", f"c{number}=v; Path=/; Expires=Wed, 09 Jun 2030 10:18:14 GMT") for number in range(4)]
    mixed = [back[0], ("link", "<a>"), back[1], ("vary", "x"), back[2], ("link", "<b>"), ("vary", "y"), back[3]]
    async with GatedEngine(answer_json(headers=mixed)) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=tuple(fields)))
        assert _sent(engine, "x-a", "x-b", "cookie") == fields
        assert _got(answer, "set-cookie", "link", "vary") == mixed


async def test_everything_named_by_connection_is_left_out_both_ways() -> None:
    """In several fields, in any case, with empty elements; what we set ourselves is not ours to lose."""
    named = (
        ("Connection", "X-One,, x-two"),
        ("X-One", "1"),
        ("connection", "X-THREE, content-length, host, x-request-id, x-adaptive-gamma-replica"),
        ("x-two", "2"),
        ("x-Three", "3"),
        ("x-four", "4"),
    )
    async with (
        GatedEngine(answer_json(headers=named)) as engine,
        running_proxy([engine]) as proxy,
        proxy.client() as client,
    ):
        for _ in range(2):
            answer = await client.ask(post(headers=named))
            for name in ("connection", "x-one", "x-two", "x-three"):
                assert _sent(engine, name) == _got(answer, name) == []
            assert _sent(engine, "x-four") == _got(answer, "x-four") == [("x-four", "4")]
            assert answer.one("x-adaptive-gamma-replica") == "r0"
            assert answer.one("x-request-id") is not None
            assert len(_sent(engine, "host")) == len(_sent(engine, "content-length")) == 1
        assert len({request.connection for request in engine.requests}) == 1


async def test_authorization_named_by_connection_does_not_pass() -> None:
    headers = (("authorization", "Bearer client"), ("connection", "Authorization"))
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        await proxy.ask(post(headers=headers))
        assert _sent(engine, "authorization", "connection") == []
    async with GatedEngine() as engine, running_proxy([engine], engine_api_key=KEY) as proxy:
        await proxy.ask(post(headers=headers))
        assert _sent(engine, "authorization") == [("authorization", f"Bearer {KEY}")]


HOP_BY_HOP = [
    ("keep-alive", "timeout=5, max=100"),
    ("proxy-authenticate", "Basic"),
    ("proxy-authorization", "Basic x"),
    ("proxy-connection", "keep-alive"),
    ("te", "trailers"),
    ("trailer", "x-t"),
    ("upgrade", "h2c"),
]


@pytest.mark.parametrize(("name", "value"), HOP_BY_HOP)
async def test_hop_by_hop_fields_stay_on_their_hop(name: str, value: str) -> None:
    async with GatedEngine(answer_json(headers=[(name, value)])) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=((name, value),)))
        assert answer.status == 200
        assert _sent(engine, name) == _got(answer, name) == []


@pytest.mark.parametrize("engine_has", ["both", "date", "server"])
async def test_one_date_and_one_server(engine_has: str) -> None:
    date, server = ("Date", "Mon, 01 Jan 2024 00:00:00 GMT"), ("Server", "engine")
    headers = {"both": [date, server], "date": [date], "server": [server]}[engine_has]
    async with GatedEngine(answer_json(headers=headers)) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post())
        if date in headers:
            assert answer.one("date") == date[1]
        if server in headers:
            assert answer.one("server") == "engine"


@pytest.mark.parametrize("head", [b"", b"Server: engine\r\n"])
async def test_an_answer_without_a_date_gets_one(head: bytes) -> None:
    """RFC 9110, 6.6.1: who has a clock dates a message that it passes on without a date."""

    async def script(x: EngineExchange) -> None:
        x.write(b"HTTP/1.1 200 OK\r\n" + head + b"content-length: 2\r\n\r\n{}")

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        date = (await proxy.ask(post())).one("date")
        assert date is not None
        assert parsedate_to_datetime(date).year >= 2024


async def test_own_answers_have_one_date_and_one_server() -> None:
    """Every answer that no engine made, from the parser's refusals to the model list."""
    async with GatedEngine(models=["m"]) as engine, running_proxy([engine], limits={"body_bytes": 100}) as proxy:
        await proxy.plane.fleet.check_health_once()
        requests = {
            404: post("/nothing"),
            405: b"GET /v1/completions HTTP/1.1\r\nhost: a\r\n\r\n",
            400: b"rubbish\r\n\r\n",
            413: post(body=b" " * 101),
            415: post(body=b"{}", headers=(("content-encoding", "br"),)),
            431: b"GET /v1/models HTTP/1.1\r\nx: " + b"y" * 70_000,
            505: b"GET /v1/models HTTP/2.0\r\nhost: a\r\n\r\n",
            200: b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
        }
        for status, request in requests.items():
            answer = await proxy.ask(request)
            assert answer.status == status
            date = answer.one("date")
            assert date is not None
            assert parsedate_to_datetime(date).year >= 2024
            assert answer.one("server") == "adaptive-gamma"
            assert answer.one("content-type") == "application/json"
            assert answer.one("content-length") == str(len(answer.body))
            if status != 200:
                error = json.loads(answer.body)["error"]
                assert set(error) >= {"message", "type", "code"}
                assert all(isinstance(error[key], str) and error[key] for key in ("message", "type", "code"))


FORGED = [
    "x-adaptive-gamma-replica",
    "X-Adaptive-Gamma-Pool",
    "X-ADAPTIVE-GAMMA-GAMMA",
    "x-adaptive-gamma-reason",
    "x-adaptive-gamma-anything-else",
    "x-adaptive-gamma-",
]


async def test_forged_fields_of_ours_are_taken_out_both_ways() -> None:
    forged = tuple((name, "r1") for name in FORGED)
    async with GatedEngine(answer_json(headers=forged)) as engine, running_proxy([engine], gammas=[2]) as proxy:
        answer = await proxy.ask(post(headers=forged))
        assert not [name for name, _ in engine.requests[0].headers if name.lower().startswith(b"x-adaptive")]
        own = {name: value for name, value in answer.headers if name.startswith("x-adaptive")}
        assert own == {
            "x-adaptive-gamma-replica": "r0",
            "x-adaptive-gamma-pool": "speculative",
            "x-adaptive-gamma-gamma": "2",
            "x-adaptive-gamma-class": own["x-adaptive-gamma-class"],
            "x-adaptive-gamma-reason": "only_replica",
        }
        assert len(_got(answer, *own)) == len(own)


async def test_forged_fields_do_not_route() -> None:
    forged = (("x-adaptive-gamma-replica", "r1"), ("x-adaptive-gamma-pool", "plain"))
    async with (
        GatedEngine() as one,
        GatedEngine() as two,
        running_proxy([one, two], replicas=_two(one, two)) as proxy,
    ):
        for _ in range(6):
            await proxy.ask(post(body={"model": "a", "prompt": "x"}, headers=forged))
        assert (len(one.requests), len(two.requests)) == (6, 0)


def _two(one: GatedEngine, two: GatedEngine) -> list[dict[str, object]]:
    return [
        {"name": "r0", "url": one.url, "gamma": 3, "model": "a"},
        {"name": "r1", "url": two.url, "gamma": 0, "model": "b"},
    ]


@pytest.mark.parametrize(
    "sent",
    [
        [("x-request-id", "one"), ("x-request-id", "two")],
        [("x-request-id", "one"), ("X-Request-Id", "one")],
        [("x-request-id", "bad id"), ("x-request-id", "good")],
        [("x-request-id", "\xff")],
        [("x-request-id", "a\tb")],
        [("x-request-id", "../../etc"), ("x-request-id", "")],
        [],
    ],
)
async def test_one_request_id_everywhere(sent: list[tuple[str, str]]) -> None:
    """The engine, the client and the records have the same one; an engine's own does not come through."""
    script = answer_json(headers=[("x-request-id", "engine's")])
    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=tuple(sent)))
        ids = {answer.one("x-request-id")}
        ids.add(_sent(engine, "x-request-id")[0][1])
        ids.update(row["request_id"] for row in await proxy.decisions())
        assert len(_sent(engine, "x-request-id")) == len(ids) == 1
        (only,) = ids
        assert only is not None
        assert only.replace("-", "").replace("_", "").replace(".", "").isalnum()


async def test_forwarded_for_is_added_to() -> None:
    headers = (("x-forwarded-for", "10.0.0.1"), ("x-b", "1"), ("X-Forwarded-For", "10.0.0.2, 10.0.0.3"))
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        await proxy.ask(post(headers=headers))
        assert _sent(engine, "x-forwarded-for") == [("x-forwarded-for", "10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1")]


NASTY = 'x\r\nset-cookie: a=b\r\n\r\n<script>"\u2028\x00'


async def test_what_a_body_says_ends_in_no_head_and_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with GatedEngine(models=["known"]) as engine, running_proxy([engine]) as proxy:
        await proxy.plane.fleet.check_health_once()
        with caplog.at_level(logging.INFO):
            answer = await proxy.ask(post(body={"model": NASTY, "prompt": "x", "user": NASTY}))
        assert (answer.status, answer.error_code) == (404, "model_not_found")
        assert answer.one("set-cookie") is None
        assert b"\r" not in answer.body
        assert "set-cookie" not in caplog.text
        page = (await proxy.admin("/metrics")).body.decode()
        assert "script" not in page


@pytest.mark.parametrize("path", ["/v1/x%0d%0aset-cookie:%20a=b", "/v1/%00", "/v1/x%0a%0a", "/v1/\\u2028"])
async def test_what_a_path_says_ends_in_no_head(path: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post(path))
        answer = await client.answer()
        assert answer.status == 404
        assert answer.one("set-cookie") is None
        assert b"\n" not in answer.body
        assert (await client.ask(post())).status == 200


@pytest.mark.parametrize("value", ["code\xff", "<script>", "a" * 10_000, "code, prose", ""])
async def test_odd_class_names_become_no_label_and_no_head(value: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(body={"prompt": [1]}, headers=(("x-adaptive-gamma-class", value),)))
        assert answer.one("x-adaptive-gamma-class") in ("unsure", "structured", "chat")
        page = await proxy.metrics()
        assert {labels["class"] for name, labels, _ in page.samples if "class" in labels} <= {
            "unsure",
            "structured",
            "chat",
            "none",
            "all",
        }


async def test_the_key_for_engines_is_told_to_engines_only(tmp_path: Path) -> None:
    """Not to clients, not on any page, not in the log; health and metrics of the engine get it, too."""

    async def echo(x: EngineExchange) -> None:
        if b"die" in x.request.body:
            x.die()
        else:
            x.answer(401, b'{"error":{"message":"wrong key"}}', [("www-authenticate", "Bearer")])

    async with GatedEngine(echo) as engine, serve(tmp_path, [engine], engine_api_key=KEY) as served:
        await served.ready()
        answers = []
        for body in (b'{"prompt":"x"}', b'{"prompt":"die"}', b"{"):
            async with served.client() as client:
                client.send(post("/v1/completions", body, (("authorization", "Bearer client"),)))
                answer = await client.answer()
                answers.append(answer.body + repr(answer.headers).encode())
        assert {request.one("authorization") for request in engine.requests} == {f"Bearer {KEY}".encode()}
        for path in ("/status", "/metrics", "/decisions", "/policy", "/openapi.json"):
            answers.append((await served.get(path))[1])
        said = b"\n".join(answers) + "\n".join(served.lines).encode()
        assert KEY.encode() not in said
        assert b"Bearer client" not in said
        scrapes = [bytes(each) for each in engine.received if b"GET /metrics" in each]
        assert scrapes
        assert all(f"Bearer {KEY}".encode() in each for each in scrapes)


async def test_many_and_long_fields_pass_both_ways() -> None:
    """Just below the limit of 64 KiB, in both directions."""
    fields = [(f"x-{number}", "v" * 990) for number in range(60)]
    async with GatedEngine(answer_json(headers=fields)) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=tuple(fields)))
        names = [name for name, _ in fields]
        assert _sent(engine, *names) == fields
        assert _got(answer, *names) == fields


async def test_bytes_beyond_ascii_in_values_pass_as_they_are() -> None:
    value = "é ÿ \xa0 x"

    async def script(x: EngineExchange) -> None:
        x.write(b"HTTP/1.1 200 OK\r\nx-title: " + value.encode("utf-8") + b"\r\ncontent-length: 2\r\n\r\n{}")

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        raw = post(headers=(("x-title", "@"),)).replace(b"@", value.encode("utf-8"))
        answer = await client.ask(raw)
        assert engine.requests[0].one("x-title") == value.encode("utf-8")
        assert answer.one("x-title") == value.encode("utf-8").decode("latin-1")
