"""Real llama.cpp servers on tiny random models: the parts the demonstration and the end-to-end tests stand on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.cli.demo.llama_server import LlamaServer, LlamaServerError, available
from adaptive_gamma.cli.demo.prompts import CODE_PROMPTS, PROSE_PROMPTS
from adaptive_gamma.cli.demo.tiny_model import ModelPair, TinyShape, write_tiny_models
from adaptive_gamma.routing import classify_prompt

RATES = (0.8, 0.6, 0.4, 0.2)
MISSING = available()

if MISSING is not None and os.environ.get("CI") == "true" and "not installed" in MISSING:
    raise RuntimeError(f"the tests of the demonstration cannot run: {MISSING}")

needs_llama = pytest.mark.skipif(MISSING is not None, reason=f"no llama.cpp here: {MISSING}")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return write_tiny_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def plain(models: ModelPair) -> Iterator[LlamaServer]:
    with LlamaServer(models.target, slots=2) as server:
        yield server


@pytest.fixture(scope="module")
def speculative(models: ModelPair) -> Iterator[LlamaServer]:
    with LlamaServer(models.target, draft=models.draft, gamma=4, synthetic_rates=RATES, slots=4) as server:
        yield server


def get(server: LlamaServer, path: str) -> Any:
    with urllib.request.urlopen(server.url + path, timeout=10) as answer:
        return json.load(answer)


def counters(server: LlamaServer) -> dict[str, float]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line and line[0] != "#"]
    return {name.partition(":")[2]: float(value) for name, value in lines}


def chat(server: LlamaServer, content: str, tokens: int) -> Any:
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "cache_prompt": False}
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@needs_llama
def test_the_models_are_written_once_and_always_the_same(tmp_path: Path) -> None:
    shape = TinyShape(hidden=64, layers=2, feed_forward=64, heads=2, vocabulary=400)
    first = write_tiny_models(tmp_path / "a", shape)
    again = write_tiny_models(tmp_path / "b", shape)
    assert first.target.read_bytes() == again.target.read_bytes()
    assert first.draft.read_bytes() == again.draft.read_bytes()
    written = first.target.stat().st_mtime_ns
    assert write_tiny_models(tmp_path / "a", shape) == first
    assert first.target.stat().st_mtime_ns == written
    assert [path.name for path in (tmp_path / "a").iterdir()] == [first.target.parent.name]
    other = write_tiny_models(tmp_path / "a", TinyShape(hidden=64, layers=2, feed_forward=64, heads=2, vocabulary=401))
    assert other.target != first.target


def test_shapes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of heads"):
        TinyShape(hidden=100, heads=3)
    with pytest.raises(ValueError, match="draft_layers"):
        TinyShape(layers=2, draft_layers=3)
    with pytest.raises(ValueError, match="multiples of 32"):
        TinyShape(hidden=72, heads=4, weights="q8_0")


@needs_llama
def test_a_plain_server_answers_and_never_drafts(plain: LlamaServer) -> None:
    answer = chat(plain, "Write a haiku.", 40)
    assert answer["usage"]["completion_tokens"] == 40
    assert answer["choices"][0]["message"]["content"].isascii()
    assert "draft_n" not in answer["timings"]
    slots = get(plain, "/slots")
    assert [slot["speculative"] for slot in slots] == [False, False]
    assert [slot["n_ctx"] for slot in slots] == [1024, 1024]
    page = counters(plain)
    assert page["spec_decode_num_drafts_total"] == 0
    assert not any("per_pos" in name for name in page)


@needs_llama
def test_synthetic_acceptance_by_position(speculative: LlamaServer) -> None:
    assert [slot["speculative"] for slot in get(speculative, "/slots")] == [True] * 4
    before = counters(speculative)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: chat(speculative, f"def f{i}(x): return x", 200), range(24)))
    assert all(answer["usage"]["completion_tokens"] == 200 for answer in answers)
    assert all(answer["timings"]["draft_n_accepted"] > 0 for answer in answers)
    after = counters(speculative)
    drafts = after["spec_decode_num_drafts_total"] - before["spec_decode_num_drafts_total"]
    assert drafts > 1000
    for position, rate in enumerate(RATES):
        name = f'spec_decode_num_accepted_tokens_per_pos_total{{position="{position}"}}'
        assert (after[name] - before.get(name, 0.0)) / drafts == pytest.approx(rate, abs=0.08)


@needs_llama
def test_a_client_that_leaves_frees_its_slot(speculative: LlamaServer) -> None:
    host, port = speculative.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    body = {"prompt": "def f(x):", "n_predict": 900, "stream": True}
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    assert counters(speculative)["requests_processing"] == 1
    assert connection.sock is not None
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    answer.close()
    left = time.monotonic()
    while counters(speculative)["requests_processing"]:
        assert time.monotonic() - left < 0.5, "the slot is still busy half a second after the client left"


@needs_llama
async def test_the_handle_in_an_event_loop(models: ModelPair) -> None:
    async with LlamaServer(models.target, slots=1) as server:
        pid = server.pid
        assert get(server, "/v1/models")["data"][0]["id"] == "tiny"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(LlamaServerError, match="not ready"):
        print(server.url)
    server.stop()


@needs_llama
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = LlamaServer(tmp_path / "missing.gguf")
    server.start()
    try:
        with pytest.raises(LlamaServerError, match=r"ended with 1[\s\S]*"):
            server.wait_ready()
    finally:
        server.stop()


@needs_llama
def test_it_dies_with_its_parent(models: ModelPair) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom adaptive_gamma.cli.demo.llama_server import LlamaServer\n"
        "server = LlamaServer(Path(sys.argv[1]), slots=1)\nserver.start()\nserver.wait_ready()\n"
        "print(server.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(models.target)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert parent.stdout.read() == ""
    deadline = time.monotonic() + 10
    while _alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--synthetic-rates", "0.5,0.6", "--gamma", "2"], "never rise"),
        (["--synthetic-rates", "0.5"], "needs --draft"),
        (["--synthetic-rates", "0.5", "--draft", "d"], "exactly 4"),
    ],
)
def test_wrong_options(options: list[str], words: str) -> None:
    command = [sys.executable, "-m", "adaptive_gamma.cli.demo.llama_server", "--model", "m", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert words in done.stderr


def test_the_prompts_look_like_what_they_are() -> None:
    assert len(CODE_PROMPTS) == len(PROSE_PROMPTS) == 24
    assert {classify_prompt(prompt).name for prompt in CODE_PROMPTS} == {"structured"}
    assert {classify_prompt(prompt).name for prompt in PROSE_PROMPTS} == {"chat"}
    assert len({*CODE_PROMPTS, *PROSE_PROMPTS}) == 48
