"""The command: what it takes, what it prints, how logs and servers are joined."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from adaptive_gamma.cli.doctor import command
from adaptive_gamma.doctor import SCHEMA
from tests.support.scripted_engine import Reply

from .labelled import LOGS, REAL, doctor
from .replicas import busy, plain_engine
from .test_servers import codes, vllm, vllm_page


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def log(name: str) -> str:
    return str(LOGS / f"{name}.log")


def test_text() -> None:
    result = run("--log", log("fieldnote-eager-prose"), "--plain-log", log("fieldnote-plain"))
    text = result.stdout
    assert result.exit_code == 1
    assert text.startswith("PROBLEM  the model runs without CUDA graphs while it speculates  [no_cuda_graphs]\n")
    assert "fieldnote-eager-prose.log:6: WARNING 06-01" in text
    assert "\n  cause: the engine resolved the graph mode to NONE" in text
    assert "\n  cost: measured: 165 ms" in text
    assert "\n      --attention-backend FLASH_ATTN\n" in text
    assert text.endswith("Found in 2 inputs: 3 problems.\n")


def test_text_of_a_clean_log_says_what_was_not_looked_at() -> None:
    result = run("--log", log("0.33.0-dflash-clean"))
    assert result.exit_code == 0
    assert "Not looked at:\n" in result.stdout
    assert "--plain-log" in result.stdout
    text = " ".join(result.stdout.split())
    assert "Looked over: - " in text
    assert "0.33.0-dflash-clean.log: log of vllm 0.33.0, speculative, gamma " in text
    assert "- did not run: bench prompts, bench: no benchmark was given (--bench)" in text
    assert "- did not run: reading: no running server was given (--url)" in text
    assert text.endswith("Clean: 18 of 26 checks ran over 1 input and found nothing.")


def test_text_of_what_cannot_be_read() -> None:
    result = run("--log", log("sglang-0.5.23"))
    assert result.exit_code == 2
    assert "is a log of SGLang; only logs of vLLM can be read" in " ".join(result.stdout.split())
    assert result.stdout.endswith("Could not look.\n")


def test_a_finding_counts_though_another_input_cannot_be_read() -> None:
    result = run("--log", log("0.8.5-dead-option"), "--log", log("html"))
    assert result.exit_code == 1
    assert "COULD NOT LOOK" in result.stdout


def test_wrong_usage() -> None:
    assert "nothing to look at" in run().stderr
    assert run().exit_code == 2
    for wrong in (
        ["--url", "ftp://a"],
        ["--url", "http://u:p@a"],
        ["--batch", "0"],
        ["--gamma", "99"],
        ["--watch", "nan"],
    ):
        assert run(*wrong).exit_code == 2


def test_json_is_of_one_shape() -> None:
    _, said = doctor("--log", log("0.33.0-table-zero"))
    assert list(said) == ["schema", "verdict", "looked_at", "findings", "unreadable", "not_looked_at", "seen", "checks"]
    assert said["schema"] == SCHEMA
    (finding,) = said["findings"]
    assert list(finding) == ["code", "severity", "subject", "title", "evidence", "cause", "cost", "fix"]
    assert [list(each) for each in finding["evidence"]] == [["kind", "where", "text"]] * 2
    assert all(list(each) == ["check", "subject", "why"] for each in said["not_looked_at"])


def test_the_plain_log_is_told_by_itself() -> None:
    with_option = doctor("--log", log("0.27.1-kv-lost"), "--plain-log", log("0.27.1-plain-full-memory"))
    without = doctor("--log", log("0.27.1-plain-full-memory"), "--log", log("0.27.1-kv-lost"))
    assert codes(with_option[1]) == codes(without[1]) == {"kv_lost_to_drafter": "warning"}


def test_logs_of_other_models_are_not_compared(tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes((LOGS / "0.27.1-plain-full-memory.log").read_bytes().replace(b"Llama-3.1-8B", b"Llama-3.1-70B"))
    code, said = doctor("--log", log("0.27.1-kv-lost"), "--plain-log", str(other))
    assert code == 0
    assert any("they are not compared" in each["why"] for each in said["not_looked_at"])


def test_a_plain_log_that_speculates_is_no_comparison() -> None:
    _, said = doctor("--log", log("0.27.1-kv-lost"), "--plain-log", log("0.27.1-same-as-plain"))
    assert any("is called plain and speculates" in each["why"] for each in said["not_looked_at"])


async def test_a_log_and_a_server_are_one_where_the_version_agrees() -> None:
    async with vllm(vllm_page(), version="0.30.0") as engine:
        arguments = ("--url", engine.url, "--log", log("0.30.0-v2-skip-mla"), "--watch", "0")
        _, joined = await asyncio.to_thread(doctor, *arguments)
    assert [(each["code"], each["subject"]) for each in joined["findings"]] == [("no_cuda_graphs", engine.url)]
    async with vllm(vllm_page(), version="0.33.0") as engine:
        arguments = ("--url", engine.url, "--log", log("0.30.0-v2-skip-mla"), "--watch", "0")
        _, apart = await asyncio.to_thread(doctor, *arguments)
    assert apart["findings"][0]["subject"] == log("0.30.0-v2-skip-mla")
    assert any("judged apart" in each["why"] for each in apart["not_looked_at"])


async def test_more_logs_than_servers_are_judged_apart() -> None:
    async with vllm(vllm_page()) as engine:
        logs = ("--log", log("0.33.0-dflash-clean"), "--log", log("0.30.0-eagle3-clean"))
        _, said = await asyncio.to_thread(doctor, "--url", engine.url, *logs, "--watch", "0")
    assert any("one --log for each --url" in each["why"] for each in said["not_looked_at"])


async def test_kv_cache_by_metrics() -> None:
    page = vllm_page().replace(b"410128", b"300000")
    async with vllm(page) as engine, busy(plain_engine()) as plain:
        _, said = await asyncio.to_thread(doctor, "--url", engine.url, "--plain-url", plain, "--watch", "0")
    assert codes(said) == {"kv_lost_to_drafter": "warning"}
    assert "300,000 tokens instead of 524,288" in said["findings"][0]["title"]


def _bench(folder: Path, name: str, *, tokens_per_s: float, **more: object) -> Path:
    row = {
        "schema": "adaptive-gamma/sweep-row/v1",
        "format": "adaptive-gamma-sweep",
        "engine": "vllm",
        "model": "m",
        "request_class": "prose",
        "concurrency_asked": 8,
        "concurrency": 7.9,
        "output_tokens": 128.0,
        "output_tokens_per_s": tokens_per_s,
        "completed": 64,
        "failed": 0,
        **more,
    }
    path = folder / f"{name}.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def test_a_bench_that_speculation_loses(tmp_path: Path) -> None:
    _bench(tmp_path, "plain", tokens_per_s=300.0, gamma=0, speculative=False)
    spec = _bench(tmp_path, "spec", tokens_per_s=200.0, gamma=3, speculative=True)
    code, said = doctor("--bench", str(tmp_path / "plain.jsonl"), "--bench", str(spec))
    assert (code, codes(said)) == (1, {"bench_speculation_losing": "problem"})
    assert "200 against 300 tokens/s" in said["findings"][0]["title"]
    code, said = doctor("--bench", str(tmp_path))
    assert (code, codes(said)) == (1, {"bench_speculation_losing": "problem"})


def test_a_bench_that_speculation_wins_or_that_does_not_compare(tmp_path: Path) -> None:
    _bench(tmp_path, "plain", tokens_per_s=300.0, gamma=0, speculative=False)
    _bench(tmp_path, "spec", tokens_per_s=400.0, gamma=3, speculative=True)
    _bench(tmp_path, "other-load", tokens_per_s=10.0, gamma=3, speculative=True, concurrency_asked=64)
    _bench(tmp_path, "other-prompts", tokens_per_s=10.0, gamma=5, speculative=True, request_class="code")
    assert doctor("--bench", str(tmp_path))[0] == 0


@pytest.mark.parametrize("content", [b"", b"not json", b"{}", b"\xff\xfe"])
def test_what_is_no_bench(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    code, said = doctor("--bench", str(path))
    assert code == 2
    assert said["unreadable"][0]["reason"]
    assert doctor("--bench", str(tmp_path / "none"))[0] == 2


def test_real_benches_on_random_tokens() -> None:
    path = REAL / "bench" / "spec_random_c16.json"
    if not path.exists():
        pytest.skip("benchmarks of real servers are not here")
    code, said = doctor("--bench", str(path))
    assert (code, codes(said)) == (1, {"bench_on_made_up_prompts": "problem"})
    assert "11.96 %" in said["findings"][0]["cost"]["text"]


async def test_every_page_is_asked_of_every_server_once_without_watching() -> None:
    async with vllm(vllm_page(), {"/metrics": Reply(vllm_page())}) as engine:
        await asyncio.to_thread(doctor, "--url", engine.url, "--url", engine.url, "--watch", "0")
    assert [path for path, _ in engine.requests].count("/metrics") == 2
