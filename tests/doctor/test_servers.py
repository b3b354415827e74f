"""Running servers: what is read of them, and those that give nothing to look at."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest

from adaptive_gamma.doctor import ServerSettings, Unreadable, look_at_server
from adaptive_gamma.doctor.evidence import ServerEvidence
from adaptive_gamma.doctor.gather.pages import MAX_PAGE_BYTES
from adaptive_gamma.simulation.engine import EngineSettings, SimulatedEngine, serving
from tests.support.scripted_engine import Reply, ScriptedEngine

from .labelled import REAL, doctor
from .replicas import busy, plain_engine, speculative_engine

_INFO = "/server_info?config_format=json"
_HTML = b"<!DOCTYPE html><html><body>Sign in</body></html>"


async def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    return await asyncio.to_thread(doctor, *arguments, "--watch", "0")


def codes(said: dict[str, Any]) -> dict[str, str]:
    return {finding["code"]: finding["severity"] for finding in said["findings"]}


def models(owner: str = "vllm", **more: Any) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": "tiny", "owned_by": owner, **more}]}).encode()


def vllm_page(
    *,
    gamma: int = 3,
    drafts: int = 1000,
    accepted: tuple[int, ...] = (800, 560, 390),
    tokens: int = 3000,
    more: str = "",
) -> bytes:
    lines = [
        'vllm:num_requests_running{engine="0",model_name="tiny"} 2.0',
        'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0',
        'vllm:cache_config_info{engine="0",kv_cache_size_tokens="410128"} 1.0',
        f'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {tokens}',
        f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="tiny"}} {drafts}',
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="tiny"}} {drafts * gamma}',
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} {sum(accepted)}',
        *(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="tiny",position="{i}"}} {count}'
            for i, count in enumerate(accepted)
        ),
        more,
    ]
    return "\n".join(line for line in lines if line).encode() + b"\n"


def vllm(page: bytes, more: Mapping[str, Reply] | None = None, version: str = "0.33.0") -> ScriptedEngine:
    replies = {
        "/v1/models": Reply(models()),
        "/version": Reply(json.dumps({"version": version}).encode()),
        "/metrics": Reply(page),
    }
    return ScriptedEngine(replies | dict(more or {}))


async def test_clean() -> None:
    async with vllm(vllm_page()) as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (0, {})
    assert {each["check"] for each in said["not_looked_at"]} >= {"graphs", "step time", "losing"}


async def test_statistics_disabled() -> None:
    async with serving(SimulatedEngine(EngineSettings(gamma=3, statistics=False))) as url:
        code, said = await run("--url", url)
    assert (code, codes(said)) == (1, {"statistics_disabled": "problem"})
    assert said["findings"][0]["fix"]["flags"] == ["without --disable-log-stats"]


async def test_statistics_disabled_leaves_the_pages_of_python() -> None:
    async with vllm(b'# TYPE python_info gauge\npython_info{version="3.12"} 1.0\n') as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (1, {"statistics_disabled": "problem"})


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(_HTML), "answers HTML"),
        (Reply(_HTML, headers={"content-type": "text/html"}), "answers HTML"),
        (Reply(b'{"a": 1}'), "not one of metrics"),
        (Reply(b"vllm:num_requests_running 1"), "breaks off"),
        (Reply(b"", status=500), "answered 500"),
        (Reply(b"", status=302, headers={"location": "http://127.0.0.1:9/"}), "answered 302"),
        (Reply(b"", status=403), "answered 403"),
        (Reply(b"a 1\n" * (MAX_PAGE_BYTES // 4 + 1)), f"more than {MAX_PAGE_BYTES} bytes"),
        (Reply(gzip.compress(b"a 1\n", mtime=0), headers={"content-encoding": "gzip"}), "compressed"),
        (Reply(b"a 1\n", announced=1000), "broke off"),
        (Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n"), "does not speak HTTP"),
        (Reply(silent=True), "no whole answer within 0.3 s"),
    ],
)
async def test_what_cannot_be_looked_at(reply: Reply, reason: str) -> None:
    async with ScriptedEngine({"/metrics": reply}) as engine:
        code, said = await run("--url", engine.url, "--timeout", "0.3")
    assert code == 2
    assert said["verdict"] == "could_not_look"
    assert reason in said["unreadable"][0]["reason"]
    assert said["unreadable"][0]["input"] == engine.url


async def test_nobody_there() -> None:
    code, said = await run("--url", "http://127.0.0.1:9")
    assert code == 2
    assert "cannot be connected to" in said["unreadable"][0]["reason"]


async def test_one_bad_server_among_good_ones_is_told() -> None:
    async with vllm(vllm_page()) as engine, ScriptedEngine({"/metrics": Reply(_HTML)}) as page:
        code, said = await run("--url", engine.url, "--url", page.url)
    assert code == 2
    assert said["looked_at"] == [engine.url]


async def test_a_guarded_list_of_models_does_not_matter() -> None:
    async with vllm(vllm_page(), {"/v1/models": Reply(b'{"error": "Unauthorized"}', status=401)}) as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (0, {})


async def test_the_key_is_sent_and_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAPTIVE_GAMMA_ENGINE_API_KEY", "secret-key")
    async with vllm(vllm_page()) as engine:
        _, said = await run("--url", engine.url)
    assert all(headers["authorization"] == "Bearer secret-key" for _, headers in engine.requests)
    assert "secret-key" not in json.dumps(said)


async def test_llama_cpp_is_read_with_a_note() -> None:
    page = b"llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\nllamacpp:tokens_predicted_total 10\n"
    async with ScriptedEngine({"/v1/models": Reply(models("llamacpp")), "/metrics": Reply(page)}) as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (0, {"reading_has_effects": "note"})


async def test_llama_cpp_without_metrics() -> None:
    replies = {"/v1/models": Reply(models("llamacpp")), "/metrics": Reply(b"{}", status=501)}
    async with ScriptedEngine(replies) as engine:
        code, said = await run("--url", engine.url)
    assert code == 1
    assert said["findings"][0]["fix"]["flags"] == ["--metrics"]


async def test_tensorrt_llm_is_not_read() -> None:
    replies = {"/v1/models": Reply(models("tensorrt_llm")), "/metrics": Reply(b"[]")}
    async with ScriptedEngine(replies) as engine:
        code, said = await run("--url", engine.url)
    assert "/metrics" not in {path for path, _ in engine.requests}
    assert (code, codes(said)) == (2, {"reading_has_effects": "note"})
    assert "is TensorRT-LLM" in said["unreadable"][0]["reason"]


async def test_intended_against_effective() -> None:
    info = {
        "vllm_config": {
            "speculative_config": {"method": "eagle3", "num_speculative_tokens": 5},
            "compilation_config": {"cudagraph_mode": 0},
            "model_config": {"model": "m", "enforce_eager": False, "max_model_len": 4096},
            "scheduler_config": {"max_num_seqs": 64},
            "parallel_config": {"data_parallel_size": 1, "pipeline_parallel_size": 1},
            "device_config": {"device": "cuda"},
        }
    }
    async with vllm(vllm_page(), {_INFO: Reply(json.dumps(info).encode())}) as engine:
        code, said = await run("--url", engine.url)
    assert code == 1
    assert codes(said) == {"no_cuda_graphs": "problem", "gamma_not_as_meant": "problem"}
    meant = next(each for each in said["findings"] if each["code"] == "gamma_not_as_meant")
    assert [each["text"] for each in meant["evidence"]] == ["3 draft positions", "num_speculative_tokens=5"]


async def test_gamma_that_was_meant() -> None:
    async with vllm(vllm_page()) as engine:
        code, said = await run("--url", engine.url, "--gamma", "4")
    assert (code, codes(said)) == (1, {"gamma_not_as_meant": "problem"})


async def test_a_table_over_ranks_by_its_info_page() -> None:
    table = {"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 1]]}
    info = {
        "vllm_config": {
            "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3, **table},
            "parallel_config": {"data_parallel_size": 2},
            "scheduler_config": {"max_num_seqs": 64},
        }
    }
    async with vllm(vllm_page(), {_INFO: Reply(json.dumps(info).encode())}) as engine:
        _, said = await run("--url", engine.url)
    assert codes(said) == {"data_parallel_with_table": "problem"}


@pytest.mark.parametrize(
    "body", [b"[]", b'{"vllm_config": 3}', b'{"vllm_config": {"speculative_config": [1]}}', b"<html>"]
)
async def test_other_info_pages(body: bytes) -> None:
    async with vllm(vllm_page(), {_INFO: Reply(body)}) as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (0, {})


async def test_a_probe_asks_one_request() -> None:
    engine = SimulatedEngine(EngineSettings(gamma=3, acceptance_report="detailed", time_scale=100.0))
    async with serving(engine) as url:
        code, said = await run("--url", url, "--probe", "--gamma", "2")
    assert code == 1
    found = next(each for each in said["findings"] if each["code"] == "gamma_not_as_meant")
    assert [each["text"] for each in found["evidence"]] == ["3 draft positions", "gamma 2 is meant"]
    assert not any("--probe" in each["why"] for each in said["not_looked_at"])


async def test_what_a_probe_says_counts() -> None:
    answer = {
        "choices": [{"text": "four"}],
        "metrics": {
            "speculative_decoding": {
                "num_spec_tokens": 5,
                "num_spec_steps": 4,
                "num_draft_tokens": 20,
                "num_accepted_draft_tokens": 8,
                "acceptance_histogram": [1, 1, 0, 1, 1, 0],
            }
        },
    }
    async with vllm(vllm_page(), {"/v1/completions": Reply(json.dumps(answer).encode())}) as engine:
        _, said = await run("--url", engine.url, "--probe")
    found = next(each for each in said["findings"] if each["code"] == "gamma_not_as_meant")
    assert "num_spec_tokens 5" in found["evidence"][1]["text"]


async def test_without_probe_nothing_is_sent() -> None:
    async with vllm(vllm_page()) as engine:
        await run("--url", engine.url)
    assert {path for path, _ in engine.requests} == {"/v1/models", "/version", "/metrics", _INFO}


async def test_gamma_too_long_by_metrics() -> None:
    async with vllm(vllm_page(gamma=5, accepted=(900, 700, 500, 200, 60))) as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (1, {"gamma_too_long": "warning"})
    assert "40%" in said["findings"][0]["cause"]


async def test_drafts_of_several_lengths_are_not_judged() -> None:
    page = vllm_page(gamma=4, drafts=1000, accepted=(900, 300, 200, 100)).replace(b" 4000\n", b" 2600\n")
    async with vllm(page) as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (0, {"acceptance_reads_low": "note"})


async def test_a_drafter_that_never_drafts() -> None:
    async with vllm(vllm_page(drafts=0, accepted=(0, 0, 0), tokens=50_000)) as engine:
        code, said = await run("--url", engine.url)
    assert (code, codes(said)) == (1, {"never_drafts": "warning"})


async def test_capture_limit_by_load() -> None:
    info = {
        "vllm_config": {
            "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
            "compilation_config": {"cudagraph_mode": [2, 1], "max_cudagraph_capture_size": 7},
        }
    }
    async with vllm(vllm_page(), {_INFO: Reply(json.dumps(info).encode())}) as engine:
        _, said = await run("--url", engine.url)
    assert codes(said) == {"capture_limit_exceeded": "problem"}
    assert "2 requests x (gamma 3 + 1) are 8 tokens" in said["findings"][0]["title"]


async def test_counters_that_fall_while_watched() -> None:
    async with vllm(vllm_page(tokens=3000)) as engine:

        async def sleep(seconds: float) -> None:
            engine.replies["/metrics"] = Reply(vllm_page(tokens=12))

        ticks = iter([0.0, 0.0, 2.0, 2.0, 2.0])
        seen = await look_at_server(engine.url, ServerSettings(watch_s=1.0), clock=lambda: next(ticks), sleep=sleep)
    assert isinstance(seen, ServerEvidence)
    assert seen.reset_between is not None
    assert "generation_tokens fell from 3000 to 12" in seen.reset_between.text


async def test_a_server_that_goes_away_while_watched() -> None:
    async with vllm(vllm_page()) as engine:

        async def sleep(seconds: float) -> None:
            engine.replies["/metrics"] = Reply(status=500)

        ticks = iter([0.0, 0.0, 2.0, 2.0, 2.0])
        seen = await look_at_server(engine.url, ServerSettings(watch_s=1.0), clock=lambda: next(ticks), sleep=sleep)
    assert isinstance(seen, ServerEvidence)
    assert seen.reset_between is not None
    assert "lost while watching" in seen.reset_between.text


async def test_looking_is_bounded_in_time() -> None:
    """Every page is silent: the sum of their limits is all that it takes."""
    async with ScriptedEngine({path: Reply(silent=True) for path in ("/v1/models", "/version", "/metrics")}) as engine:
        seen = await asyncio.wait_for(look_at_server(engine.url, ServerSettings(watch_s=3600, timeout_s=0.05)), 30)
    assert isinstance(seen, Unreadable)


@pytest.mark.parametrize("name", ["draft", "ngram", "dynamic", "plain", "draft_idle"])
async def test_pages_of_real_servers(name: str) -> None:
    path = REAL / "metrics" / f"{name}.txt"
    if not path.exists():
        pytest.skip("pages of real servers are not here")
    info = REAL / "server_info" / ("draft.json" if name == "draft" else "plain.json")
    more = {_INFO: Reply(info.read_bytes())} if name in ("draft", "plain") else {}
    async with vllm(path.read_bytes(), more, version="0.32.0") as engine:
        code, said = await run("--url", engine.url)
    # A schedule, and drafts cut at the ends of short answers.
    assert codes(said) == ({"acceptance_reads_low": "note"} if name in ("draft", "draft_idle") else {})
    assert code == 0


async def test_losing_needs_the_same_load() -> None:
    """A replica that carries twice as much is not blamed for being slower."""
    async with busy(speculative_engine(0.165), requests=8) as spec, busy(plain_engine()) as plain:
        _, said = await run("--url", spec, "--plain-url", plain)
    assert "speculation_losing" not in codes(said)
    assert any("different loads" in each["why"] for each in said["not_looked_at"])


async def test_too_little_is_no_evidence() -> None:
    async with busy(speculative_engine(0.165), tokens=40) as spec, busy(plain_engine()) as plain:
        code, said = await run("--url", spec, "--plain-url", plain)
    assert code == 0
    assert any("too little was decoded" in each["why"] for each in said["not_looked_at"])


@pytest.mark.parametrize(
    ("which", "lost"),
    [("", "its load, its tokens, its drafts"), ("generation", "its tokens"), ("spec_decode", "its drafts")],
)
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
async def test_a_page_whose_values_are_no_numbers_is_not_clean(which: str, lost: str, value: str) -> None:
    lines = vllm_page().decode().splitlines()
    page = "\n".join(f"{line.rpartition(' ')[0]} {value}" if which in line else line for line in lines) + "\n"
    async with ScriptedEngine() as engine:
        engine.page("/v1/models", models().decode())
        engine.page("/metrics", page)
        code, said = await run("--url", engine.url)
    assert (code, said["verdict"], said["findings"]) == (2, "could_not_look", [])
    assert f"tells no number of {lost}: " in said["unreadable"][0]["reason"]


async def test_what_was_looked_over_is_said() -> None:
    async with ScriptedEngine() as engine:
        engine.page("/v1/models", models().decode())
        engine.page("/metrics", vllm_page().decode())
        _, said = await run("--url", engine.url)
    [seen] = said["seen"]
    assert seen == f"{engine.url}: vllm, speculative, gamma 3; metrics read once, at most 2 requests running"
    assert said["checks"]["all"] == said["checks"]["ran"] + sum(len(e["checks"]) for e in said["checks"]["did_not_run"])
