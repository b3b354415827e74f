"""Spans of requests: trace context passes as it is, or with ours between; what a span says; collectors that fail."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from typing import Any

import pytest

from adaptive_gamma.errors import ConfigurationError
from tests.support.gated_engine import GatedEngine, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.span_collector import CollectedSpan, SpanCollector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = (f"traceparent: 00-{TRACE}-{PARENT}-{flag}" for flag in ("01", "00"))
USAGE = {"choices": [{"text": "hi"}], "usage": {"prompt_tokens": 3, "completion_tokens": 17, "total_tokens": 20}}


def tracing(collector: SpanCollector, **more: Any) -> dict[str, Any]:
    return {"endpoint": collector.url, "headers": {"x-key": "hush"}, **more}


def asking(*lines: str, body: Any = None) -> bytes:
    """A request with these header lines."""
    return post(body=body, headers=tuple((name, value) for name, _, value in (line.partition(": ") for line in lines)))


async def spans_of(proxy: RunningProxy, collector: SpanCollector, count: int) -> list[CollectedSpan]:
    await asyncio.to_thread(proxy.plane.telling._tracer._provider.force_flush)  # type: ignore[union-attr]
    await until(lambda: len(collector.spans) >= count, f"{count} spans")
    assert len(collector.spans) == count
    return collector.spans


async def test_without_a_collector_trace_context_passes_as_it_is() -> None:
    lines = [SAMPLED, "tracestate: a=1", "tracestate: b=2", "baggage: user=x;p=1, k=v"]
    async with GatedEngine(answer_json()) as engine, running_proxy([engine]) as proxy:
        assert (await proxy.ask(asking(*lines))).status == 200
        (request,) = engine.requests
        assert request.all("traceparent") == [SAMPLED.split(": ")[1].encode()]
        assert request.all("tracestate") == [b"a=1", b"b=2"]
        assert request.all("baggage") == [b"user=x;p=1, k=v"]
        assert not proxy.plane.telling.active
    assert threading.active_count() < 50


async def test_our_span_stands_between_the_clients_and_the_engines() -> None:
    with SpanCollector() as collector:
        async with (
            GatedEngine(answer_json(200, USAGE)) as engine,
            running_proxy([engine], gammas=[3], tracing=tracing(collector)) as proxy,
        ):
            asked = asking(SAMPLED, "tracestate: a=1", "baggage: k=v", body={"model": "m", "prompt": "secret"})
            assert (await proxy.ask(asked)).status == 200
            (span,) = await spans_of(proxy, collector, 1)
            (request,) = engine.requests
    assert (span.trace_id, span.parent_span_id) == (TRACE, PARENT)
    assert request.one("traceparent") == f"00-{TRACE}-{span.span_id}-01".encode()
    assert request.one("tracestate") == b"a=1"
    assert request.one("baggage") == b"k=v"
    assert (span.name, span.kind, span.status) == ("POST /v1/chat/completions", 2, 0)
    assert 0 < span.end_ns - span.start_ns < 10e9
    said = span.attributes
    assert said["http.request.method"] == "POST"
    assert said["http.route"] == said["url.path"] == "/v1/chat/completions"
    assert said["http.response.status_code"] == 200
    assert (said["gen_ai.operation.name"], said["gen_ai.request.model"]) == ("chat", "m")
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (3, 17)
    assert (said["adaptive_gamma.replica"], said["adaptive_gamma.pool"]) == ("r0", "speculative")
    assert (said["adaptive_gamma.gamma"], said["adaptive_gamma.outcome"]) == (3, "ok")
    assert said["adaptive_gamma.ttft_s"] >= 0
    assert "secret" not in str(span)
    assert span.resource["service.name"] == "adaptive-gamma"
    assert collector.headers[0]["x-key"] == "hush"


@pytest.mark.parametrize(
    ("lines", "sample", "sent", "kept"),
    [
        ([UNSAMPLED, "tracestate: a=1"], 1.0, False, True),  # the incoming flag counts
        ([SAMPLED], 0.0, True, False),
        ([], 0.0, False, False),
        ([], 1.0, True, False),
        (["traceparent: 00-zz-1-01", "tracestate: a=1"], 1.0, True, False),
        ([SAMPLED, SAMPLED, "tracestate: a=1"], 1.0, True, False),
        ([f"traceparent: 00-{'0' * 32}-{PARENT}-01"], 1.0, True, False),
    ],
)
async def test_what_is_sampled_and_what_the_engine_sees(
    lines: list[str], sample: float, sent: bool, kept: bool
) -> None:
    with SpanCollector() as collector:
        async with (
            GatedEngine(answer_json()) as engine,
            running_proxy([engine], tracing=tracing(collector, sample=sample)) as proxy,
        ):
            assert (await proxy.ask(asking(*lines))).status == 200
            spans = await spans_of(proxy, collector, int(sent))
            (request,) = engine.requests
    parent = request.one("traceparent")
    assert parent is not None
    followed = lines == [SAMPLED]
    if kept:
        assert parent.decode() == UNSAMPLED.split(": ")[1]
        assert request.one("tracestate") == b"a=1"
    else:
        assert request.all("tracestate") == []
        assert (TRACE in parent.decode()) is followed
        assert parent.endswith(b"-01" if sent else b"-00")
    if spans:
        assert f"{spans[0].trace_id}-{spans[0].span_id}".encode() in parent


async def test_faults_are_errors_and_leaving_is_none() -> None:
    with SpanCollector() as collector:
        async with (
            GatedEngine(answer_json(500, {"error": "x"})) as engine,
            running_proxy([engine], tracing=tracing(collector)) as proxy,
        ):
            assert (await proxy.ask(post())).status == 500
            assert (await proxy.ask(b"POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")).status == 404

            async def silent(exchange: Any) -> None:
                await exchange.gone()

            engine.script = silent
            async with proxy.client() as client:
                client.send(post())
                await engine.arrived(2)
                client.drop()
            await proxy.counted("client_closed")
            spans = await spans_of(proxy, collector, 3)
    fault, unknown, left = sorted(spans, key=lambda span: span.start_ns)
    assert (fault.status, fault.attributes["error.type"]) == (2, "500")
    assert (unknown.name, unknown.status) == ("POST", 0)
    assert "http.route" not in unknown.attributes
    assert (left.status, left.attributes["adaptive_gamma.outcome"]) == (0, "client_closed")
    assert "error.type" not in left.attributes


async def test_a_collector_that_hangs_or_refuses_costs_spans_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with SpanCollector(status=400) as collector:
        collector.gate.clear()
        async with (
            GatedEngine(answer_json()) as engine,
            running_proxy([engine], tracing=tracing(collector)) as proxy,
        ):
            tracer = proxy.plane.telling._tracer
            assert tracer is not None
            for _ in range(5):
                assert (await proxy.ask(post())).status == 200
            tracer._ended = 8192  # as if so many waited
            assert (await proxy.ask(post())).status == 200
            assert tracer.counts()["dropped"] == 1
            collector.gate.set()
            await until(lambda: tracer.counts()["failed"] == 5, "the refusal")
            page = (await proxy.admin("/metrics")).body.decode()
    assert 'adaptive_gamma_trace_spans_total{result="failed"} 5.0' in page
    assert 'adaptive_gamma_trace_spans_total{result="dropped"} 1.0' in page
    assert "hush" not in caplog.text


async def test_a_collector_that_is_down_costs_spans_and_nothing_else() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/traces"
        async with (
            GatedEngine(answer_json()) as engine,
            running_proxy([engine], tracing={"endpoint": endpoint, "timeout_s": 0.2}) as proxy,
        ):
            tracer = proxy.plane.telling._tracer
            assert tracer is not None
            for _ in range(5):
                assert (await proxy.ask(post())).status == 200
            await until(lambda: tracer.counts()["failed"] == 5, "all are counted as failed")
            page = (await proxy.admin("/metrics")).body.decode()
            status = json.loads((await proxy.admin("/status")).body)["telling"]["tracing"]
    assert 'adaptive_gamma_trace_spans_total{result="failed"} 5.0' in page
    assert status["failed"] == 5


async def test_the_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"tracing\.endpoint: needs the extra otel: pip install"):
        async with (
            GatedEngine() as engine,
            running_proxy([engine], tracing={"endpoint": "http://127.0.0.1:9/v1/traces"}),
        ):
            pass


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"endpoint": "127.0.0.1:4318"}, "expected http://host:port/v1/traces"),
        ({"endpoint": "http://127.0.0.1:4318"}, "the whole url"),
        ({"endpoint": "http://me:pw@a/v1/traces"}, "credentials do not belong"),
        ({"headers": {"a b": "c"}}, "names of header fields"),
        ({"headers": {"a": "c\r\nd"}}, "visible ASCII"),
        ({"sample": 2}, "less than or equal to 1"),
    ],
)
async def test_wrong_settings_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        async with running_proxy(["http://127.0.0.1:9"], tracing=values):
            pass
