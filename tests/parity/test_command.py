"""``adaptive-gamma parity`` against replicas whose answers are known: its verdicts, its exit codes, its refusals."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from adaptive_gamma.cli.parity import command
from tests.parity.saying import Said, replica, words
from tests.sweep.talking_engine import Exchange, TalkingEngine, models_page

COMMAND = [sys.executable, "-m", "adaptive_gamma", "parity"]


@pytest.fixture
def prompts(tmp_path: Path) -> list[str]:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"p{n:02d} please", "class": "prose"}) + "\n" for n in range(16)))
    return ["--prompts", str(file)]


@contextlib.contextmanager
def serving(*engines: TalkingEngine) -> Iterator[None]:
    """The engines in a thread of their own: the command has the main one, for its signals."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def done(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(20)

    try:
        for engine in engines:
            done(engine.__aenter__())
        yield
    finally:
        for engine in engines:
            done(engine.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def urls(replicas: Sequence[TalkingEngine | str]) -> list[str]:
    return [part for one in replicas for part in ("--url", one if isinstance(one, str) else one.url)]


def run(replicas: Sequence[TalkingEngine | str], *options: str) -> tuple[int, str, str]:
    """The command in this process."""
    done = CliRunner().invoke(command, [*urls(replicas), *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def plain(prompt: str, request: int) -> Said:
    return words(prompt)


def other(prompt: str, request: int) -> Said:
    """From the fourth token on it says what the reference finds a nat less likely."""
    said = words(prompt)
    return [*said[:3], ("other", -1.3), *said[4:]]


def test_the_same_answers_are_no_difference_and_it_is_said_what_was_not_seen(prompts: list[str]) -> None:
    async def think(exchange: Exchange) -> bool:
        await asyncio.sleep(0.005)
        return False

    a, b = replica(plain, before=think), replica(plain, before=think)
    with serving(a, b):
        code, out, err = run([a, b], *prompts)
    assert code == 0, err
    assert "no difference found above the noise floor with 16 prompts" in out
    assert "would not have been seen" in out
    assert "lossless" not in out
    assert "the same text again in 16 one at a time, in 16 with 8 at once" in out
    assert [engine.most_open for engine in (a, b)] == [8, 8]
    assert {exchange.body["temperature"] for exchange in a.requests} == {0.0}


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_other_tokens_are_a_difference(prompts: list[str], endpoint: str) -> None:
    a = replica(plain)
    b = replica(other)
    with serving(a, b):
        code, out, _ = run([f"plain={a.url}", f"spec={b.url}"], *prompts, "--json", "--endpoint", endpoint)
    document = json.loads(out)
    assert (code, document["outcome"]) == (1, "difference_found")
    (candidate,) = document["candidates"]
    first = candidate["divergences"][0]
    assert (first["prompt"], first["token"], first["character"]) == (1, 3, 15)
    assert first["before"] == "p000 p001 p002 "
    assert first["candidate"].startswith("other")
    assert first["margin"] == pytest.approx(1.0)
    tests = {test["name"]: test for test in candidate["tests"]}
    assert {name for name, test in tests.items() if test["found"]} == {"texts", "margins"}
    assert tests["texts"]["effect"] == 1.0
    assert tests["texts"]["p_adjusted"] < 0.001
    assert document["reference"]["noise_floor"]["same_at_once"] == 16


def test_a_reference_that_differs_from_itself_as_much_is_the_floor(prompts: list[str]) -> None:
    def noisy(prompt: str, request: int) -> Said:
        return plain(prompt, request) if request % 3 else other(prompt, request)

    a = replica(noisy)
    b = replica(noisy)
    with serving(a, b):
        code, out, _ = run([a, b], *prompts, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["reference"]["noise_floor"]["same_alone"] < 16
    assert document["candidates"][0]["same_alone"] < 16
    a = replica(noisy)
    with serving(a):
        code, out, _ = run([a], *prompts)
    assert code == 0
    assert "noise floor, reference against itself, 16 prompts" in out


def test_a_reference_that_never_repeats_itself_leaves_nothing_to_see(prompts: list[str]) -> None:
    """A server that says the same nonsense to everything is not called the same as one whose texts are all random."""
    numbers = itertools.count()

    def random_text(prompt: str, request: int) -> Said:
        return [(f"{next(numbers)}", -1.0) for _ in range(6)]

    def broken(prompt: str, request: int) -> Said:
        return [("BROKEN", -1.0)] * 6

    a, b = replica(random_text, figures=False), replica(broken, figures=False)
    with serving(a, b):
        code, out, _ = run([a, b], *prompts, "--json", "--logprobs", "0")
    assert code == 2, out
    candidate = json.loads(out)["candidates"][0]
    assert candidate["outcome"] == "could_not_look"
    assert "no difference could have been seen" in candidate["verdict"]


def test_likelier_tokens_alike_but_other_figures_are_a_difference(prompts: list[str]) -> None:
    def flatter(prompt: str, request: int) -> Said:
        return [(token, logprob - 0.2) for token, logprob in words(prompt)]

    a = replica(plain)
    b = replica(flatter)
    with serving(a, b):
        code, out, _ = run([a, b], *prompts)
        tolerant, _, _ = run([a, b], *prompts, "--tolerance", "0.25")
    assert code == 1
    assert "the same tokens after the same text get other log-probabilities (0.2 against 0 nats a token" in out
    assert "the same text in 16 one at a time" in out
    assert tolerant == 0


def test_without_log_probabilities_texts_are_compared_all_the_same(prompts: list[str]) -> None:
    async def refuse(exchange: Exchange) -> bool:
        if "logprobs" in exchange.body:
            await exchange.refuse(400, {"error": {"message": "logprobs are off under adaptive verification"}})
            return True
        return False

    a = replica(plain)
    b = replica(plain, before=refuse)
    c = replica(other, figures=False)
    with serving(a, b, c):
        code, out, _ = run([a, f"refuses={b.url}", f"lacks={c.url}"], *prompts)
    assert code == 1
    assert "refuses log-probabilities (logprobs are off under adaptive verification)" in out
    assert "gives no log-probabilities: only its texts are compared" in out
    assert "refuses: no difference found" in out
    assert "lacks: difference found" in out
    assert "the reference holds its own token 1 nats likelier" in out, "the reference's own figures tell that"


def test_a_replica_that_dies_leaves_a_partial_result_and_no_verdict(prompts: list[str]) -> None:
    a, b = replica(plain), replica(plain)

    async def die(exchange: Exchange) -> bool:
        if len(b.requests) < 40:
            return False
        b._server.close()
        exchange.writer.transport.abort()
        return True

    b.script = replica(plain, before=die).script
    with serving(a, b):
        code, out, err = run([a, b], *prompts, "--json")
    document = json.loads(out)
    assert code == 2, err
    assert document["outcome"] == "could_not_look"
    assert "stopped after 8 of 16 prompts" in document["prompts"]["partial"]
    assert "which is no verdict" in document["candidates"][0]["verdict"]
    assert document["candidates"][0]["prompts"] == 8


def test_a_difference_in_the_part_that_was_seen_is_one(prompts: list[str]) -> None:
    async def fail(exchange: Exchange) -> bool:
        content = exchange.body["messages"][0]["content"]
        if content[:3] in ("p02", "p05", "p11") and exchange.body["max_tokens"] > 4:
            await exchange.refuse(500, {"error": {"message": "a\x1b[31m fault"}})
            return True
        return False

    a = replica(plain)
    b = replica(other, before=fail)
    c = replica(plain, before=fail)
    with serving(a, b, c):
        code, out, _ = run([a, b], *prompts)
        unsure, told, _ = run([a, c], *prompts)
    assert code == 1
    assert "(only 13 of 16 prompts were answered in every run)" in out
    assert "failed: 6 requests to candidate-1: status_500: a [31m fault" in out
    assert unsure == 2
    assert "which is no verdict" in told


def test_a_replica_that_hangs_is_left_after_its_time(prompts: list[str]) -> None:
    async def hang(exchange: Exchange) -> bool:
        if exchange.body["max_tokens"] > 4:
            await asyncio.Event().wait()
        return False

    a = replica(plain, before=hang)
    with serving(a):
        code, out, _ = run([a], *prompts, "--timeout", "0.05", "--count", "8")
    assert code == 2
    assert "timeout: no whole answer within 0.05 s" in out


def test_answers_that_are_none(prompts: list[str]) -> None:
    async def page(exchange: Exchange) -> bool:
        await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>")
        return True

    html = TalkingEngine(pages={"/v1/models": "<html>welcome</html>"})
    a = replica(plain)
    b = replica(plain, before=page)
    with serving(html, a, b):
        web, _, told = run([a, html], *prompts)
        late, _, later = run([a, b], *prompts)
    assert (web, late) == (2, 2)
    assert "answers HTML (HTTP 200): this is a web page" in told
    assert "answered with an HTML page" in later


def test_other_reasons_not_to_look(prompts: list[str], tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text('{"prompt": "hello"}\n')
    a = replica(plain)
    with serving(a):
        a.pages["/v1/models"] = models_page("m", "n")
        several, _, which = run([a], *prompts)
        unknown, _, no_such = run([a], *prompts, "--model", "k")
        few, _, too_few = run([a], "--prompts", str(one), "--model", "m")
        gone, _, unreachable = run([a, "http://127.0.0.1:9"], *prompts, "--model", "m")
        a.pages["/v1/models"] = (401, "")
        locked, _, key = run([a], *prompts)
        named, _, absent = run([a], *prompts, "--api-key-env", "NO_SUCH")
    assert (several, unknown, few, gone, locked, named) == (2, 2, 2, 2, 2, 2)
    assert "name one with --model: m, n" in which
    assert "serves no 'k'" in no_such
    assert "1 prompts can show nothing at --alpha 0.01" in too_few
    assert "is unreachable" in unreachable
    assert "--api-key-env" in key
    assert "'NO_SUCH'" in absent


def test_the_key_is_sent_and_never_shown(prompts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(exchange: Exchange) -> bool:
        if exchange.headers.get("authorization") == "Bearer hush-4711" and "p03" not in str(exchange.body):
            return False
        await exchange.refuse(403, {"error": f"not with {exchange.headers.get('authorization')}"})
        return True

    monkeypatch.setenv("MY_KEY", "hush-4711")
    a = replica(plain, before=check)
    with serving(a):
        code, out, err = run([a], *prompts, "--api-key-env", "MY_KEY")
    assert code == 0, err
    assert "status_403" in out
    assert "hush-4711" not in out + err


def test_a_signal_ends_it_with_what_was_seen(prompts: list[str]) -> None:
    half = threading.Event()

    async def wait(exchange: Exchange) -> bool:
        if "p08" in str(exchange.body):
            half.set()
            await asyncio.Event().wait()
        return False

    a, b = replica(plain, before=wait), replica(other)
    with serving(a, b):
        process = subprocess.Popen([*COMMAND, *urls([a, b]), *prompts], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert half.wait(30)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 143
    assert "Traceback" not in err.decode()
    assert "partial: stopped after 8 of 16 prompts: SIGTERM" in out.decode()
