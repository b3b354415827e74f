"""Answers whose status or method leaves no room for a body, whatever length an engine puts in their head."""

from __future__ import annotations

import logging

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

PATH = "/v1/allowed"


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("length", ["17", "0", None])
async def test_status_without_body(
    status: int, length: str | None, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(x: EngineExchange) -> None:
        x.head(status, [("etag", "e"), *([("content-length", length)] if length is not None else [])])

    request = f"GET {PATH} HTTP/{version}\r\nhost: a\r\n\r\n".encode()
    async with GatedEngine(script) as engine, running_proxy([engine], allow_paths=[PATH]) as proxy:
        with caplog.at_level(logging.WARNING):
            async with proxy.client() as client:
                for _ in range(1 if version == "1.0" else 3):
                    answer = await client.ask(request, "GET")
                    assert (answer.status, answer.one("etag")) == (status, "e")
                    assert answer.one("content-length") == (None if status == 204 else length)
                    assert answer.one("transfer-encoding") is None
                if version == "1.0":
                    assert await client.closed() == b""
        assert [record for record in caplog.records if record.name == "adaptive_gamma.proxy"] == []
        assert proxy.count("ok") == len(engine.requests)


async def test_head_with_a_length(caplog: pytest.LogCaptureFixture) -> None:
    async def script(x: EngineExchange) -> None:
        x.head(200, [("content-length", "12345")])

    request = f"HEAD {PATH} HTTP/1.1\r\nhost: a\r\n\r\n".encode()
    async with GatedEngine(script) as engine, running_proxy([engine], allow_paths=[PATH]) as proxy:
        with caplog.at_level(logging.WARNING):
            async with proxy.client() as client:
                for _ in range(2):
                    answer = await client.ask(request, "HEAD")
                    assert (answer.status, answer.one("content-length")) == (200, "12345")
        assert [record for record in caplog.records if record.name == "adaptive_gamma.proxy"] == []
        assert proxy.count("ok") == 2


async def test_a_body_that_must_not_be_there_is_dropped() -> None:
    async def script(x: EngineExchange) -> None:
        x.answer(304, b"stray")

    async with (
        GatedEngine(script) as engine,
        running_proxy([engine], allow_paths=[PATH]) as proxy,
        proxy.client() as client,
    ):
        for _ in range(2):
            answer = await client.ask(post(PATH, b"{}"))
            assert answer.status == 304
