"""The runner of the documentation's blocks is honest: what fails is told, what is left out is told with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from documentation.shell_blocks.find import read_page, unmarked_commands
from documentation.shell_blocks.run import run_page
from tests.support.gated_engine import until

PAGE = """
Save this:

```yaml title="some/settings.yaml"
key: value
```

```sh
export GREETING=hello
cd some
sleep 1000 & echo $! > {pid}
```

<!-- not run: needs the moon -->
```sh
exit 1
```

```sh
test "$GREETING" = hello
grep -q value settings.yaml
```

```python
assert 1 + 1 == 2
```

```text
exit 1
```
"""


async def test_blocks_run_in_order_as_in_one_terminal_and_nothing_is_left_behind(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(pid=tmp_path / "pid"))
    results = run_page(read_page(page))
    assert [(result.status, result.detail) for result in results] == [
        ("ran", ""),
        ("not run", "needs the moon"),
        ("ran", ""),
        ("ran", ""),
    ]
    sleeper = int((tmp_path / "pid").read_text())
    await until(lambda: not Path(f"/proc/{sleeper}").exists() or "Z" in state_of(sleeper), "what it started has ended")


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.mark.parametrize("text", ["false", "false; true", "true | false | true", "cat /nowhere", "nosuchcommand"])
def test_a_block_that_fails_fails_and_the_rest_is_not_reached(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{text}\n```\n\n```sh\ntrue\n```\n")
    first, second = run_page(read_page(page))
    assert (first.status, second.status) == ("failed", "not reached")
    assert "exit code" in first.detail


def test_a_python_block_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nassert 1 + 1 == 3, 'sums'\n```\n")
    (result,) = run_page(read_page(page))
    assert result.status == "failed"
    assert "AssertionError: sums" in result.detail


def test_a_block_cannot_write_over_the_repository(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('```yaml title="README.md"\nkey: value\n```\n\n```sh\ntrue\n```\n')
    with pytest.raises(ValueError, match="a file of the repository"):
        run_page(read_page(page))


def test_a_block_whose_program_is_missing_is_left_out_and_what_brings_it_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- needs no-such-program: a far shop -->\n```sh\nexit 1\n```\n<!-- needs sh: all -->\n```sh\ntrue\n```\n"
    )
    missing, there = run_page(read_page(page))
    assert (missing.status, missing.detail) == ("not run", "needs no-such-program: a far shop")
    assert there.status == "ran"


def test_what_the_reader_has_is_there_before_the_block_and_after_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- the reader has:\nexport CITY=Ulm\n-->\n```sh\ntest $CITY = Ulm\n```\n\n```sh\ntest $CITY = Ulm\n```\n"
    )
    assert [result.status for result in run_page(read_page(page))] == ["ran", "ran"]


async def test_a_block_that_goes_on_is_ended_with_all_it_started_once_it_has_done_its_work(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    sleeper = tmp_path / "pid"
    page.write_text(
        f"<!-- goes on until: test -s {sleeper} -->\n```sh\nsleep 1000 & echo $! > {sleeper}\nsleep 1000\n```\n"
        "\n```sh\ntrue\n```\n"
    )
    assert [result.status for result in run_page(read_page(page))] == ["ended", "ran"]
    pid = int(sleeper.read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in state_of(pid), "what it started has ended")


@pytest.mark.parametrize("text", ["true", "echo 'no such model'; false"])
def test_a_block_that_should_go_on_and_ends_by_itself_has_failed(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- goes on until: false -->\n```sh\n{text}\n```\n")
    (result,) = run_page(read_page(page))
    assert result.status == "failed"
    assert "it ended, with exit code" in result.detail


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- needs sh: all -->\n```yaml\na: 1\n```\n", "never run"),
        ("<!-- the reader has:\nls\n```sh\nls\n```\n", "comment does not end"),
        ("<!-- not run: a reason -->\nwords\n```sh\nls\n```\n", "right before"),
        ("<!-- not run: a reason -->\n```yaml\na: 1\n```\n", "never run"),
        ("```sh\nls\n", "does not end"),
    ],
)
def test_marks_and_fences_that_are_wrong_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_page(page)


@pytest.mark.parametrize(
    "text",
    ["    adaptive-gamma serve\n", "```\ncurl http://127.0.0.1\n```\n", "```text\n$ ls\n```\n", "    make demo\n"],
)
def test_a_command_outside_of_the_blocks_that_are_run_is_found(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert len(list(unmarked_commands(page))) == 1
