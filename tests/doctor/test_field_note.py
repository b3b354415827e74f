"""The field note's case on simulated replicas: diagnosed from logs alone, from metrics alone, and from both."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from .labelled import LOGS, doctor
from .replicas import EAGER_S, PIECES_S, PLAIN_S, SteadyClock, busy, plain_engine, speculative_engine, work


async def run(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The command in a thread, as it has a loop of its own; findings by code."""
    code, said = await asyncio.to_thread(doctor, *arguments)
    return code, {finding["code"]: finding for finding in said["findings"]}


def figures(finding: dict[str, Any]) -> str:
    return " ".join(evidence["text"] for evidence in finding["evidence"])


def log(name: str) -> str:
    return str(LOGS / f"{name}.log")


async def test_by_logs_alone() -> None:
    code, found = await run("--log", log("fieldnote-eager-prose"), "--plain-log", log("fieldnote-plain"))
    assert code == 1
    assert "Skipping CUDA graph capture" in figures(found["no_cuda_graphs"])
    assert "the plain server: Capturing CUDA graphs (decode, FULL)" in figures(found["no_cuda_graphs"])
    assert "165" in found["step_time_near_eager"]["title"]
    assert "10.6 against 26.3" in found["speculation_losing"]["title"]


async def test_by_metrics_alone() -> None:
    async with busy(speculative_engine(EAGER_S)) as spec, busy(plain_engine()) as plain:
        code, found = await run("--url", spec, "--plain-url", plain, "--watch", "0")
    assert code == 1
    assert "no_cuda_graphs" not in found, "metrics do not tell of graphs"
    step = found["step_time_near_eager"]
    assert step["title"] == "a speculative step takes 4.3 plain ones: 165 ms against 38.02 ms"
    assert "without CUDA graphs" in step["cause"]
    assert "speculation is slower than none" in found["speculation_losing"]["title"]


async def test_by_both() -> None:
    async with busy(speculative_engine(EAGER_S)) as spec, busy(plain_engine()) as plain:
        code, found = await run(
            "--url", spec, "--log", log("fieldnote-eager-prose"),
            "--plain-url", plain, "--plain-log", log("fieldnote-plain"), "--watch", "0",
        )  # fmt: skip
    assert code == 1
    assert {"no_cuda_graphs", "step_time_near_eager", "speculation_losing"} <= found.keys()
    graphs, step = found["no_cuda_graphs"], found["step_time_near_eager"]
    assert graphs["subject"] == step["subject"] == spec
    assert "step 165 ms" in figures(graphs), "what the log proves is measured on the server"
    assert "the log says" in step["cause"]
    assert "Skipping CUDA graph capture" in figures(step)


async def test_which_is_plain_is_told_from_the_servers() -> None:
    async with busy(speculative_engine(EAGER_S)) as spec, busy(plain_engine()) as plain:
        _, found = await run("--url", plain, "--url", spec, "--watch", "0")
    assert found["speculation_losing"]["subject"] == spec


@pytest.mark.parametrize("code_prompts", [True, False])
async def test_after_the_first_fix(code_prompts: bool) -> None:
    """With pieces captured, speculation draws level on code and still loses on prose."""
    async with busy(speculative_engine(PIECES_S), code=code_prompts) as spec, busy(plain_engine()) as plain:
        _, found = await run("--url", spec, "--plain-url", plain, "--watch", "0")
    assert found["step_time_near_eager"]["title"].endswith(f"108 ms against {PLAIN_S * 1e3:.4g} ms")
    assert ("speculation_losing" in found) is not code_prompts


async def test_with_full_graphs_nothing_is_wrong_on_code() -> None:
    full = 1.45 * PLAIN_S
    async with busy(speculative_engine(full), code=True) as spec, busy(plain_engine()) as plain:
        code, found = await run("--url", spec, "--plain-url", plain, "--watch", "0")
    assert code == 0
    assert all(finding["severity"] == "note" for finding in found.values())


async def test_measured_while_watched() -> None:
    """What was long ago does not count where enough is decoded while watching."""
    clock = SteadyClock(PLAIN_S)
    spec_engine, plain = speculative_engine(clock), plain_engine()
    async with busy(spec_engine, tokens=5000) as spec, busy(plain) as other:
        clock.step_s = EAGER_S
        watched = asyncio.create_task(run("--url", spec, "--plain-url", other, "--watch", "0.5"))
        while not watched.done():
            work(spec_engine, tokens=400)
            work(plain, tokens=400)
            await asyncio.sleep(0.01)
        _, found = await watched
    assert "165 ms" in found["step_time_near_eager"]["title"]
    assert "while watched" in figures(found["step_time_near_eager"])


def test_logs_name_their_files(tmp_path: Path) -> None:
    spec = tmp_path / "a name with spaces.log"
    spec.write_bytes((LOGS / "fieldnote-eager-prose.log").read_bytes())
    _, said = doctor("--log", str(spec))
    assert said["findings"][0]["evidence"][0]["where"].startswith(f"{spec}:")
