"""What was learned, on the admin pages of a proxy that serves, and the table that follows it."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.policy import load_policy
from tests.proxy.reports import HELLO
from tests.support.gated_engine import GatedEngine, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import POLICY, RunningProxy, running_proxy

STEPS = 200
HISTOGRAM = [140, 42, 13, 5]
"""Of 200 drafts of 3 tokens: accepted at 0.3 each, where the policy believes 0.73 and more."""
REPORT = {
    "num_spec_steps": STEPS,
    "num_draft_tokens": 3 * STEPS,
    "num_accepted_draft_tokens": sum(j * n for j, n in enumerate(HISTOGRAM)),
    "acceptance_histogram": HISTOGRAM,
    "num_spec_tokens": 3,
}
ANSWER: dict[str, Any] = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "one two"}, "finish_reason": "stop"}],
    "metrics": {"speculative_decoding": REPORT},
}


async def learn(proxy: RunningProxy, answers: int = 12) -> None:
    """So many chat answers, and a look at what they taught."""
    for _ in range(answers):
        await proxy.ask(post(body=HELLO, headers=(("x-adaptive-gamma-class", "chat"),)))
    learning = proxy.plane.learning
    assert learning is not None
    await learning.review()
    await learning.rebuilt()


async def policy_page(proxy: RunningProxy) -> dict[str, Any]:
    page: dict[str, Any] = json.loads((await proxy.admin("/policy")).body)
    return page


async def test_prior_and_learned_stand_side_by_side_and_the_table_follows() -> None:
    async with (
        GatedEngine(answer_json(200, ANSWER)) as engine,
        running_proxy([engine], gammas=[3], learn={"rebuild_s": 0.1}) as proxy,
    ):
        before = await policy_page(proxy)
        assert before["learned"]["table_from"] == "file"
        assert before["learned"]["drafters"]["eagle3"]["chat"]["trials"] == []
        await learn(proxy)
        page = await policy_page(proxy)
        learned = page["learned"]["drafters"]["eagle3"]["chat"]
        assert page["learned"] | {"drafters": None} == {
            "drafter": "eagle3", "rebuilds": 1, "table_from": "learned", "drafters": None,
        }  # fmt: skip
        assert learned["prior"]["conditional"][0] == pytest.approx(load_policy(POLICY).curves["chat"].conditional_at(1))
        assert learned["learned"]["conditional"][0] == pytest.approx(0.3, abs=0.05)
        assert learned["drifted"]
        assert not learned["inferred"]
        assert len(learned["trials"]) == len(learned["error"]) == len(learned["interval"]) == 3
        assert page["table"]["chat"] != before["table"]["chat"]
        assert page["table"]["structured"] == before["table"]["structured"]
        assert proxy.plane.chooser.policy is proxy.plane.fleet.policy is proxy.plane.policy
        metrics = await proxy.metrics()
        chat, structured = {"class": "chat"}, {"class": "structured"}
        assert list(metrics.values("acceptance", position="0", **chat)) == [pytest.approx(0.3, abs=0.05)]
        assert list(metrics.values("acceptance_drifted", **chat)) == [1]
        assert list(metrics.values("acceptance_drifted", **structured)) == [0]
        assert list(metrics.values("policy_rebuilds_total")) == [1]
        assert list(metrics.values("learn_state_failures_total")) == [0]


async def test_learning_that_is_off_shows_nothing_and_changes_nothing() -> None:
    async with (
        GatedEngine(answer_json(200, ANSWER)) as engine,
        running_proxy([engine], gammas=[3], learn={"enabled": False}) as proxy,
    ):
        for _ in range(12):
            await proxy.ask(post(body=HELLO, headers=(("x-adaptive-gamma-class", "chat"),)))
        assert proxy.plane.learning is None
        assert (await policy_page(proxy))["learned"] is None
        assert "adaptive_gamma_acceptance_drifted" not in (await proxy.admin("/metrics")).body.decode()


async def test_a_reload_keeps_what_was_learned_and_may_switch_learning_off_and_on(tmp_path: Path) -> None:
    state = tmp_path / "learned.json"
    async with (
        GatedEngine(answer_json(200, ANSWER)) as engine,
        running_proxy([engine], gammas=[3], learn={"rebuild_s": 0.1, "state_file": str(state)}) as proxy,
    ):
        await learn(proxy)
        plane = proxy.plane
        on, policy = plane.settings, load_policy(POLICY)
        plane.apply(on, policy)
        assert plane.policy is policy, "the file's table, until the next look"
        assert plane.learning is not None
        await plane.learning.review()
        await plane.learning.rebuilt()
        assert plane.policy is not policy
        plane.apply(on.model_copy(update={"learn": on.learn.model_copy(update={"enabled": False})}), policy)
        assert plane.learning is plane.fleet.learning is None
        await until(state.exists, "the state file, written at the end of learning")
        plane.apply(on, policy)
        assert plane.learning.curves()["chat"].trials


async def test_a_table_that_is_done_as_learning_ends_comes_into_force_no_more() -> None:
    """A reload may end learning between the making of a table and the moment it would be put in force."""
    with ThreadPoolExecutor(max_workers=1) as worker:
        asyncio.get_running_loop().set_default_executor(worker)
        async with (
            GatedEngine(answer_json(200, ANSWER)) as engine,
            running_proxy([engine], gammas=[3], learn={"rebuild_s": 0.1}) as proxy,
        ):
            plane, policy = proxy.plane, load_policy(POLICY)
            learning, on = plane.learning, plane.settings
            assert learning is not None
            for _ in range(12):
                await proxy.ask(post(body=HELLO, headers=(("x-adaptive-gamma-class", "chat"),)))
            go = threading.Event()
            worker.submit(go.wait)
            await learning.review()
            await asyncio.sleep(0)  # the table is asked of the worker
            go.set()
            worker.submit(bool).result()  # and has been made
            await asyncio.sleep(0)  # which the loop knows, and who waits for it does not yet
            plane.apply(on.model_copy(update={"learn": on.learn.model_copy(update={"enabled": False})}), policy)
            await proxy.ask(post())  # what was under way has ended
            assert plane.policy is plane.fleet.policy is policy
