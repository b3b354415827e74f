"""The state file is whole whenever it is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adaptive_gamma.fleet.state_file import StateFile

DEATHS = 200


def test_killed_200_times_while_writing_it_loads_every_time(tmp_path: Path) -> None:
    """Real processes, killed by SIGKILL at a moment of chance."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fleet.state_writer", str(tmp_path), str(DEATHS)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    print(
        f"{told['read']} of {DEATHS} loads after kill -9 were whole; {told['cut_off']} deaths cut a write off; "
        f"{told['writes']} writes in all"
    )
    assert told["read"] == DEATHS
    assert told["cut_off"] > 0, "no death fell into a write"
    assert told["left"] == ["learned.json"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "a[b]*.json")
    assert file.read() is None
    file.write({"x": [1, 2.5, None]})
    file.write({"x": "é"})
    assert file.read() == {"x": "é"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a[b]*.json"]


def test_left_overs_of_other_processes_are_removed(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json")
    file.write({"x": 1})
    (tmp_path / ".s.json.99999.tmp").write_text('{"x":')
    (tmp_path / "other.tmp").touch()
    assert file.read() == {"x": 1}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other.tmp", "s.json"]


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xed\xa0\x80", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r".+"):
        StateFile(path).read()


def test_a_write_that_cannot_be_leaves_what_was_there(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json")
    file.write({"x": 1})
    with pytest.raises(ValueError, match="JSON"):
        file.write({"x": float("nan")})
    missing = StateFile(tmp_path / "none" / "s.json")
    with pytest.raises(OSError, match="none"):
        missing.write({"x": 2})
    (tmp_path / f".s.json.{os.getpid()}.tmp").mkdir()
    with pytest.raises(OSError, match=r"s\.json"):
        file.write({"x": 3})
    (tmp_path / f".s.json.{os.getpid()}.tmp").rmdir()
    assert file.read() == {"x": 1}


def test_threads_take_turns(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.json")

    def write_often(number: int) -> None:
        for _ in range(20):
            file.write({"n": number, "s": "x" * 1000})

    threads = [threading.Thread(target=write_often, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = file.read()
    assert state is not None
    assert len(state["s"]) == 1000


def test_a_link_stays_one_and_the_file_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    real, link = tmp_path / "volume" / "learned.json", tmp_path / "s.json"
    link.symlink_to("volume/learned.json")
    StateFile(link).write({"x": 1})
    assert link.is_symlink()
    assert json.loads(real.read_text()) == {"x": 1}
    StateFile(link).write({"x": 2})
    (tmp_path / "volume" / ".learned.json.99999.tmp").write_text("{")
    assert StateFile(link).read() == {"x": 2}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s.json", "volume"]
    assert sorted(entry.name for entry in real.parent.iterdir()) == ["learned.json", "learned.json.refused"]


def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    """A pipe would hold up the start for ever; a device would be gone with the first write."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)  # so that a read of it ends, or waits, and never finds nobody there
    os.write(held, b"{}")
    try:
        with pytest.raises(OSError, match="is no regular file"):
            StateFile(pipe).read()
        with pytest.raises(OSError, match="is no regular file"):
            StateFile(pipe).write({"x": 1})
        assert pipe.is_fifo()
    finally:
        os.close(held)
    for path in (Path(os.devnull), tmp_path):
        with pytest.raises(OSError, match="is no regular file"):
            StateFile(path).read()
