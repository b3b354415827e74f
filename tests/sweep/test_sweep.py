"""Whole sweeps over real sockets: what is recorded, what is refused, how it goes on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.bench import Source, row_from_json
from adaptive_gamma.bench.importers import read_sweep
from adaptive_gamma.bench.sweep import ArmSpec, Journal
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError, ConnectError, SweepError
from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.engine import serving
from tests.sweep.sweeping import RATES, Watcher, engine, few, simulated, sweep, told
from tests.sweep.talking_engine import Exchange, TalkingEngine, models_page


async def test_two_arms_end_to_end(tmp_path: Path) -> None:
    async with simulated() as plain, simulated(3) as speculative:
        watcher = await sweep(few(plain, speculative), tmp_path)
    rows = [row_from_json(json.loads(line), Source("x")) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == len(watcher.rows) == 2 * 2 * 2 * 2
    assert watcher.plans == [(16, 0)]
    assert {(row.arm, row.gamma, row.speculative) for row in rows} == {("plain", 0, False), ("gamma-3", 3, True)}
    for row in rows:
        assert (row.engine, row.engine_version, row.model, row.dataset) == ("vllm", "simulated", "m", "builtin")
        assert (row.completed, row.failed, row.output_tokens) == (3, 0, 40.0)
        assert row.concurrency_asked in (1, 3)
        assert row.concurrency is not None
        assert 0.9 * min(row.concurrency_asked, 1) <= row.concurrency <= row.concurrency_asked
        assert row.input_tokens is not None
        assert row.tpot_p50_s is not None
        assert row.tpot_p99_s is not None
        assert row.ttft_p50_s is not None
        assert row.duration_s is not None
        assert 0 < row.tpot_p50_s <= row.tpot_p99_s < row.duration_s
        assert row.output_tokens_per_s == pytest.approx(120 / row.duration_s)
        if row.arm == "plain":
            assert row.acceptance is None
        else:
            assert row.acceptance is not None
            assert row.acceptance.per_position is not None
            assert len(row.acceptance.per_position) == 3
            assert row.acceptance.mean_length == pytest.approx(1 + sum(row.acceptance.per_position))
    imported = read_sweep([tmp_path])
    assert [replace(row, source=Source("x")) for row in imported.rows] == rows
    assert {Path(item.source.file).name for item in imported.findings} == {"plan.json", "details.jsonl"}
    for name in ("code", "prose"):
        lengths = [row.input_tokens or 0.0 for row in rows if row.request_class == name]
        assert max(lengths) < 1.1 * min(lengths), "all runs of a class are cells of one length"
    assert Counter((row.arm, row.request_class, row.concurrency_asked) for row in rows) == Counter(
        {(arm, name, load): 2 for arm in ("plain", "gamma-3") for name in ("code", "prose") for load in (1, 3)}
    )


async def test_acceptance_is_of_the_runs_own_class(tmp_path: Path) -> None:
    async with simulated(3) as url:
        await sweep(few(url, concurrency=(3,), repeats=4, output_tokens=120), tmp_path)
    cells = {cell["class"]: cell["acceptance"] for cell in told(tmp_path)["cells"]}
    for name, scripted in (("code", RATES["structured"]), ("prose", RATES["chat"])):
        first = cells[name]["per_position_unconditional"][0]
        other = RATES["unsure"][0]  # some prompts the simulated engine takes for neither
        assert abs(first - scripted[0]) < 0.15 + abs(scripted[0] - other) / 3
    assert cells["code"]["mean_length"]["median"] > cells["prose"]["mean_length"]["median"]


async def test_counters_before_the_sweep_and_of_warm_ups_do_not_count(tmp_path: Path) -> None:
    async with simulated(3) as url:
        await sweep(few(url), tmp_path / "first")
        await sweep(few(url), tmp_path / "second")
    with Journal(tmp_path / "second") as journal:
        for row in journal.rows:
            assert row.acceptance is not None
            assert row.acceptance.drafts is not None
            assert row.acceptance.drafts <= 3 * 40, "no more verify steps than tokens in this run alone"


async def test_arms_are_asked_the_same_and_take_turns(tmp_path: Path) -> None:
    async with TalkingEngine() as one, TalkingEngine() as other:
        await sweep(few(ArmSpec(one.url, "one"), ArmSpec(other.url, "other")), tmp_path)
        asked = [[json.dumps(request.body) for request in arm.requests] for arm in (one, other)]
    assert sorted(asked[0]) == sorted(asked[1])
    with Journal(tmp_path) as journal:
        arms = [row.arm for row in journal.rows]
    assert all(set(pair) == {"one", "other"} for pair in zip(arms[::2], arms[1::2], strict=True))
    assert Counter(arms[::2]) == {"one": 4, "other": 4}, "each is first equally often"


async def test_each_arm_is_warmed_alike_before_its_first_run(tmp_path: Path) -> None:
    async with TalkingEngine() as one, TalkingEngine() as other:
        watcher = await sweep(few(ArmSpec(one.url, "one"), ArmSpec(other.url, "other"), concurrency=(2, 5)), tmp_path)
        count = len(one.requests)
    warm = [stage for stage in watcher.stages if stage.startswith("warming")]
    assert warm == [f"warming up {name}, {load} at a time" for load in (2, 5) for name in ("one", "other")]
    runs = 2 * 2 * (3 + 5)
    assert count == 1 + (2 + 5) + runs
    assert watcher.stages.index(warm[-1]) < next(n for n, s in enumerate(watcher.stages) if s.startswith("repeat"))


# -- what the engines report, against what was said of them ------------------------------------------------------------


async def test_a_gamma_that_was_said_and_is_not_is_an_error(tmp_path: Path) -> None:
    async with simulated() as plain, simulated(3) as speculative:
        for spec, reported in (
            (ArmSpec(speculative, gamma=4), "gamma 3"),
            (ArmSpec(speculative, gamma=0), "gamma 3"),
            (ArmSpec(plain, gamma=2), "no drafter"),
        ):
            with pytest.raises(ConfigurationError, match=f"says {spec.gamma}, and the engine reports {reported}"):
                await sweep(few(spec), tmp_path)
        assert not (tmp_path / "rows.jsonl").exists()
        await sweep(few(ArmSpec(plain, gamma=0), ArmSpec(speculative, gamma=3), repeats=1), tmp_path)


async def test_a_drafter_that_never_drafts_is_not_plain(tmp_path: Path) -> None:
    async with simulated(0) as url:
        with pytest.raises(ConfigurationError, match="a drafter that speculates"):
            await sweep(few(ArmSpec(url, gamma=0)), tmp_path)


async def test_an_engine_that_does_not_tell_leaves_the_gamma_unknown(tmp_path: Path) -> None:
    async with TalkingEngine() as talker:
        watcher = await sweep(few(ArmSpec(talker.url, gamma=5), concurrency=(1,)), tmp_path)
    assert any("--gamma says 5" in remark and "none is recorded" in remark for remark in watcher.remarks)
    assert any("no metrics page" in remark for remark in watcher.remarks)
    assert {(row.gamma, row.speculative, row.acceptance, row.engine) for row in watcher.rows} == {
        (None, None, None, "talker")
    }


async def test_a_schedule_is_recorded_as_what_it_is(tmp_path: Path) -> None:
    schedule = GammaSchedule([(1, 1, 4), (2, 64, 1)])
    async with simulated(schedule) as url:
        await sweep(few(url, concurrency=(3,)), tmp_path)
    cells = told(tmp_path)["cells"]
    assert {cell["gamma"] for cell in cells} == {4}
    assert all(cell["acceptance"]["draft_length_varies"] for cell in cells)
    assert all(cell["acceptance"]["per_position_unconditional"] is None for cell in cells)
    assert all(cell["acceptance"]["mean_length"]["median"] > 1 for cell in cells)


async def test_what_is_recorded_of_an_engine_is_picked_and_holds_no_secret(tmp_path: Path) -> None:
    pages: dict[str, Any] = {
        "/v1/models": models_page("m"),
        "/version": json.dumps({"version": "0.33.0"}),
        "/server_info": json.dumps(
            {
                "api_key": "hush",
                "speculative_algorithm": "EAGLE3",
                "speculative_draft_model_path": "org/drafter",
                "env": {"HF_TOKEN": "hush"},
                "quantization": float("nan"),
                "dtype": "\x1b[31mred",
                "internal": {"max_num_seqs": 64, "version": "hush" * 100},
            }
        ),
        "/slots": json.dumps([{"id": 0, "n_ctx": 1024, "speculative": True}, {"id": 1, "n_ctx": 1024}]),
        "/props": "not json",
    }
    async with TalkingEngine(pages=pages) as talker:
        await sweep(few(talker.url, concurrency=(1,), repeats=1), tmp_path, api_key="hush")
        assert all(headers["authorization"] == "Bearer hush" for _, headers in talker.got)
        assert all(request.headers["authorization"] == "Bearer hush" for request in talker.requests)
    text = "".join((tmp_path / name).read_text() for name in ("plan.json", "rows.jsonl", "details.jsonl"))
    assert "hush" not in text
    settings = json.loads((tmp_path / "plan.json").read_text())["arms"][0]["settings"]
    assert settings["/version version"] == "0.33.0"
    assert settings["/server_info speculative_algorithm"] == "EAGLE3"
    assert settings["/server_info internal.max_num_seqs"] == 64
    assert settings["/slots n_ctx"] == 1024
    assert settings["/slots count"] == 2
    with Journal(tmp_path) as journal:
        assert {(row.engine_version, row.drafter) for row in journal.rows} == {("0.33.0", "org/drafter")}


async def test_arms_of_different_models_do_not_compare(tmp_path: Path) -> None:
    one, other = (TalkingEngine(pages={"/v1/models": models_page(name)}) for name in ("a", "b"))
    async with one, other:
        with pytest.raises(ConfigurationError, match=r"different models \(arm-1: a, arm-2: b\)"):
            await sweep(few(one.url, other.url), tmp_path)
        await sweep(few(one.url, other.url, model_name="ab", repeats=1), tmp_path)
    with Journal(tmp_path) as journal:
        assert {row.model for row in journal.rows} == {"ab"}


@pytest.mark.parametrize(
    ("page", "asked", "words"),
    [
        (models_page("a", "b"), None, "serves several, name one with --model: a, b"),
        (models_page("alpha"), "alpa", "did you mean 'alpha'"),
        ((404, "no"), None, "name it with --model"),
        ("nonsense", None, "name it with --model"),
        ((401, '{"error": "Unauthorized"}'), None, "--api-key-env"),
    ],
)
async def test_the_model_comes_from_the_engines_list(tmp_path: Path, page: Any, asked: str | None, words: str) -> None:
    async with TalkingEngine(pages={"/v1/models": page}) as talker:
        with pytest.raises(ConfigurationError, match=words):
            await sweep(few(ArmSpec(talker.url, model=asked)), tmp_path)
        assert talker.requests == []


async def test_one_of_several_models_is_asked_for(tmp_path: Path) -> None:
    async with TalkingEngine(pages={"/v1/models": models_page("a", "b")}) as talker:
        await sweep(few(ArmSpec(talker.url, model="b"), repeats=1, concurrency=(1,)), tmp_path)
        assert {request.body["model"] for request in talker.requests} == {"b"}


async def test_a_key_is_needed_and_a_wrong_one_refused(tmp_path: Path) -> None:
    async with simulated(api_key="hush") as url:
        with pytest.raises(ConfigurationError, match="--api-key-env"):
            await sweep(few(url), tmp_path)
        with pytest.raises(ConfigurationError, match="refuses the key"):
            await sweep(few(url), tmp_path, api_key="wrong")
        await sweep(few(url, repeats=1, concurrency=(1,)), tmp_path, api_key="hush")


async def test_an_engine_that_is_not_the_one_it_was_said_to_be(tmp_path: Path) -> None:
    async with simulated() as url:
        with pytest.raises(ConfigurationError, match="no metrics page of llamacpp"):
            await sweep(few(ArmSpec(url, engine="llamacpp")), tmp_path)


async def test_an_arm_nobody_answers_at(tmp_path: Path) -> None:
    async with TalkingEngine() as gone:
        pass
    with pytest.raises(ConnectError, match=rf"{gone.url} is unreachable: .*"):
        await sweep(few(gone.url), tmp_path)


@pytest.mark.parametrize(
    ("status", "words"),
    [(500, "status_500.*broken"), (400, "--endpoint completions"), (401, "--api-key-env")],
)
async def test_an_arm_that_refuses_the_first_request(tmp_path: Path, status: int, words: str) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.refuse(status, {"error": {"message": "broken"}})

    async with TalkingEngine(refuse) as talker:
        with pytest.raises(AdaptiveGammaError, match=words):
            await sweep(few(talker.url), tmp_path)


async def test_an_engine_without_ignore_eos_has_lengths_of_its_own(tmp_path: Path) -> None:
    async def strict(exchange: Exchange) -> None:
        if "ignore_eos" in exchange.body:
            await exchange.refuse(422, {"detail": "Extra inputs are not permitted: ignore_eos"})
        else:
            await exchange.whole(17)

    async with TalkingEngine(strict) as free, TalkingEngine() as fixed:
        watcher = await sweep(few(ArmSpec(free.url, "free"), ArmSpec(fixed.url, "fixed")), tmp_path)
    assert any("takes no ignore_eos" in remark for remark in watcher.remarks)
    whole = told(tmp_path)
    assert [arm["fixed_length"] for arm in whole["arms"]] == [False, True]
    assert all("different lengths" in " ".join(row["against_a_claim"]) for row in whole["speedups"])


# -- what goes wrong under way -----------------------------------------------------------------------------------------


async def test_failures_and_time_outs_are_in_the_rows(tmp_path: Path) -> None:
    async def some_fail(exchange: Exchange) -> None:
        number = len(exchange.engine.requests)
        if number <= 4 or number % 3:
            await exchange.whole()
        elif number % 2:
            await exchange.refuse(503, {"error": "busy"})
        else:
            await asyncio.Event().wait()

    async with TalkingEngine(some_fail) as talker:
        await sweep(few(talker.url, concurrency=(3,), timeout_s=0.3), tmp_path)
    cells = told(tmp_path)["cells"]
    assert sum(cell["completed"] + cell["failed"] for cell in cells) == 2 * 2 * 3
    failures: Counter[str] = Counter()
    for cell in cells:
        failures.update(cell["failures"])
    assert set(failures) == {"status_503", "timeout"}
    assert sum(cell["timeouts"] for cell in cells) == failures["timeout"]
    assert sum(cell["failed"] for cell in cells) == failures.total() == 4


async def test_other_traffic_is_noticed(tmp_path: Path) -> None:
    simulated_engine = engine(3)
    async with serving(simulated_engine) as url, TalkingEngine() as _:

        async def foreign() -> None:
            from adaptive_gamma.bench.sweep.asking import Asked, RequestForm, Slot
            from adaptive_gamma.bench.sweep.dataset import Prompt
            from adaptive_gamma.bench.sweep.http import Address

            slot = Slot(Address.of(url), asyncio.get_running_loop().time, 10.0)
            while True:
                await slot.ask(RequestForm("chat", "m", 20, True), Asked(Prompt("prose", text="Dear uncle,")))

        task = asyncio.create_task(foreign())
        await sweep(few(url, repeats=1), tmp_path)
        task.cancel()
        await asyncio.wait([task])
    assert all(cell["disturbed_runs"] == 1 for cell in told(tmp_path)["cells"])


async def test_an_engine_that_starts_anew_stops_the_sweep(tmp_path: Path) -> None:
    def page(tokens: int) -> str:
        return (
            f'vllm:num_requests_running{{engine="0",model_name="m"}} 0\n'
            f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}\n'
        )

    async def counts(exchange: Exchange) -> None:
        await exchange.whole()
        done = len(exchange.engine.requests)
        exchange.engine.pages["/metrics"] = page(40 * done if done < 20 else 40)

    watcher = Watcher()
    async with TalkingEngine(counts) as talker:
        talker.pages["/metrics"] = page(0)
        with pytest.raises(AdaptiveGammaError, match="was started anew during a run, which is not kept"):
            await sweep(few(talker.url, repeats=4), tmp_path, watcher=watcher)
    with Journal(tmp_path) as journal:
        assert 0 < len(journal.rows) == len(watcher.rows) < 16


async def test_an_arm_that_goes_stops_the_sweep_and_keeps_what_was_measured(tmp_path: Path) -> None:
    watcher = Watcher()
    async with TalkingEngine() as talker:
        loop = asyncio.get_running_loop()

        def end() -> None:
            if len(watcher.rows) == 3:
                tasks.append(loop.create_task(talker.stop()))

        tasks: list[asyncio.Task[None]] = []
        watcher.after_row = end
        with pytest.raises(ConnectError, match=r"arm arm-1 \(.*\) has become unreachable"):
            await sweep(few(talker.url), tmp_path, watcher=watcher)
        await asyncio.gather(*tasks)
    with Journal(tmp_path) as journal:
        assert len(journal.rows) >= 3
        assert all(row.failed == 0 or row.completed for row in journal.rows)


async def test_a_metrics_page_that_fails_leaves_acceptance_unknown(tmp_path: Path) -> None:
    simulated_engine = engine(3)
    watcher = Watcher()

    def break_metrics() -> None:
        simulated_engine.faults.metrics = "500"

    watcher.after_row = break_metrics
    async with serving(simulated_engine) as url:
        await sweep(few(url, concurrency=(1,)), tmp_path, watcher=watcher)
    with Journal(tmp_path) as journal:
        known = [row.acceptance is not None for row in journal.rows]
        assert known == [True, False, False, False]
        assert {row.gamma for row in journal.rows} == {3}
        assert {row.completed for row in journal.rows} == {3}


# -- going on ----------------------------------------------------------------------------------------------------------


async def test_a_sweep_that_was_stopped_goes_on(tmp_path: Path) -> None:
    async with simulated() as plain, simulated(3) as speculative:
        settings = few(plain, speculative)
        first = Watcher()
        task: asyncio.Task[Watcher] | None = None

        def stop() -> None:
            if len(first.rows) == 5:
                assert task is not None
                task.cancel()

        first.after_row = stop
        task = asyncio.create_task(sweep(settings, tmp_path, watcher=first))
        with pytest.raises(asyncio.CancelledError):
            await task
        second = await sweep(settings, tmp_path)
        assert second.plans == [(16, 5)]
        assert len(second.rows) == 11
        third = await sweep(settings, tmp_path)
        assert (third.plans, third.rows, third.stages) == ([(16, 16)], [], [])
        more = await sweep(few(plain, speculative, repeats=3, concurrency=(1, 3, 4)), tmp_path)
    assert more.plans == [(36, 16)]
    with Journal(tmp_path) as journal:
        cells = Counter((row.arm, row.request_class, row.concurrency_asked, row.run) for row in journal.rows)
    assert len(cells) == 36
    assert set(cells.values()) == {1}, "nothing twice, nothing missing"


async def test_a_finished_sweep_needs_no_engine(tmp_path: Path) -> None:
    async with simulated() as url:
        settings = few(url, repeats=1)
        await sweep(settings, tmp_path)
    again = await sweep(settings, tmp_path)
    assert again.plans == [(4, 4)]


async def test_other_settings_are_another_sweep(tmp_path: Path) -> None:
    async with simulated() as url, simulated(3) as other:
        await sweep(few(url, repeats=1), tmp_path)
        for changed, key in (
            (few(url, repeats=1, output_tokens=41), "output_tokens"),
            (few(url, repeats=1, seed=1), "seed"),
            (few(url, other, repeats=1), "urls"),
            (few(url, repeats=1, temperature=0.7), "temperature"),
        ):
            with pytest.raises(SweepError, match=f"{key}: holds a sweep with .* choose another folder"):
                await sweep(changed, tmp_path)


async def test_an_engine_that_is_another_now_is_another_sweep(tmp_path: Path) -> None:
    async with TalkingEngine(pages={"/v1/models": models_page("m"), "/version": '{"version": "1"}'}) as talker:
        await sweep(few(talker.url, repeats=1), tmp_path)
        talker.pages["/version"] = '{"version": "2"}'
        with pytest.raises(AdaptiveGammaError, match="engine_version was '1' and is '2'"):
            await sweep(few(talker.url, repeats=2), tmp_path)


async def test_repeats_go_through_all_cells_before_the_next(tmp_path: Path) -> None:
    async with simulated() as url:
        await sweep(few(url, repeats=3), tmp_path)
    with Journal(tmp_path) as journal:
        runs = [row.run for row in journal.rows]
    assert all(before <= after for before, after in pairwise(runs))
    assert set(Counter(runs).values()) == {4}
