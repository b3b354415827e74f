from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from adaptive_gamma.bench.sweep.asking import Asked, RequestForm, RequestOutcome, Slot
from adaptive_gamma.bench.sweep.dataset import Prompt
from adaptive_gamma.bench.sweep.http import Address
from tests.sweep.talking_engine import Exchange, Script, TalkingEngine, chat_events, text_event, usage_event

FORM = RequestForm("chat", "m", output_tokens=4, fixed_length=True)
ASKED = Asked(Prompt("prose", text="Dear aunt,"), "Request 7.\n\n")


async def ask(engine: TalkingEngine, *, form: RequestForm = FORM, timeout_s: float = 5.0) -> RequestOutcome:
    slot = Slot(Address.of(engine.url), time.perf_counter, timeout_s)
    try:
        return await slot.ask(form, ASKED)
    finally:
        slot.close()


async def test_a_whole_answer() -> None:
    async with TalkingEngine() as engine:
        outcome = await ask(engine)
    assert outcome.failure is None
    assert (outcome.output_tokens, outcome.prompt_tokens, outcome.finish_reason) == (4, 7, "length")
    assert outcome.ttft_s is not None
    assert outcome.tpot_s is not None
    assert outcome.duration_s is not None
    assert 0 < outcome.ttft_s <= outcome.ttft_s + 3 * outcome.tpot_s <= outcome.duration_s
    assert sum(outcome.gaps_s) <= 3 * outcome.tpot_s + 1e-9


async def test_what_is_asked() -> None:
    async with TalkingEngine() as engine:
        await ask(engine)
        await ask(engine, form=RequestForm("completions", "m", 9, fixed_length=False, temperature=0.5, seed=3))
    chat, completion = engine.requests
    assert chat.path == "/v1/chat/completions"
    assert chat.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Request 7.\n\nDear aunt,"}],
        "max_tokens": 4,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    assert completion.path == "/v1/completions"
    assert completion.body["prompt"] == "Request 7.\n\nDear aunt,"
    assert completion.body["seed"] == 3
    assert "ignore_eos" not in completion.body


async def _refuse(exchange: Exchange) -> None:
    await exchange.refuse(429, {"error": {"message": "too many", "type": "x"}})


async def _refuse_in_words(exchange: Exchange) -> None:
    await exchange.refuse(401, {"error": "Unauthorized"})


async def _silent(exchange: Exchange) -> None:
    await exchange.head()
    await asyncio.Event().wait()


async def _error_event(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.event(text_event("a"), {"error": {"message": "EngineCore died", "code": 500}})


async def _cut(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.event(text_event("a"))
    exchange.writer.close()


async def _without_usage(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.event(*chat_events(4)[:-1])
    await exchange.end()


async def _without_text(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.event(text_event("", "length"), usage_event(4))
    await exchange.end()


async def _without_reason(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.event(text_event("a"), usage_event(1))
    await exchange.end()


async def _aborted(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.event(text_event("a", "abort"), usage_event(1))
    await exchange.end()


@pytest.mark.parametrize(
    ("script", "failure", "detail"),
    [
        (_refuse, "status_429", "too many"),
        (_refuse_in_words, "status_401", "Unauthorized"),
        (_silent, "timeout", "0.2 s"),
        (_error_event, "engine_error", "EngineCore died"),
        (_cut, "protocol", "middle"),
        (_without_usage, "no_usage", "usage"),
        (_without_text, "no_text", "4 tokens"),
        (_without_reason, "protocol", "finish reason"),
        (_aborted, "aborted", "aborted"),
    ],
)
async def test_every_way_to_fail_has_its_word(script: Script, failure: str, detail: str) -> None:
    async with TalkingEngine(script) as engine:
        outcome = await ask(engine, timeout_s=0.2 if failure == "timeout" else 5.0)
    assert outcome.failure == failure
    assert detail in outcome.detail


async def test_an_engine_that_is_gone() -> None:
    async with TalkingEngine() as engine:
        pass
    outcome = await ask(engine)
    assert outcome.failure == "connect"
    assert outcome.detail


async def test_a_connection_that_rested_and_was_closed_is_made_anew() -> None:
    async def once(exchange: Exchange) -> None:
        await exchange.whole()
        exchange.writer.close()  # without saying so

    async with TalkingEngine(once) as engine:
        slot = Slot(Address.of(engine.url), time.perf_counter, 5.0)
        outcomes = [await slot.ask(FORM, ASKED) for _ in range(5)]
        slot.close()
    assert [outcome.failure for outcome in outcomes] == [None] * 5
    assert engine.connections == 5


async def test_events_count_for_nothing_where_the_engine_counts_tokens() -> None:
    async def bursts(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.event(text_event("three words here"))
        await exchange.event(text_event("and five more words, done", "length"))
        await exchange.event(usage_event(8))
        await exchange.end()

    async with TalkingEngine(bursts) as engine:
        outcome = await ask(engine)
    assert outcome.output_tokens == 8
    assert outcome.tpot_s is not None
    assert len(outcome.gaps_s) == 1
    assert outcome.tpot_s * 7 == pytest.approx(outcome.gaps_s[0])


async def test_an_answer_that_comes_at_once_was_not_seen_to_stream() -> None:
    async def at_once(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.event(*chat_events(4))
        await exchange.end()

    async with TalkingEngine(at_once) as engine:
        outcome = await ask(engine)
    assert outcome.failure is None
    assert outcome.ttft_s is not None
    assert outcome.tpot_s is None
    assert outcome.gaps_s == ()


async def test_what_an_engine_says_is_made_fit_to_show() -> None:
    async def rude(exchange: Exchange) -> None:
        await exchange.refuse(401, {"error": {"message": f"\x1b[31mno \ud800: {exchange.headers['authorization']}"}})

    async with TalkingEngine(rude) as engine:
        slot = Slot(Address.of(engine.url, {"authorization": "Bearer hush"}), time.perf_counter, 5.0)
        outcome = await slot.ask(FORM, ASKED)
        slot.close()
    assert outcome.detail == "[31mno  : Bearer ***"


async def test_a_count_beyond_reason_is_no_count() -> None:
    async def boast(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.event(text_event("a", "length"), usage_event(10**300))
        await exchange.end()

    async with TalkingEngine(boast) as engine:
        assert (await ask(engine)).failure == "no_usage"


async def test_one_token_has_no_time_per_token() -> None:
    async def one(exchange: Exchange) -> None:
        await exchange.whole(1)

    async with TalkingEngine(one) as engine:
        outcome = await ask(engine)
    assert outcome.failure is None
    assert outcome.tpot_s is None


async def test_a_client_that_gives_up_leaves() -> None:
    left = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        try:
            await exchange.head()
            while True:
                await exchange.event(text_event("a"))
                await asyncio.sleep(0.01)
        finally:
            left.set()

    async with TalkingEngine(wait) as engine:
        outcome = await ask(engine, timeout_s=0.1)
        assert outcome.failure == "timeout"
        async with asyncio.timeout(5):
            await left.wait()


def closing_values(outcome: RequestOutcome) -> list[Any]:
    return [event.get("usage") for event in outcome.closing]


async def test_the_closing_events_are_kept_for_the_dialect() -> None:
    async with TalkingEngine() as engine:
        outcome = await ask(engine)
    assert closing_values(outcome)[-1] == {"prompt_tokens": 7, "completion_tokens": 4}
