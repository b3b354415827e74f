"""A sweep of two real llama.cpp servers, one plain and one that speculates, end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.bench import Source, SweepRow, row_from_json
from adaptive_gamma.cli.demo.llama_server import LlamaServer
from tests.support.running import demo_models

RATES = (0.9, 0.8, 0.7, 0.6)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    models = demo_models(tmp_path_factory.mktemp("models"))
    speculative = LlamaServer(models.target, draft=models.draft, gamma=4, synthetic_rates=RATES, slots=4)
    with speculative, LlamaServer(models.target, slots=4) as plain:
        yield plain.url, speculative.url


def sweep(servers: tuple[str, str], folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "adaptive_gamma",
        "sweep",
        "--url",
        servers[0],
        "--url",
        servers[1],
        "-o",
        str(folder),
    ]
    small = [
        "--concurrency",
        "1,3",
        "--repeats",
        "1",
        "--allow-few-repeats",
        "--waves",
        "1",
        "--min-requests",
        "3",
        "--class",
        "prose",
    ]
    return subprocess.run(
        [*command, *small, "--output-tokens", "48", "--json", *options],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def rows_of(folder: Path) -> list[SweepRow]:
    lines = (folder / "rows.jsonl").read_text().splitlines()
    return [row_from_json(json.loads(line), Source("rows.jsonl", number)) for number, line in enumerate(lines, 1)]


@pytest.mark.timeout(240)
def test_two_real_servers_end_to_end(servers: tuple[str, str], tmp_path: Path) -> None:
    done = sweep(servers, tmp_path, "--gamma", "0", "--gamma", "4")
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert [arm["name"] for arm in summary["arms"]] == ["plain", "gamma-4"]
    assert all(arm["fixed_length"] for arm in summary["arms"])
    rows = rows_of(tmp_path)
    assert len(rows) == 2 * 2
    for row in rows:
        assert (row.engine, row.model, row.completed, row.failed) == ("llamacpp", "tiny", 3, 0)
        assert row.output_tokens == 48
        assert row.engine_version
        assert row.tpot_p50_s
        assert row.ttft_p50_s
        assert row.concurrency is not None
        assert row.concurrency_asked is not None
        assert 0.5 < row.concurrency <= row.concurrency_asked
    assert {(row.gamma, row.speculative) for row in rows if row.arm == "plain"} == {(0, False)}
    assert {(row.gamma, row.speculative) for row in rows if row.arm == "gamma-4"} == {(4, True)}
    assert all(row.acceptance is None for row in rows if row.arm == "plain")
    seen = [row.acceptance for row in rows if row.arm == "gamma-4"]
    drafts = [item.drafts or 0 for item in seen if item is not None]
    assert len(drafts) == 2
    lengths = [(item.mean_length or 0.0) * (item.drafts or 0) for item in seen if item is not None]
    assert sum(lengths) / sum(drafts) == pytest.approx(1 + sum(RATES), rel=0.2), "what the server was told to accept"
    assert len(summary["speedups"]) == 2
    assert {row["verdict"] for row in summary["speedups"]} == {"no claim"}


def test_a_gamma_that_the_server_does_not_have(servers: tuple[str, str], tmp_path: Path) -> None:
    done = sweep(servers, tmp_path, "--gamma", "0", "--gamma", "3")
    assert done.returncode == 2
    assert "--gamma says 3, and the engine reports gamma 4" in done.stderr
    assert not (tmp_path / "rows.jsonl").exists()
