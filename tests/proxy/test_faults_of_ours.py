"""What a fault in the proxy's own code does to the request that meets it: it is answered or cut, counted and logged."""

from __future__ import annotations

import logging

import pytest

from adaptive_gamma.proxy.metrics import Histogram
from adaptive_gamma.routing import RequestClassifier
from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy


class _Fault(Exception):
    """Raised where no code expects it."""


class _BrokenHistogram(Histogram):
    def observe(self, seconds: float) -> None:
        raise _Fault


class _BrokenClassifier(RequestClassifier):
    def classify(self, **_: object) -> str:
        raise _Fault


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def test_before_an_engine_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        good = proxy.plane.classifier
        proxy.plane.classifier = _BrokenClassifier()
        answer = await proxy.ask(post())
        assert (answer.status, answer.error_code) == (500, "internal_error")
        assert engine.requests == []
        proxy.plane.classifier = good
        assert (await proxy.ask(post())).status == 200
        await proxy.ended(internal_error=1, ok=1)
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


async def test_at_the_head_of_an_answer() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        proxy.plane.metrics.first_byte["plain"] = _BrokenHistogram()
        client.send(post())
        x = await engine.arrived()
        x.answer(200, b"{}")
        answer = await client.answer()
        assert (answer.status, answer.error_code) == (500, "internal_error")
        await x.gone()
        await proxy.ended(internal_error=1)


async def test_at_the_end_of_an_answer() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        proxy.plane.metrics.duration["plain"] = _BrokenHistogram()
        client.send(post())
        x = await engine.arrived()
        x.head()
        x.chunk(b"one")
        head = await client.head()
        assert await client.chunk() == b"one"
        x.end()
        answer = await client.rest(head)
        assert not answer.complete
        await proxy.ended(internal_error=1)
