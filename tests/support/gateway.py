"""A gateway's side of ext_proc, message by message, and the picker inside the test's process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import grpc

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.picker import Picker, PickerServer
from adaptive_gamma.envoy.picker.wire import (
    EXT_PROC_SERVICE,
    HEALTH_SERVICE,
    BodyMode,
    HealthCheckRequest,
    HealthCheckResponse,
    ProcessingRequest,
    ProcessingResponse,
)
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy, load_policy
from tests.support.gated_engine import DEADLINE_S, until
from tests.support.scripted_engine import Reply, ScriptedEngine

__all__ = [
    "CODE",
    "DESTINATION",
    "DUPLEX",
    "POLICY",
    "PROSE",
    "Gateway",
    "RunningPicker",
    "Stream",
    "busy_engine",
    "immediate",
    "picked",
    "running_picker",
]

POLICY = "demo-llamacpp-cpu"
"""In which, with five requests everywhere, two draft tokens still pay for code and no more for prose."""
CODE = {"model": "m", "prompt": "```python\ndef f(x):\n    return x\n```\nfix the bug in this function"}
PROSE = {"model": "m", "prompt": "Tell me a story about a garden, please, and how I should feel about it."}
DESTINATION = "x-gateway-destination-endpoint"
DUPLEX = BodyMode.FULL_DUPLEX_STREAMED
_METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} %d
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} %d
"""


@cache
def _policy() -> Policy:
    return load_policy(POLICY)


def busy_engine(running: int = 5, waiting: int = 0, models: Sequence[str] = ("m",)) -> ScriptedEngine:
    """An engine that says it has so much to do."""
    listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in models]}
    return ScriptedEngine(
        {
            "/metrics": Reply((_METRICS % (running, waiting)).encode()),
            "/health": Reply(b"ok"),
            "/v1/models": Reply(json.dumps(listed).encode(), headers={"content-type": "application/json"}),
        }
    )


class Stream:
    """One request's stream; every wait is bounded."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, **parts: Any) -> None:
        await self.call.write(ProcessingRequest(**parts).SerializeToString())

    async def headers(
        self,
        path: str = "/v1/completions",
        method: str = "POST",
        *,
        end: bool = False,
        mode: int | None = DUPLEX,
        response_mode: int = BodyMode.NONE,
        subset: list[str] | str | None = None,
        **more: str,
    ) -> None:
        """The first message. ``subset`` is the hint, in either of its forms; ``mode`` None tells no mode."""
        pairs = {
            ":method": method,
            ":path": path,
            ":authority": "a",
            **{k.replace("_", "-"): v for k, v in more.items()},
        }
        fields = [{"key": key, "raw_value": value.encode()} for key, value in pairs.items()]
        message: dict[str, Any] = {"request_headers": {"headers": {"headers": fields}, "end_of_stream": end}}
        if mode is not None:
            message["protocol_config"] = {"request_body_mode": mode, "response_body_mode": response_mode}
        if subset is not None:
            if isinstance(subset, str):
                hint: dict[str, Any] = {"string_value": subset}
            else:
                hint = {"list_value": {"values": [{"string_value": each} for each in subset]}}
            fields_of_hint = {"fields": {"x-gateway-destination-endpoint-subset": hint}}
            message["metadata_context"] = {"filter_metadata": {"envoy.lb.subset_hint": fields_of_hint}}
        await self.send(**message)

    async def body(self, body: object, *, end: bool = True) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.send(request_body={"body": data, "end_of_stream": end})

    async def answer(self) -> Any:
        """The next answer; None at the stream's end."""
        async with asyncio.timeout(DEADLINE_S):
            got = await self.call.read()
        return None if got is grpc.aio.EOF else ProcessingResponse.FromString(got)

    async def ended(self) -> grpc.StatusCode:
        """How the picker closed the stream, without another answer."""
        assert await self.answer() is None
        code: grpc.StatusCode = await self.call.code()
        return code


@dataclass
class Picked:
    endpoint: str
    shown: dict[str, str]
    removed: list[str]
    set_headers: dict[str, str]


def picked(answer: Any, kind: str = "request_headers") -> Picked:
    """What an answer says of where the request goes; header and metadata must agree."""
    assert answer is not None
    assert answer.WhichOneof("response") == kind, answer
    common = getattr(answer, kind).response
    options = common.header_mutation.set_headers
    assert all(option.append_action == 2 for option in options)  # overwrites what the client sent
    put = {option.header.key: option.header.raw_value.decode() for option in options}
    metadata = answer.dynamic_metadata.fields
    assert metadata["envoy.lb"].struct_value.fields[DESTINATION].string_value == put[DESTINATION]
    assert common.clear_route_cache
    own = metadata["adaptive_gamma"].struct_value.fields
    shown = {key: own[key].string_value for key in own}
    return Picked(put[DESTINATION], shown, list(common.header_mutation.remove_headers), put)


def immediate(answer: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and the error of an answer in an engine's place."""
    assert answer is not None
    assert answer.WhichOneof("response") == "immediate_response", answer
    said = answer.immediate_response
    headers = {option.header.key: option.header.raw_value.decode() for option in said.headers.set_headers}
    assert headers["content-type"] == "application/json"
    error: dict[str, Any] = json.loads(said.body)["error"]
    return said.status.code, headers, error


class Gateway:
    """A channel to a picker."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._process = channel.stream_stream(f"/{EXT_PROC_SERVICE}/Process")
        self._check = channel.unary_unary(f"/{HEALTH_SERVICE}/Check")
        self._watch = channel.unary_stream(f"/{HEALTH_SERVICE}/Watch")

    def stream(self, *, envoy: bool = True) -> Stream:
        """A stream as Envoy opens it, or as another gateway does."""
        return Stream(self._process(metadata=(("x-envoy-internal", "true"),) if envoy else ()))

    async def health(self, service: str) -> int:
        answer = await self._check(HealthCheckRequest(service=service).SerializeToString(), timeout=DEADLINE_S)
        status: int = HealthCheckResponse.FromString(answer).status
        return status

    def watch(self, service: str) -> Any:
        return self._watch(HealthCheckRequest(service=service).SerializeToString())

    async def ask(self, body: object, **head: Any) -> Any:
        """One request in duplex, whole; the answer to its headers."""
        stream = self.stream()
        await stream.headers(**head)
        await stream.body(body)
        answer = await stream.answer()
        await drained(stream)
        return answer


async def drained(stream: Stream) -> list[Any]:
    """All further answers up to the stream's clean end."""
    answers = []
    while (answer := await stream.answer()) is not None:
        answers.append(answer)
    assert await stream.call.code() == grpc.StatusCode.OK
    return answers


@dataclass
class RunningPicker:
    picker: Picker
    server: PickerServer
    gateway: Gateway
    endpoints: list[str]
    """``ip:port`` of the replicas r0, r1, ..."""


@asynccontextmanager
async def running_picker(
    engines: Sequence[ScriptedEngine | str],
    gammas: Sequence[int] | None = None,
    *,
    looked: bool = True,
    options: dict[str, Any] | None = None,
    server_options: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[RunningPicker]:
    """A picker in the clear for replicas r0, r1, ..., once it has looked at them."""
    urls = [engine if isinstance(engine, str) else engine.url for engine in engines]
    values: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "policy": POLICY,
        "scrape": {"interval_s": 60, "timeout_s": 10, "stale_after_s": 3600},
        "health": {"interval_s": 3600, "ramp_s": 0},
        "replicas": [
            {"name": f"r{index}", "url": url, "gamma": gammas[index] if gammas else 0} for index, url in enumerate(urls)
        ],
    }
    loaded = Settings(**{**values, **settings})
    policy = _policy()
    own = options or {}
    fleet = Fleet.of(loaded, policy, clock=own.get("clock", time.monotonic))
    picker = Picker(loaded, fleet, policy, **own)
    server = PickerServer(picker, "127.0.0.1:0", **(server_options or {}))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            if looked:
                await until(lambda: picker.picks_are_answered, "every replica looked at")
                await fleet.check_health_once()
            yield RunningPicker(picker, server, Gateway(channel), [url.removeprefix("http://") for url in urls])
    finally:
        await server.stop(linger_s=0, grace_s=0)
