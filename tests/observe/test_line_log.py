"""Lines go to the file, or it is known how many did not."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.observe import LineLog


def made(path: Path, *, max_bytes: int = 10_000, files: int = 3, **more: Any) -> LineLog:
    return LineLog(path, max_bytes=max_bytes, files=files, **more)


def numbers(*paths: Path) -> list[int]:
    return [json.loads(line)["n"] for path in paths for line in path.read_bytes().splitlines()]


def line(n: int, size: int = 0) -> bytes:
    return json.dumps({"n": n, "pad": "x" * size}).encode()


def test_lines_arrive_in_order_and_whole(tmp_path: Path) -> None:
    log = made(tmp_path / "log", max_bytes=10**9)
    for n in range(5000):
        log.add(line(n))
    assert log.close() == 0
    assert numbers(tmp_path / "log") == list(range(5000))
    assert (log.written, log.dropped, log.errors, log.waiting) == (5000, 0, 0, 0)


def test_files_are_put_aside_at_their_size_and_the_oldest_go(tmp_path: Path) -> None:
    log = made(tmp_path / "log", max_bytes=1000, files=3)
    for n in range(100):
        log.add(line(n, 80))
    log.close()
    files = [tmp_path / name for name in ("log.2", "log.1", "log")]
    kept = numbers(*files)
    assert kept == list(range(100 - len(kept), 100))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert all(path.stat().st_size <= 1000 for path in files)
    assert (log.written, log.dropped) == (100, 0)


def test_one_file_is_begun_anew(tmp_path: Path) -> None:
    log = made(tmp_path / "log", max_bytes=1000, files=1)
    for n in range(100):
        log.add(line(n, 80))
    log.close()
    kept = numbers(tmp_path / "log")
    assert kept[-1] == 99
    assert len(list(tmp_path.iterdir())) == 1


def test_a_line_longer_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    log = made(tmp_path / "log", max_bytes=1000, files=9)
    for n, size in enumerate((10, 5000, 10)):
        log.add(line(n, size))
    log.close()
    assert [numbers(tmp_path / name) for name in ("log.2", "log.1", "log")] == [[0], [1], [2]]


def test_fewer_files_are_kept_after_a_change(tmp_path: Path) -> None:
    log = made(tmp_path / "log", max_bytes=200, files=5)
    for n in range(20):
        log.add(line(n, 100))
    log.close()
    log = made(tmp_path / "log", max_bytes=200, files=5)
    log.resize(max_bytes=200, files=2)
    log.add(line(20, 100))
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]


def test_a_torn_line_of_a_process_that_died_stays_apart(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'{"n": 0}\n{"n": 1, "pa')
    log = made(tmp_path / "log")
    log.add(line(2))
    log.close()
    lines = (tmp_path / "log").read_bytes().splitlines()
    assert lines[:2] == [b'{"n": 0}', b'{"n": 1, "pa']
    assert json.loads(lines[2])["n"] == 2


@pytest.mark.parametrize("in_the_way", ["log.1", "log.2", "log.3"])
def test_a_directory_in_the_way_of_rotation_is_told_once_and_no_line_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_the_way: str
) -> None:
    (tmp_path / in_the_way).mkdir()
    (tmp_path / in_the_way / "kept").touch()
    log = made(tmp_path / "log", max_bytes=1000, files=3)
    for n in range(3):
        for number in range(100 * n, 100 * n + 100):
            log.add(line(number, 50))
        _written(log, 100 * n + 100)
    assert numbers(tmp_path / "log") == list(range(300)), "lines go on into the file"
    assert (log.dropped, log.waiting) == (0, 0)
    assert log.errors >= 3
    [told] = caplog.records
    assert told.levelname == "ERROR"
    assert f"{tmp_path / 'log'} is full and cannot be put aside: {in_the_way} is a directory" in told.message
    assert (tmp_path / in_the_way / "kept").exists()

    (tmp_path / in_the_way / "kept").unlink()
    (tmp_path / in_the_way).rmdir()
    log.add(line(300, 50))
    assert log.close() == 0
    assert numbers(tmp_path / "log.1", tmp_path / "log") == list(range(301))
    assert "is put aside at its size again" in caplog.text


def test_a_file_moved_away_by_others_is_begun_anew(tmp_path: Path) -> None:
    log = made(tmp_path / "log")
    log.add(line(0))
    _written(log, 1)
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    log.add(line(1))
    log.close()
    assert numbers(tmp_path / "elsewhere", tmp_path / "log") == [0, 1]


def test_what_cannot_be_opened_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        made(tmp_path / "missing" / "log")
    with pytest.raises(IsADirectoryError):
        made(tmp_path)


def test_a_full_disk_delays_lines_and_then_drops_them_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder is taken away, so that no new file can be begun; then it comes back."""
    folder = tmp_path / "logs"
    folder.mkdir()
    log = made(folder / "log", most_waiting=10)
    log.add(line(0))
    _written(log, 1)
    folder.rename(tmp_path / "gone")
    for n in range(1, 31):
        log.add(line(n))
    _errors(log)
    assert log.dropped > 0
    assert "cannot be written: No such file or directory" in caplog.text
    folder.mkdir()
    assert log.close(30.0) == 0
    rows = [json.loads(each) for each in (folder / "log").read_bytes().splitlines()]
    told = sum(row.get("dropped", 0) for row in rows)
    assert told == log.dropped
    assert len([row for row in rows if "n" in row]) + told == 30


def test_a_file_that_is_taken_away_while_it_is_full_is_begun_anew(tmp_path: Path) -> None:
    """What a limit on a file's size lets through stands for a disk that takes a part of a batch and no more."""
    path = tmp_path / "log"
    log = made(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(line(0)) * 2, hard))
        for n in range(3):
            log.add(line(n))
        _errors(log)
        assert 0 < path.stat().st_size < 3 * (len(line(0)) + 1)
        path.unlink()
        _wait(lambda: path.exists() and path.stat().st_size > 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert log.close(30.0) == 0
    assert log.written == 3
    kept = numbers(path)
    assert kept == [1, 2], "the line that the old file has whole is not written twice, the torn one is begun anew"


def test_lines_that_can_never_be_written_are_counted_as_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = made(folder / "log")
    _written(log, 0)
    folder.rename(tmp_path / "gone")
    for n in range(7):
        log.add(line(n))
    log.close(30.0)
    assert (log.dropped, log.written) == (7, 0)
    assert "7 lines could not be written and are lost" in caplog.text
    log.add(line(8))
    assert log.dropped == 8, "after the end nothing is taken"


def test_a_device_without_room(caplog: pytest.LogCaptureFixture) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    log = made(full)
    log.add(line(0))
    _errors(log)
    log.close(30.0)
    assert (log.dropped, log.written) == (1, 0)
    assert "No space left on device" in caplog.text


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    log = made(tmp_path / "log", max_bytes=50_000, files=1000)

    def add(first: int) -> None:
        for n in range(1000):
            log.add(line(first + n))

    threads = [threading.Thread(target=add, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.close(30.0) == 0
    assert sorted(numbers(*tmp_path.iterdir())) == list(range(4000))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        log = made(tmp_path / "log", max_bytes=1000)
        for n in range(50):
            log.add(line(n, 80))
        log.close()
    assert len(os.listdir("/proc/self/fd")) == before


def _written(log: LineLog, count: int) -> None:
    _wait(lambda: log.written >= count)


def _errors(log: LineLog) -> None:
    _wait(lambda: log.errors > 0)


def _wait(condition: object) -> None:
    assert callable(condition)
    event = threading.Event()
    for _ in range(5000):
        if condition():
            return
        event.wait(0.002)
    raise AssertionError("did not happen in ten seconds")
