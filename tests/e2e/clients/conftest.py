"""One proxy and its engines for all tests of this package: starting them takes longer than most tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache

import openai
import pytest
import pytest_asyncio

from adaptive_gamma.cli.demo.engines import first_draft
from adaptive_gamma.cli.demo.llama_server import LlamaServer
from adaptive_gamma.cli.demo.tiny_model import write_tiny_models
from tests.e2e.clients.apis import APIS, Api
from tests.e2e.clients.embedding_server import embedding_server
from tests.e2e.clients.making import openai_client
from tests.e2e.clients.stack import Stack, until
from tests.e2e.clients.tool_model import with_tools
from tests.support.running import needs_llama, running_serve

Engines = tuple[LlamaServer, LlamaServer, str]


@pytest.fixture(scope="package")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """A speculative one that verifies for real, a plain one, and one for embeddings."""
    needs_llama()
    folder = tmp_path_factory.mktemp("models")
    models = write_tiny_models(folder)
    target = with_tools(models.target, folder / "target.gguf")
    draft = with_tools(models.draft, folder / "draft.gguf")
    speculative = LlamaServer(target, draft=draft, gamma=3, slot_tokens=8192)
    plain = LlamaServer(target, slot_tokens=8192)
    with ExitStack() as started:
        for server in (speculative, plain):
            server.start()
            started.callback(server.stop)
        embedding_url = started.enter_context(embedding_server(models.target, "tiny-embed"))
        plain.wait_ready()
        first_draft(speculative.wait_ready())
        yield speculative, plain, embedding_url


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def running(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    speculative, plain, embedding_url = engines
    replicas = [
        {"name": "spec-0", "url": speculative.url, "engine": "llamacpp", "gamma": "auto", "model": "tiny"},
        {"name": "plain-0", "url": plain.url, "engine": "llamacpp", "gamma": 0, "model": "tiny"},
        # The same engines once more by names of their own, for tests that must know who answers.
        {"name": "spec-only", "url": speculative.url, "engine": "llamacpp", "gamma": "auto", "model": "tiny-spec"},
        {"name": "plain-only", "url": plain.url, "engine": "llamacpp", "gamma": 0, "model": "tiny-plain"},
        {"name": "embed-0", "url": embedding_url, "engine": "llamacpp", "gamma": 0},
    ]
    async with running_serve(
        tmp_path_factory.mktemp("serve"),
        policy="demo-llamacpp-cpu",
        replicas=replicas,
        limits={"body_bytes": 1 << 20},
    ) as serve:
        yield Stack(serve.url, str(serve.admin.base_url), speculative, plain, embedding_url)


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    """The running proxy; after each test nothing may be open at it, and no engine may work any more."""
    yield running
    running.wait_idle()


@pytest.fixture
def given_up(stack: Stack) -> Iterator[None]:
    """The test's one unfinished request is counted as left by the client, and the engine says that it gave it up."""
    left, cancelled = stack.left(), stack.cancelled_tasks()
    yield
    until(lambda: stack.cancelled_tasks() > cancelled, "a task cancelled at the engine")
    stack.wait_left(left + 1)
    stack.wait_idle()


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    """Each of the two libraries."""
    return APIS[request.param]


@pytest.fixture(scope="package")
def _shared_client(running: Stack) -> Iterator[openai.OpenAI]:
    with openai_client(running.url) as client:
        yield client


@pytest.fixture
def client(stack: Stack, _shared_client: openai.OpenAI) -> openai.OpenAI:
    """One client for all tests, as an application has one: what a test leaves behind would meet the next."""
    return _shared_client


@pytest.fixture(scope="package")
def direct(running: Stack) -> Iterator[Callable[[str], openai.OpenAI]]:
    """Gives a client of the engine behind a replica."""
    with ExitStack() as opened:
        yield cache(lambda replica: opened.enter_context(openai_client(running.engine(replica))))
