from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import math
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from adaptive_gamma.config.settings import HealthSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.fleet import Fleet, OpenRequest
from adaptive_gamma.fleet.open_requests import OpenRequests
from adaptive_gamma.routing import GammaSchedule, ReplicaState
from tests.engines import pages
from tests.fleet.scene import Clock, Prior, a_fleet, page, watched
from tests.support.scripted_engine import Reply, ScriptedEngine

STATUS_KEYS = [
    *("name", "url", "engine", "pool", "healthy", "draining", "gamma", "running", "waiting", "in_flight", "kv_usage"),
    *("scrape_age_s", "scrape_error", "acceptance"),
]


async def test_a_speculative_replica_that_was_asked() -> None:
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        (status,) = fleet.status()
        assert list(status)[: len(STATUS_KEYS)] == STATUS_KEYS
        assert (status["pool"], status["gamma"], status["running"], status["healthy"]) == (None, None, None, True)
        assert fleet.states[0].refused_parameters == frozenset()
        engine.page("/metrics", pages.VLLM_0_33)
        await fleet.scrape_once()
        (status,) = fleet.status()
        assert (status["pool"], status["gamma"]) == ("speculative", 3)
        assert (status["running"], status["waiting"], status["kv_usage"]) == (7, 2, 0.1375)
        assert (status["scrape_age_s"], status["scrape_error"]) == (0.0, None)
        assert status["acceptance"] is None, "the first totals are a base line"
        assert status["notes"] == []
        assert json.loads(json.dumps(status)) == status
        assert fleet.states[0] is fleet.by_name("r").state
        assert fleet.states[0].refused_parameters == {"min_p", "logit_bias"}


async def test_acceptance_follows_the_counters() -> None:
    clock = Clock()
    async with ScriptedEngine() as engine, watched(engine, clock) as fleet:
        replica = fleet.replicas[0]
        for drafts, accepted in ((1000, (900, 800)), (1200, (1060, 896))):
            engine.page("/metrics", page(drafts=drafts, accepted=accepted))
            await fleet.scrape_once()
            clock.now += 1
        assert replica.acceptance == pytest.approx((0.8, 0.6))
        assert fleet.status()[0]["acceptance"] == [0.8, 0.6]
        rates = replica.position_acceptance()
        assert rates is not None
        assert [trials for _, trials in rates] == pytest.approx([200, 160])
        await fleet.scrape_once()
        assert replica.acceptance == pytest.approx((0.8, 0.6)), "no traffic, no change"


async def test_varying_draft_length_gives_no_acceptance() -> None:
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        engine.page("/metrics", page(drafts=0, accepted=(0, 0, 0, 0)))
        await fleet.scrape_once()
        engine.page("/metrics", page(drafts=20, accepted=(20, 12, 12, 8), draft_tokens=52))
        await fleet.scrape_once()
        (status,) = fleet.status()
        assert status["acceptance"] is None
        assert status["variable_draft_length"] is True
        assert status["accepted_per_draft"] == 2.6
        assert any("vary" in note for note in status["notes"])


async def test_a_restart_is_seen_and_nothing_is_negative(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    async with ScriptedEngine() as engine, watched(engine, clock) as fleet:
        for text in (
            page(drafts=1000, accepted=(900,), generated=9000),
            page(drafts=1100, accepted=(990,), generated=9500),
            page(drafts=40, accepted=(10,), generated=60),
        ):
            engine.page("/metrics", text)
            await fleet.scrape_once()
            clock.now += 1
        (status,) = fleet.status()
        assert status["restarts"] == 1
        assert status["acceptance"] == [0.25]
        assert [r.levelname for r in caplog.records if "restarted" in r.message] == ["WARNING"]
        engine.page("/metrics", page(generated=3))
        await fleet.scrape_once()
        (status,) = fleet.status()
        assert (status["restarts"], status["pool"], status["gamma"], status["acceptance"]) == (2, "plain", 0, None)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(b"<html><body>502</body></html>\n"), "not_metrics"),
        (Reply(b'{"detail": "no"}'), "not_metrics"),
        (Reply(b""), "empty"),
        (Reply(b"python_info 1.0\n"), "no_series"),
        (Reply(b"oops", status=500), "status_500"),
        (Reply(b"", status=307, headers={"location": "/metrics2"}), "status_307"),
        (Reply(pages.VLLM_0_33.encode()[:-20]), "truncated"),
        (Reply(pages.VLLM_0_33.encode(), announced=100_000), "truncated"),
        (Reply(b"# HELP x y\n" * 400_000), "too_large"),
        (Reply(b"\x1f\x8b", headers={"content-encoding": "gzip"}), "encoding"),
        (Reply(raw=b"SSH-2.0-OpenSSH\r\n"), "protocol"),
        (Reply(raw=b""), "protocol"),
        (Reply(bytes(range(256)) * 8), "not_metrics"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_pages_that_give_no_reading(reply: Reply, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedEngine({"/metrics": reply, "/metrics2": Reply(b"x 1\n")}) as engine, watched(engine) as fleet:
        await fleet.scrape_once()
        await fleet.scrape_once()
        replica = fleet.replicas[0]
        assert replica.scrape_failures == {reason: 2}
        (status,) = fleet.status()
        assert status["scrape_error"] == reason
        assert (status["running"], status["waiting"], status["kv_usage"], status["acceptance"]) == (None,) * 4
        assert (status["scrape_age_s"], status["pool"], status["healthy"]) == (None, None, True)
        assert [path for path, _ in engine.requests] == ["/metrics"] * 2
        assert len([r for r in caplog.records if "cannot be read" in r.message]) == 1, "logged once"
        engine.page("/metrics", pages.VLLM_0_33)
        await fleet.scrape_once()
        assert fleet.status()[0]["scrape_error"] is None
        assert fleet.status()[0]["running"] == 7


async def test_silent_and_refused_replicas() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with ScriptedEngine({"/metrics": Reply(silent=True)}) as engine:
            fleet = a_fleet(
                ReplicaSettings(name="silent", url=engine.url),
                ReplicaSettings(name="refused", url=f"http://127.0.0.1:{closed.getsockname()[1]}"),
                ReplicaSettings(name="nonsense", url="http://127.0.0.1:1").model_copy(update={"url": "http://a..b"}),
                timeout_s=0.2,
            )
            await fleet.scrape_once()
            errors = {status["name"]: status["scrape_error"] for status in fleet.status()}
            await fleet.stop()
    assert errors == {"silent": "timeout", "refused": "connect", "nonsense": "connect"}


async def test_stale_readings_are_unknown_not_idle() -> None:
    clock = Clock()
    async with ScriptedEngine() as engine, watched(engine, clock, gamma=[(1, 4, 3), (5, 512, 1)]) as fleet:
        engine.page("/metrics", pages.VLLM_0_33)
        await fleet.scrape_once()
        assert fleet.states[0].gamma == GammaSchedule([(1, 4, 3), (5, 512, 1)])
        engine.replies["/metrics"] = Reply(b"", status=503)
        clock.now += 3.0
        await fleet.scrape_once()
        (status,) = fleet.status()
        assert (status["running"], status["gamma"], status["scrape_error"]) == (7, 1, "status_503")
        assert status["scrape_age_s"] == 3.0
        clock.now += 0.001
        (status,) = fleet.status()
        assert (status["running"], status["waiting"], status["kv_usage"], status["gamma"]) == (None,) * 4
        assert status["pool"] == "speculative", "what was found out about the engine stays"
        assert status["gamma_schedule"] == [[1, 4, 3], [5, 512, 1]]
        assert fleet.states[0].fresh_until < clock.now


async def test_a_configured_gamma_that_is_not_the_engines(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedEngine() as engine, watched(engine, gamma=5) as fleet:
        (status,) = fleet.status()
        assert (status["pool"], status["gamma"], status["gamma_mismatch"]) == ("speculative", 5, None)
        engine.page("/metrics", pages.VLLM_0_33)
        for _ in range(3):
            await fleet.scrape_once()
        (status,) = fleet.status()
        assert (status["gamma"], status["gamma_mismatch"]) == (3, {"configured": 5, "engine": 3})
        assert status["notes"] == ["configured gamma 5, but the engine runs gamma 3"]
        assert len([r for r in caplog.records if "configured gamma" in r.message]) == 1
        engine.page("/metrics", pages.VLLM_0_10_2_V1_PLAIN)
        await fleet.scrape_once()
        (status,) = fleet.status()
        assert (status["pool"], status["gamma"]) == ("plain", 0)
        assert status["gamma_mismatch"] == {"configured": 5, "engine": 0}
        assert fleet.states[0].refused_parameters == frozenset()


async def test_gamma_from_responses_where_pages_do_not_tell() -> None:
    async with ScriptedEngine() as engine, watched(engine, engine="llamacpp") as fleet:
        engine.page("/metrics", pages.LLAMACPP_PLAIN)
        engine.page("/slots", pages.LLAMACPP_SLOTS_SPECULATIVE)
        await fleet.scrape_once()
        (status,) = fleet.status()
        assert (status["pool"], status["gamma"]) == ("speculative", None)
        fleet.note_response("r", {"timings": {"predicted_n": 40, "draft_n": 60, "draft_n_accepted": 24}})
        fleet.note_response("r", {"timings": {"predicted_n": 40}})
        assert fleet.status()[0]["gamma"] == 4


async def test_a_llamacpp_server_without_slots_is_read_all_the_same() -> None:
    async with ScriptedEngine() as engine, watched(engine, engine="llamacpp") as fleet:
        engine.page("/metrics", pages.LLAMACPP_SPECULATIVE)
        await fleet.scrape_once()
        assert {path for path, _ in engine.requests} == {"/metrics", "/slots"}
        (status,) = fleet.status()
        assert (status["running"], status["waiting"], status["kv_usage"], status["gamma"]) == (4, 2, None, 4)


async def test_in_flight_at_scrape_is_taken_when_the_scrape_starts() -> None:
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        gate = asyncio.Event()
        engine.replies["/metrics"] = Reply(pages.VLLM_0_33.encode(), gate=gate)
        with fleet.open_request("r", "chat"):
            scrape = asyncio.create_task(fleet.scrape_once())
            await engine.arrived.wait()
            with fleet.open_request("r", "structured"):
                gate.set()
                await scrape
                assert fleet.states[0].in_flight == 2
                assert fleet.states[0].in_flight_at_scrape == 1
                assert fleet.status()[0]["in_flight_by_class"] == {"chat": 1, "structured": 1}
        assert fleet.states[0].in_flight == 0
        assert fleet.status()[0]["in_flight_by_class"] == {}


async def test_open_requests_survive_exceptions_and_cancellation() -> None:
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        state = fleet.states[0]

        async def hold() -> None:
            with fleet.open_request("r", "chat"):
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(hold()) for _ in range(20)]
        await asyncio.sleep(0)
        assert state.in_flight == 20
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert state.in_flight == 0
        with pytest.raises(ZeroDivisionError), fleet.open_request("r", "chat"):
            print(1 / (state.in_flight - 1))
        assert state.in_flight == 0
        with pytest.raises(KeyError):
            fleet.open_request("nobody", "chat")


@given(st.lists(st.tuples(st.sampled_from(["open", "close", "again", "enter"]), st.integers(0, 4)), max_size=60))
def test_in_flight_is_never_negative(actions: list[tuple[str, int]]) -> None:
    clock = Clock()
    state, requests = ReplicaState(name="r"), []
    counted = OpenRequests(state, clock)
    for action, which in actions:
        clock.now += which - 1
        if action == "open":
            requests.append(OpenRequest(counted, f"class{which}").__enter__())
        elif requests and action == "close":
            requests.pop(which % len(requests)).__exit__(None, None, None)
        elif requests and action == "again":
            request = requests.pop(which % len(requests))
            request.__exit__(None, None, None)
            request.__exit__(None, None, None)
        elif requests and action == "enter":
            with pytest.raises(RuntimeError):
                requests[0].__enter__()
        assert state.in_flight == len(requests)
        assert sum(counted.by_class.values()) == len(requests)
        assert all(count > 0 for count in counted.by_class.values())
        assert all(seconds >= 0 for seconds in counted.seconds_by_class().values())


async def test_health_goes_down_after_three_and_up_after_two(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        engine.replies["/health"] = Reply(status=503)
        seen = []
        for _ in range(4):
            await fleet.check_health_once()
            seen.append(fleet.states[0].healthy)
        engine.replies["/health"] = Reply()
        for _ in range(3):
            await fleet.check_health_once()
            seen.append(fleet.states[0].healthy)
        assert seen == [True, True, False, False, False, True, True]
        assert len([r for r in caplog.records if "is down" in r.message]) == 1
        assert len([r for r in caplog.records if "is up" in r.message]) == 1
        assert fleet.status()[0]["health_changes"] == 2


async def test_flapping_health_does_not_move_the_state() -> None:
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        for status in (503, 503, 200) * 5:
            engine.replies["/health"] = Reply(status=status)
            await fleet.check_health_once()
            assert fleet.states[0].healthy


async def test_refused_requests_count_as_failed_probes() -> None:
    async with ScriptedEngine({"/health": Reply()}) as engine, watched(engine) as fleet:
        fleet.note_connect_failure("r")
        fleet.note_connect_failure("r")
        fleet.note_success("r")
        fleet.note_connect_failure("r")
        fleet.note_connect_failure("r")
        assert fleet.states[0].healthy
        fleet.note_connect_failure("r")
        assert not fleet.states[0].healthy
        await fleet.check_health_once()
        await fleet.check_health_once()
        assert fleet.states[0].healthy


async def test_a_sleeping_engine_gets_no_requests() -> None:
    clock = Clock()
    async with ScriptedEngine({"/health": Reply()}) as engine, watched(engine, clock) as fleet:
        engine.page("/metrics", page(awake=False))
        await fleet.scrape_once()
        await fleet.check_health_once()
        assert not fleet.states[0].healthy
        assert fleet.status()[0]["notes"] == ["the engine sleeps"]
        engine.page("/metrics", page(awake=True))
        await fleet.scrape_once()
        assert fleet.states[0].healthy
        engine.page("/metrics", page(awake=False))
        await fleet.scrape_once()
        engine.replies["/metrics"] = Reply(status=500)
        await fleet.scrape_once()
        assert not fleet.states[0].healthy
        clock.now += 10
        await fleet.scrape_once()
        assert fleet.states[0].healthy, "nobody has said lately that it sleeps"


async def test_models() -> None:
    listed = Reply(b'{"object":"list","data":[{"id":"a","max_model_len":7},{"id":"b"},{"no":"id"},3,{"id":4}]}')
    async with ScriptedEngine({"/v1/models": listed}) as one, ScriptedEngine() as two, ScriptedEngine() as three:
        fleet = a_fleet(
            ReplicaSettings(name="one", url=one.url),
            ReplicaSettings(name="two", url=two.url, model="b"),
            ReplicaSettings(name="three", url=three.url),
        )
        assert fleet.models_page() is None
        assert [state.models for state in fleet.states] == [None, frozenset("b"), None]
        await fleet.check_health_once()
        two.page("/v1/models", '{"data":[{"id":"b","root":"x"},{"id":"c"}]}')
        three.page("/v1/models", "not json")
        await fleet.check_health_once()
        assert [state.models for state in fleet.states] == [frozenset("ab"), frozenset("b"), None]
        assert fleet.models_page() == {"object": "list", "data": [{"id": "a", "max_model_len": 7}, {"id": "b"}]}
        one.replies["/v1/models"] = Reply(status=500)
        two.page("/v1/models", '{"data":[{"id":"c"}]}')
        await fleet.check_health_once()
        assert fleet.states[0].models == frozenset("ab"), "the last list stays"
        assert fleet.states[1].models == frozenset("b")
        assert fleet.status()[1]["notes"] == ["the engine does not list the configured model b"]
        await fleet.stop()


async def test_models_that_cannot_be_read_or_sent_on(caplog: pytest.LogCaptureFixture) -> None:
    unreadable = '{"data":[{"id":5},{"id":null},[],"x"]}'
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        for page_text, models in (
            (unreadable, None),
            ('{"data":[{"id":"\\ud800"},{"id":"a"},{"id":"b","n":1e999}]}', frozenset("a")),
            (unreadable, frozenset("a")),
            ('{"data":[{"id":"c","n":NaN}]}', frozenset("a")),
            ('{"data":[]}', frozenset()),
        ):
            engine.page("/v1/models", page_text)
            await fleet.check_health_once()
            assert fleet.states[0].models == models
            body = {"models": fleet.models_page(), "status": fleet.status()}
            assert json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        assert fleet.models_page() == {"object": "list", "data": []}
    assert len([r for r in caplog.records if "left out" in r.message]) == 1, "logged once"


async def test_the_api_key_goes_to_the_engine_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with ScriptedEngine({"/metrics": Reply(status=401)}) as engine:
        fleet = a_fleet(ReplicaSettings(name="r", url=engine.url), api_key=SecretStr("s3cret-key"))
        await fleet.scrape_once()
        await fleet.check_health_once()
        assert {headers.get("authorization") for _, headers in engine.requests} == {"Bearer s3cret-key"}
        assert len(engine.requests) == 3
        assert "s3cret-key" not in caplog.text + str(fleet.status())
        await fleet.stop()
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        await fleet.scrape_once()
        assert "authorization" not in engine.requests[0][1]
        assert engine.requests[0][1]["accept-encoding"] == "identity"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        engine.page("/metrics", pages.VLLM_0_33)
        await fleet.scrape_once()
        assert fleet.status()[0]["running"] == 7


async def test_acceptance_ratio() -> None:
    clock, gamma = Clock(), 2
    async with ScriptedEngine() as engine, watched(engine, clock, policy=Prior()) as fleet:
        state = fleet.states[0]
        engine.page("/metrics", page(drafts=0, accepted=(0, 0)))
        await fleet.scrape_once()
        assert state.gamma == gamma
        with fleet.open_request("r", "structured"), fleet.open_request("r", "structured"):
            with fleet.open_request("r", "chat"):
                clock.now += 1.0
            clock.now += 0.5
            engine.page("/metrics", page(drafts=90, accepted=(60, 30)))
            await fleet.scrape_once()
            assert state.acceptance_ratio is None, "fewer than 100 drafts say little"
            clock.now += 0.0
            engine.page("/metrics", page(drafts=400, accepted=(240, 160)))
            await fleet.scrape_once()
        shares = {"structured": 3.0 / 4.0 * 90, "chat": 1.0 / 4.0 * 90, "unsure": 310}
        expected = sum(n * (Prior().expected_tokens(name, gamma) - 1) for name, n in shares.items()) / 400
        assert state.acceptance_ratio == pytest.approx(1.0 / expected)
        clock.now += 1
        engine.page("/metrics", page(drafts=4000, accepted=(240, 160)))
        await fleet.scrape_once()
        assert state.acceptance_ratio == 0.5, "bounded"

        # From here on nothing is drafted: requests that its last drafts drove away must find back to it.
        clock.now += 60
        await fleet.scrape_once()
        assert state.acceptance_ratio == pytest.approx(0.75)
        clock.now += 600
        await fleet.scrape_once()
        assert state.acceptance_ratio == pytest.approx(1.0, abs=0.001)
        engine.page("/metrics", page(drafts=5000, accepted=(240, 160)))
        await fleet.scrape_once()
        assert state.acceptance_ratio == 0.5, "what is counted anew is believed at once"


async def test_another_policy_is_what_acceptance_is_held_against_at_once() -> None:
    async with ScriptedEngine() as engine, watched(engine, policy=None) as fleet:
        for text in (page(drafts=0, accepted=(0, 0)), page(drafts=1000, accepted=(500, 400))):
            engine.page("/metrics", text)
            await fleet.scrape_once()
        state = fleet.states[0]
        assert state.acceptance_ratio is None
        fleet.take_policy(Prior())
        assert state.acceptance_ratio == pytest.approx(0.9 / (Prior().expected_tokens("unsure", 2) - 1))
        fleet.take_policy(None)
        assert state.acceptance_ratio is None


@pytest.mark.parametrize(
    ("settings", "policy", "tokens"),
    [({}, None, 2000), ({}, Prior(), 1500), ({"gamma": [(1, 8, 2), (9, 64, 1)]}, Prior(), 2000)],
    ids=["no policy", "varying drafts", "a schedule"],
)
async def test_no_acceptance_ratio_without_what_it_needs(
    settings: dict[str, Any], policy: Prior | None, tokens: int
) -> None:
    async with ScriptedEngine() as engine, watched(engine, policy=policy, **settings) as fleet:
        for text in (page(drafts=0, accepted=(0, 0)), page(drafts=1000, accepted=(500, 400), draft_tokens=tokens)):
            engine.page("/metrics", text)
            await fleet.scrape_once()
        assert fleet.states[0].acceptance_ratio is None
        assert fleet.replicas[0].accepted_per_draft == pytest.approx(0.9)


async def test_draining() -> None:
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        fleet.set_draining("r", True)
        assert fleet.states[0].draining
        assert fleet.status()[0]["draining"] is True
        fleet.set_draining("r", False)
        assert not fleet.states[0].draining
        with pytest.raises(KeyError):
            fleet.set_draining("nobody", True)


@contextlib.contextmanager
def a_blackhole() -> Iterator[str]:
    """A port whose connections the kernel takes and nobody ever answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_one_replica_of_64_that_hangs_delays_no_other() -> None:
    """Every other replica is read again and again while the first scrape of the hanging one still waits."""
    async with ScriptedEngine() as engine:
        engine.page("/metrics", pages.VLLM_0_33)
        engine.replies["/health"] = Reply()
        with a_blackhole() as hole:
            names = [f"r{number}" for number in range(63)]
            fleet = Fleet(
                [ReplicaSettings(name="hole", url=hole), *(ReplicaSettings(name=n, url=engine.url) for n in names)],
                scrape=ScrapeSettings(interval_s=0.3, timeout_s=60.0),
                health=HealthSettings(interval_s=0.3, timeout_s=60.0),
            )
            await fleet.start()
            with pytest.raises(RuntimeError):
                await fleet.start()
            first: dict[str, float] = {}
            while len(first) < 63 or any(fleet.by_name(n).scraped_at == at for n, at in first.items()):
                await asyncio.sleep(0.01)
                for name in names:
                    at = fleet.by_name(name).scraped_at
                    if name not in first and at is not None:
                        first[name] = at
            hole_status = fleet.status()[0]
            await fleet.stop()
        assert (hole_status["running"], hole_status["scrape_error"]) == (None, None)
        assert all(state.running == 7 for state in fleet.states[1:])
        assert not [task for task in asyncio.all_tasks() if "scrape" in task.get_name() or "health" in task.get_name()]
    gc.collect()


async def test_scrapes_do_not_pile_up_on_a_slow_replica() -> None:
    async with ScriptedEngine({"/metrics": Reply(silent=True)}) as engine:
        fleet = Fleet(
            [ReplicaSettings(name="r", url=engine.url)],
            scrape=ScrapeSettings(interval_s=0.01, timeout_s=0.15),
            health=HealthSettings(interval_s=60.0),
        )
        await fleet.start()
        while fleet.replicas[0].scrape_failures["timeout"] < 3:
            await asyncio.sleep(0.01)
            waiting = sum(path == "/metrics" for path, _ in engine.requests) - sum(
                fleet.replicas[0].scrape_failures.values()
            )
            assert waiting <= 1
        await fleet.stop()


async def test_numbers_near_the_end_of_floats_are_unknown_and_the_loop_goes_on() -> None:
    running = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 1.7e308\n' for rank in (0, 1))
    stem = "vllm:spec_decode_num"
    counted = "".join(
        f'{stem}_{what}_total{{engine="{rank}",position="0"}} {{0}}\n'
        for rank in (0, 1)
        for what in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
    )
    async with ScriptedEngine() as engine, watched(engine, policy=Prior()) as fleet:
        for total in ("0.0", "1.0e308", "1.7e308", "0.0", "1000.0"):
            engine.page("/metrics", running + counted.replace("{0}", total))
            await fleet.scrape_once()
            (status,) = fleet.status()
            assert json.dumps(status, allow_nan=False)
            assert (status["running"], status["scrape_error"]) == (None, None)
        assert status["acceptance"] == [1.0]
        assert fleet.replicas[0].scrape_failures == {}


class FaultyPrior(Prior):
    """A policy that cannot be computed with, until it is mended."""

    broken = True

    def expected_tokens(self, request_class: str, gamma: int) -> float:
        return math.fsum([1.7e308, 1.7e308]) if self.broken else super().expected_tokens(request_class, gamma)


async def test_loops_survive_a_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    prior = FaultyPrior()
    drafts = 0
    async with ScriptedEngine() as engine:
        fleet = Fleet(
            [ReplicaSettings(name="r", url=engine.url)],
            scrape=ScrapeSettings(interval_s=0.01, timeout_s=5.0),
            health=HealthSettings(interval_s=60.0),
            policy=prior,
        )
        replica = fleet.replicas[0]

        async def drafting_until(reached: Callable[[], bool]) -> None:
            nonlocal drafts
            while not reached():
                drafts += 1000
                engine.page("/metrics", page(running=3, drafts=drafts, accepted=(drafts / 2,)))
                await asyncio.sleep(0.01)

        await fleet.start()
        await drafting_until(lambda: replica.scrape_failures["internal"] >= 3)
        assert fleet.status()[0]["scrape_error"] == "internal"
        prior.broken = False
        await drafting_until(lambda: replica.scrape_error is None)
        assert fleet.status()[0]["acceptance_ratio"] == pytest.approx(1.0)
        assert fleet.status()[0]["running"] == 3
        await fleet.stop()
    faults = [r for r in caplog.records if "met a fault" in r.message]
    assert [(r.levelname, r.exc_info is not None) for r in faults] == [("ERROR", True)]
    assert len([r for r in caplog.records if "cannot be read" in r.message]) == 1, "logged once"
    assert not [r for r in caplog.records if "ended" in r.message]


async def test_a_fault_in_one_look_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(page: bytes) -> None:
        raise KeyError("id")

    monkeypatch.setattr("adaptive_gamma.fleet.watch.read_model_list", faulty)
    async with ScriptedEngine() as engine, watched(engine) as fleet:
        engine.page("/v1/models", "{}")
        for _ in range(3):
            await fleet.check_health_once()
        (status,) = fleet.status()
        assert (status["healthy"], status["scrape_error"]) == (False, None), "the health page answers 404"
        assert fleet.replicas[0].scrape_failures == {"internal": 3}
    assert len([r for r in caplog.records if "met a fault" in r.message]) == 1


@pytest.mark.parametrize("expected", [math.nan, math.inf, 1e308])
async def test_a_ratio_that_is_no_number_is_unknown(expected: float) -> None:
    class Strange(Prior):
        def expected_tokens(self, request_class: str, gamma: int) -> float:
            return expected

    async with ScriptedEngine() as engine, watched(engine, policy=Strange()) as fleet:
        for drafts in (0, 1000):
            engine.page("/metrics", page(drafts=drafts, accepted=(drafts / 2,)))
            await fleet.scrape_once()
        assert fleet.replicas[0].scrape_failures == {}
        assert fleet.states[0].acceptance_ratio is None


async def test_a_fleet_that_was_never_started_stops() -> None:
    fleet = a_fleet(ReplicaSettings(name="r", url="http://127.0.0.1:1"))
    await fleet.stop()


def test_names_are_distinct() -> None:
    twice = ReplicaSettings(name="r", url="http://127.0.0.1:1")
    with pytest.raises(ValueError, match="distinct"):
        a_fleet(twice, twice)
