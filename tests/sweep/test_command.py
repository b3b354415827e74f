"""``adaptive-gamma sweep`` as a process: its options, its output, its ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ENGINE = [
    sys.executable,
    "-m",
    "adaptive_gamma",
    "simulate-engine",
    "--port",
    "0",
    "--model",
    "m",
    "--step-time",
    "1,0.01",
]
SWEEP = [sys.executable, "-m", "adaptive_gamma", "sweep"]
SMALL = ["--output-tokens", "24", "--min-requests", "2", "--waves", "1", "--concurrency", "1,2", "--allow-few-repeats"]


@contextlib.contextmanager
def simulated(*options: str) -> Iterator[str]:
    process = subprocess.Popen([*ENGINE, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listening on http://127.0.0.1:" in line
        yield line.split()[-1]
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[str, str]]:
    with simulated("--plain") as plain, simulated("--gamma", "3") as speculative:
        yield plain, speculative


def options_for(engines: Sequence[str], folder: Path, *more: str) -> list[str]:
    urls = [part for url in engines for part in ("--url", url)]
    return [*SWEEP, *urls, "-o", str(folder), *SMALL, *more]


def run(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **environment}
    )


def saved(folder: Path) -> list[dict[str, Any]]:
    file = folder / "rows.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]]


@contextlib.contextmanager
def started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for_rows(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(saved(folder)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_tables_for_a_terminal_and_what_they_do_not_support(engines: tuple[str, str], tmp_path: Path) -> None:
    done = run(options_for(engines, tmp_path, "--repeats", "2"))
    assert done.returncode == 0, done.stderr
    assert "[16/16]" in done.stderr
    assert "gamma-3" in done.stdout
    assert "speed-up over plain, paired by repeat" in done.stdout
    assert "engine vllm simulated, model m, gamma 3" in done.stdout
    assert "no claim for" in done.stdout
    assert "2 paired repeats, and a claim needs 15" in done.stdout
    assert len(saved(tmp_path)) == 16
    assert json.loads((tmp_path / "summary.json").read_text())["runs"] == {"planned": 16, "finished": 16}


def test_json_and_a_claim(engines: tuple[str, str], tmp_path: Path) -> None:
    command = [*SWEEP, "--url", f"base={engines[0]}/v1", "--gamma", "0", "--url", f"fast={engines[1]}/", "--gamma", "3"]
    small = ["--concurrency", "1", "--class", "code", "--output-tokens", "16", "--min-requests", "1", "--waves", "1"]
    done = run([*command, *small, "-o", str(tmp_path), "--json"])
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    (speedup,) = summary["speedups"]
    assert (summary["baseline"], speedup["arm"], speedup["pairs"]) == ("base", "fast", 15)
    assert speedup["throughput"]["interval_95"][0] <= speedup["throughput"]["median"]
    assert speedup["against_a_claim"] == []
    assert speedup["verdict"] in ("faster", "slower", "no difference shown")


def test_killed_at_any_moment_it_goes_on(engines: tuple[str, str], tmp_path: Path) -> None:
    command = options_for(engines, tmp_path, "--repeats", "3")
    finished = 0
    for more in (3, 1, 4):
        with started(command) as process:
            wait_for_rows(process, tmp_path, finished + more)
            process.send_signal(signal.SIGKILL)
            process.wait()
        finished = len(saved(tmp_path))
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert f"{finished} of 24 runs are on disk already" in done.stderr
    cells = Counter((row["arm"], row["request_class"], row["concurrency_asked"], row["run"]) for row in saved(tmp_path))
    assert len(cells) == 24
    assert set(cells.values()) == {1}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly(engines: tuple[str, str], tmp_path: Path, number: int, code: int) -> None:
    command = options_for(engines, tmp_path, "--repeats", "40", "--json")
    with started(command) as process:
        wait_for_rows(process, tmp_path, 3)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    count = len(saved(tmp_path))
    assert f"stopped: {count} of 320 runs are saved in {tmp_path}" in err
    assert "Traceback" not in err
    summary = json.loads(out)
    assert summary["runs"] == {"planned": 320, "finished": count}


def test_a_second_sweep_in_the_same_folder_waits_for_nobody(engines: tuple[str, str], tmp_path: Path) -> None:
    command = options_for(engines, tmp_path, "--repeats", "40")
    with started(command) as process:
        wait_for_rows(process, tmp_path, 1)
        done = run(command)
    assert done.returncode == 2
    assert "another sweep is writing here" in done.stderr


def test_a_key_comes_from_the_environment_and_is_never_shown(tmp_path: Path) -> None:
    with simulated("--plain", "--api-key", "hush-4711") as url:
        without = run(options_for([url], tmp_path, "--repeats", "1"))
        assert without.returncode == 2
        assert "--api-key-env" in without.stderr
        named = options_for([url], tmp_path, "--repeats", "1", "--api-key-env", "MY_KEY")
        absent = run(named)
        assert absent.returncode == 2
        assert "'MY_KEY'" in absent.stderr
        done = run(named, MY_KEY="hush-4711")
        again = run(options_for([url], tmp_path / "b", "--repeats", "1"), ADAPTIVE_GAMMA_ENGINE_API_KEY="hush-4711")
        wrong = run(named[:-2], ADAPTIVE_GAMMA_ENGINE_API_KEY="wrong\nhush-4711")
    assert (done.returncode, again.returncode, wrong.returncode) == (0, 0, 2), done.stderr
    written = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    for text in (written, *(part for result in (done, again, wrong) for part in (result.stdout, result.stderr))):
        assert "hush-4711" not in text


URL = ["--url", "http://127.0.0.1:9"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["Missing option '--url'"]),
        ([*URL, "--repeats", "14"], ["support no claim", "--allow-few-repeats"]),
        ([*URL, "--concurrency", "1,x"], ["'x' is not a number of requests"]),
        ([*URL, "--concurrency", "0"], ["between 1 and"]),
        ([*URL, "--concurrency", "4,4"], ["named twice"]),
        ([*URL, "--timeout", "0"], ["not in the range 0<x"]),
        ([*URL, "--dataset", "none.jsonl"], ["none.jsonl", "builtin"]),
        ([*URL, "--class", "cod"], ["did you mean 'code'"]),
        ([*URL, "--gamma", "x"], ["neither auto nor a number"]),
        ([*URL, "--gamma", "65"], ["0..64"]),
        ([*URL, "--gamma", "1", "--gamma", "2"], ["once for each of the 1 --url, not 2 times"]),
        ([*URL, "--engine", "tgi"], ["'auto', 'llamacpp', 'sglang', 'vllm'"]),
        ([*URL, *URL], ["given twice"]),
        (["--url", "a=http://127.0.0.1:9", "--url", "a=http://127.0.0.1:10"], ["the name 'a' is given twice"]),
        (["--url", "a b=http://127.0.0.1:9"], ["'a b' is no name"]),
        (["--url", "http://me:secret@127.0.0.1:9"], ["credentials", "--api-key-env"]),
        (["--url", "127.0.0.1:9"], ["http://host:port"]),
        (["--url", "http://127.0.0.1:9/path"], ["only scheme, host and port"]),
    ],
)
def test_wrong_options_end_with_2_and_say_why(tmp_path: Path, options: list[str], words: list[str]) -> None:
    done = run([*SWEEP, *options, "-o", str(tmp_path / "out")])
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert "me:secret" not in done.stderr


def test_open_files_are_raised_where_a_load_needs_them(engines: tuple[str, str], tmp_path: Path) -> None:
    def limited(soft: int, hard: int, *load: str) -> subprocess.CompletedProcess[str]:
        command = options_for(engines[:1], tmp_path, "--repeats", "1", "--class", "code", *load)
        script = (
            "import os, resource, sys; n = int(sys.argv[1]), int(sys.argv[2]); "
            "resource.setrlimit(resource.RLIMIT_NOFILE, n); os.execv(sys.argv[3], sys.argv[3:])"
        )
        return run([sys.executable, "-c", script, str(soft), str(hard), *command])

    refused = limited(70, 90, "--concurrency", "60")
    assert refused.returncode == 2
    assert "60 connections need 124 open files, and the system allows 90" in refused.stderr
    raised = limited(70, 200, "--concurrency", "60", "--output-tokens", "4")
    assert raised.returncode == 0, raised.stderr
    assert [row["failed"] for row in saved(tmp_path)] == [0]


def test_an_unreachable_engine_ends_with_1_and_its_url(tmp_path: Path) -> None:
    with simulated("--plain") as url:
        pass
    done = run([*SWEEP, "--url", url, "-o", str(tmp_path / "out")])
    assert done.returncode == 1
    assert f"{url} is unreachable" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_of_another_sweep_is_left_alone(engines: tuple[str, str], tmp_path: Path) -> None:
    assert run(options_for(engines, tmp_path, "--repeats", "1")).returncode == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    done = run(options_for(engines, tmp_path, "--repeats", "1", "--seed", "1"))
    assert done.returncode == 2
    assert "choose another folder" in done.stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
