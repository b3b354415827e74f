"""Changes of files, found by looking."""

from __future__ import annotations

import os
from pathlib import Path

from adaptive_gamma.config import FileChanges, Stamp, stamps_of


def look(changes: FileChanges, loaded: dict[Path, Stamp], path: Path) -> bool:
    return changes.changed(loaded, stamps_of([path]))


def test_a_change_counts_once_it_is_at_rest(tmp_path: Path) -> None:
    path, changes = tmp_path / "file", FileChanges()
    path.write_text("one")
    loaded = stamps_of([path])
    assert not look(changes, loaded, path)
    for text in ("two three", "two three four", "two three four five"):
        path.write_text(text)
        assert not look(changes, loaded, path), "it is still being written"
    assert look(changes, loaded, path)
    loaded = stamps_of([path])
    assert not look(changes, loaded, path)
    assert not look(changes, loaded, path)


def test_the_same_size_at_the_same_time_in_another_file(tmp_path: Path) -> None:
    path, other, changes = tmp_path / "file", tmp_path / "other", FileChanges()
    for each in (path, other):
        each.write_text("abc")
        os.utime(each, ns=(10**18, 10**18))
    loaded = stamps_of([path])
    other.replace(path)
    assert [look(changes, loaded, path) for _ in range(2)] == [False, True]


def test_a_file_that_goes_and_comes_back(tmp_path: Path) -> None:
    path, changes = tmp_path / "file", FileChanges()
    path.write_text("abc")
    loaded = stamps_of([path])
    text = path.read_bytes()
    path.unlink()
    assert not look(changes, loaded, path), "an editor puts it back at once"
    path.write_bytes(text)
    assert [look(changes, loaded, path) for _ in range(2)] == [False, True]
    loaded = stamps_of([path])
    path.unlink()
    assert [look(changes, loaded, path) for _ in range(2)] == [False, True]


def test_a_mounted_config_map_is_swapped_as_a_whole(tmp_path: Path) -> None:
    """As the kubelet does it: files link into ..data, which links to a folder of one version and is replaced."""
    mount, changes = tmp_path / "mount", FileChanges()
    mount.mkdir()
    _swap(mount, "..v1", "one")
    (mount / "serve.yaml").symlink_to("..data/serve.yaml")
    loaded = stamps_of([mount / "serve.yaml"])
    assert not look(changes, loaded, mount / "serve.yaml")
    _swap(mount, "..v2", "two")
    assert [look(changes, loaded, mount / "serve.yaml") for _ in range(2)] == [False, True]


def test_what_is_no_file_has_no_stamp(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    names = [tmp_path / "none", loop, Path("a\0b"), tmp_path / ("x" * 300)]
    assert set(stamps_of(names).values()) == {None}


def _swap(mount: Path, version: str, text: str) -> None:
    (mount / version).mkdir()
    (mount / version / "serve.yaml").write_text(text)
    os.utime(mount / version / "serve.yaml", ns=(10**18, 10**18))
    (mount / "..data_tmp").symlink_to(version)
    (mount / "..data_tmp").replace(mount / "..data")
