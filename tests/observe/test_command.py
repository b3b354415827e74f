"""``adaptive-gamma report``: over a log, and over a running proxy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from adaptive_gamma.cli.report import command
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError
from tests.support.gated_engine import GatedEngine, answer_json
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

from .making import START, hour, observation


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "observed.jsonl"
    path.write_bytes(b"".join(each.line() + b"\n" for each in hour(1)))
    return path


def test_text(log: Path) -> None:
    result = run(str(log), "--since", "2023-11-14")
    assert result.exit_code == 0
    text = result.stdout
    assert "600 requests observed from 2023-11-14 22:13:20Z" in text
    assert "elsewhere" in text
    assert "Acting is predicted to have made requests faster by" in " ".join(text.split())
    assert "bootstrap over 60 blocks of 1 min, 2000 draws" in " ".join(text.split())
    assert "requests only" not in text
    assert "What cannot be known from this:" in text
    assert all(len(line) <= 110 for line in text.splitlines())


def test_which_requests_the_time_per_token_is_of(tmp_path: Path) -> None:
    made = [observation(at=n, tokens=None if n % 3 else 101) for n in range(9)]
    path = tmp_path / "observed.jsonl"
    path.write_bytes(b"".join(each.line() + b"\n" for each in made))
    text = " ".join(run(str(path), "--since", "2023-11-14").stdout.split())
    assert "the time per output token hold these 3 of 9 requests only" in text


def test_what_is_too_little_is_told_with_what_is_there_and_what_is_needed(tmp_path: Path) -> None:
    made = [observation(at=n, tokens=101) for n in range(9)]
    path = tmp_path / "observed.jsonl"
    path.write_bytes(b"".join(each.line() + b"\n" for each in made))
    text = " ".join(run(str(path), "--since", "2023-11-14").stdout.split())
    pools = json.loads(run(str(path), "--since", "2023-11-14", "--json").stdout)["predictions"]["pools"]
    assert (
        f"were {pools['plain']['measured']} in the plain pool and {pools['speculative']['measured']} in the spec"
        in text
    )
    assert "and 30 in each are needed to correct its predictions" in text
    assert "There are 9, and 100 are needed for blocks of time" in text


def test_json_and_since(log: Path) -> None:
    whole = json.loads(run(str(log), "--since", str(int(START)), "--json").stdout)
    half = json.loads(run(str(log), "--since", str(int(START + 1800)), "--json").stdout)
    assert (whole["requests"], half["requests"], half["earlier"]) == (600, 300, 300)
    figure = whole["overall"]["request_s"]
    assert figure["low"] < figure["change"] < figure["high"] < 0


def test_nothing_observed_is_told_by_the_exit_code(log: Path) -> None:
    result = run(str(log), "--since", "1h")
    assert result.exit_code == 1
    assert "nothing can be said" in result.stdout


def test_wrong_usage(tmp_path: Path) -> None:
    assert run(str(tmp_path), "--since", "tomorrow").exit_code == 2
    assert run(str(tmp_path)).exit_code == 2
    with pytest.raises(ConfigurationError, match="cannot be read"):
        run(str(tmp_path / "none"), "--since", "1h")
    with pytest.raises(AdaptiveGammaError, match="cannot be asked"):
        run("http://127.0.0.1:9", "--since", "1h")


async def test_a_running_proxy_is_asked() -> None:
    answer = answer_json(200, {"usage": {"completion_tokens": 20}})
    async with (
        GatedEngine(answer) as one,
        GatedEngine(answer) as two,
        running_proxy([one, two], gammas=[4, 0], mode="observe") as proxy,
    ):
        for _ in range(30):
            await proxy.ask(post())
        url = f"http://127.0.0.1:{proxy.server.admin.port}/"
        result = await asyncio.to_thread(run, url, "--since", "1h", "--json")
        assert result.exit_code == 0
        report = json.loads(result.stdout)
        assert report["requests"] == 30
        assert report["would_have_moved"]["between"].keys() <= {"plain -> speculative"}
        with pytest.raises(AdaptiveGammaError, match="answered 404"):
            await asyncio.to_thread(run, f"http://127.0.0.1:{proxy.port}", "--since", "1h")
