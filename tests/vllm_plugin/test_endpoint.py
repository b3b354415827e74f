"""The route, on a real server, in front of an engine that takes what is in the file, or does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import fastapi
import httpx
import pytest
import uvicorn

from adaptive_gamma.vllm_plugin.endpoint import PATH, ScheduleEndpoint
from adaptive_gamma.vllm_plugin.files import FileError, read_object, refuse, write_object
from adaptive_gamma.vllm_plugin.governor import EngineLimits, ScheduleGovernor
from adaptive_gamma.vllm_plugin.settings import PluginSettings
from tests.vllm_plugin.test_governor import MAX_BATCH, Scheduler, lookup_of

TOKEN = "a-token-for-these-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gamma.json"


@pytest.fixture
async def client(file: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = fastapi.FastAPI()
    endpoint = ScheduleEndpoint(PluginSettings(file=file, token=TOKEN))
    endpoint.attach_router(app)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # it has no event
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, trust_env=False) as client:
        yield client
    server.should_exit = True
    await task


@pytest.fixture
def scheduler(file: Path) -> Iterator[Scheduler]:
    """An engine, idle, with its watch."""
    scheduler = Scheduler()
    limits = EngineLimits("0.32.0", 5, MAX_BATCH, ((1, MAX_BATCH, 5),), None)
    governor = ScheduleGovernor(scheduler, limits, file, lookup_of=lookup_of)
    governor.look()
    governor.start()
    yield scheduler
    governor.stop()


def message(answer: httpx.Response) -> str:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "code"}
    assert error["code"] == answer.status_code
    text: str = error["message"]
    assert TOKEN not in text
    return text


@pytest.mark.usefixtures("scheduler")
async def test_put_answers_when_the_engine_has_taken_it(client: httpx.AsyncClient) -> None:
    answer = await client.put(PATH, json={"schedule": [[1, 4, 2], [5, 8, 0]], "revision": "mine"})
    assert answer.status_code == 200
    assert (answer.json()["revision"], answer.json()["schedule"]) == ("mine", [[1, 4, 2], [5, 8, 0]])
    assert (await client.get(PATH)).json()["revision"] == "mine"
    assert (await client.head(PATH)).status_code == 200
    assert (await client.get(PATH)).json()["revision"] == "mine", "HEAD changes nothing"
    assert (await client.delete(PATH)).json()["schedule"] == [[1, 8, 5]]


@pytest.mark.usefixtures("scheduler")
async def test_changes_at_once_come_one_after_another(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.put(PATH, json={"schedule": [[1, 8, n % 6]]}) for n in range(12)))
    assert [(a.status_code, a.json()["schedule"]) for a in answers] == [(200, [[1, 8, n % 6]]) for n in range(12)]


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b"[]", "the body is"),
        (b'{"schedule": [[1, 8, 9]]}', "gamma 9 is not within 0 to 5"),
        (b'{"schedule": null}', "send DELETE"),
        (b'{"schedule": [[1, 8, 1]], "gamma": 1}', "the body is"),
        (b'{"schedule": [[1, 8, 1]], "revision": 7}', "revision is a text"),
        (b'{"schedule": [[1, 8, 1]], "revision": ""}', "revision is a text"),
    ],
)
async def test_what_is_wrong_with_a_body_is_said(client: httpx.AsyncClient, body: bytes, words: str) -> None:
    answer = await client.put(PATH, content=body)
    assert answer.status_code == 400
    assert words in message(answer)
    assert (await client.get(PATH)).json()["schedule"] == [[1, 8, 5]]


@pytest.mark.usefixtures("scheduler")
async def test_half_a_surrogate_pair_in_a_revision_is_no_fault(client: httpx.AsyncClient) -> None:
    answer = await client.put(PATH, content=b'{"schedule": [[1, 8, 1]], "revision": "half \\ud83d"}')
    assert (answer.status_code, (await client.get(PATH)).status_code) == (200, 200)
    assert answer.json()["schedule"] == [[1, 8, 1]]


@pytest.mark.usefixtures("scheduler")
async def test_a_body_has_an_end(client: httpx.AsyncClient) -> None:
    assert (await client.put(PATH, content=b" " * (1 << 19))).status_code == 413


@pytest.mark.usefixtures("scheduler")
async def test_a_revision_is_used_once(client: httpx.AsyncClient) -> None:
    asked = {"schedule": [[1, 8, 1]], "revision": "mine"}
    assert (await client.put(PATH, json=asked)).status_code == 200
    assert "used before" in message(await client.put(PATH, json=asked))


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer wrong-but-as-long-as-it", f"Basic {TOKEN}", f"Bearer{TOKEN}"]
)
async def test_without_the_token_there_is_no_answer(client: httpx.AsyncClient, method: str, given: str | None) -> None:
    client.headers.pop("authorization")
    headers = {} if given is None else {"authorization": given}
    answer = await client.request(method, PATH, headers=headers)
    assert answer.status_code == 401
    message(answer)


async def test_a_client_from_elsewhere_is_refused_unless_allowed(file: Path) -> None:
    for remote, status in ((False, 403), (True, 503)):
        app = fastapi.FastAPI()
        ScheduleEndpoint(PluginSettings(file=file, token=TOKEN, remote=remote)).attach_router(app)
        for address in ("10.0.0.7", "::ffff:10.0.0.7", "testclient"):
            transport = httpx.ASGITransport(app, client=(address, 4711))
            async with httpx.AsyncClient(transport=transport, base_url="http://vllm") as client:
                assert (await client.get(PATH, headers=HEADERS)).status_code == status
    for address in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"):
        app = fastapi.FastAPI()
        ScheduleEndpoint(PluginSettings(file=file, token=TOKEN)).attach_router(app)
        transport = httpx.ASGITransport(app, client=(address, 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://vllm") as client:
            assert (await client.get(PATH, headers=HEADERS)).status_code == 503


async def test_without_a_token_there_is_no_route(file: Path) -> None:
    app = fastapi.FastAPI()
    ScheduleEndpoint(PluginSettings(file=file)).attach_router(app)
    assert PATH not in {getattr(route, "path", None) for route in app.routes}


async def test_an_engine_that_tells_nothing(client: httpx.AsyncClient, file: Path) -> None:
    assert (await client.get(PATH)).status_code == 503
    write_object(file.with_name("gamma.state.json"), {"format": 1, "status": "ready", "written_at": time.time() - 60})
    answer = await client.put(PATH, json={"schedule": [[1, 8, 1]]})
    assert (answer.status_code, message(answer)) == (503, "the engine has told nothing for some time")
    with pytest.raises(FileError, match="No such file"):
        read_object(file)


async def test_an_engine_that_does_not_take_it_in_time(client: httpx.AsyncClient, file: Path) -> None:
    now = time.time()
    state = {"format": 1, "status": "ready", "max_gamma": 5, "revision": None, "written_at": now}
    write_object(file.with_name("gamma.state.json"), state)
    answer = await client.put(PATH, json={"schedule": [[1, 8, 1]]})
    assert answer.status_code == 503
    assert "within 1 s" in message(answer)
    assert read_object(file)["schedule"] == [[1, 8, 1]]


async def test_an_engine_that_refuses_says_why(client: httpx.AsyncClient, file: Path) -> None:
    refuse(file, "gamma cannot be set here")
    assert (await client.get(PATH)).json()["status"] == "refused"
    answer = await client.put(PATH, json={"schedule": [[1, 8, 1]]})
    assert (answer.status_code, message(answer)) == (409, "gamma cannot be set here")
