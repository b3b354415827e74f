from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.bench.sweep.arm import ArmSpec
from adaptive_gamma.bench.sweep.dataset import MOST_BYTES, Prompt, builtin_prompts, open_dataset, read_prompt_file
from adaptive_gamma.bench.sweep.settings import SweepSettings
from adaptive_gamma.errors import SweepError
from adaptive_gamma.routing import canonical_class, classify_prompt

ARMS = (ArmSpec("http://127.0.0.1:1"), ArmSpec("http://127.0.0.1:2"), ArmSpec("http://127.0.0.1:3"))


@pytest.mark.parametrize("name", ["code", "prose"])
def test_the_builtin_set_is_real_text_of_its_class(name: str) -> None:
    prompts = builtin_prompts().by_class[name]
    texts = [prompt.text or "" for prompt in prompts]
    assert len(set(texts)) == len(texts) >= 30
    assert min(map(len, texts)) >= 80
    assert max(map(len, texts)) >= 3 * min(map(len, texts)), "short ones and long ones"
    assert len({text[:20] for text in texts}) == len(texts), "no two begin alike"
    found = Counter(classify_prompt(text).name for text in texts)
    assert found[canonical_class(name)] >= 0.9 * len(texts)
    assert sum(found.values()) - found[canonical_class(name)] == found["unsure"], "none is taken for the other class"


def test_a_file_of_both_kinds(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    file = tmp_path / "mine.jsonl"
    lines = [{"prompt": "one", "class": "code"}, {"messages": chat}, {"prompt": "two", "class": "code"}]
    file.write_text("\n\n".join(json.dumps(line) for line in lines))
    prompts = read_prompt_file(file)
    assert prompts.name == "mine.jsonl"
    assert {name: len(group) for name, group in prompts.by_class.items()} == {"code": 2, "unsure": 1}
    fields = prompts.by_class["unsure"][0].fields("chat", "Request 1.\n\n")
    assert [message["content"] for message in fields["messages"]] == ["Be brief.", "Request 1.\n\nHello?"]
    assert chat[1]["content"] == "Hello?"


def test_parts_of_a_message_are_opened_too() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    prompt = Prompt("chat", messages=({"role": "user", "content": [image]},))
    assert prompt.fields("chat", "Request 1.")["messages"][0]["content"] == [
        {"type": "text", "text": "Request 1."},
        image,
    ]


GOOD = json.dumps({"prompt": "fine"})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "half', ["not JSON"]),
        ("[1]", ["expected an object"]),
        ('{"promt": "x"}', ["promt", "did you mean 'prompt'?"]),
        ('{"class": "code"}', ["either a prompt or messages"]),
        ('{"prompt": "x", "messages": []}', ["either a prompt or messages"]),
        ('{"prompt": "  "}', ["prompt", "not empty"]),
        ('{"prompt": [1, 2, 3]}', ["prompt", "token ids"]),
        ('{"prompt": "x", "class": 3}', ["class", "name"]),
        ('{"messages": "hello"}', ["messages", "list"]),
        ('{"messages": []}', ["messages", "list"]),
        ('{"messages": ["hello"]}', ["messages[0]", "object"]),
        ('{"messages": [{"content": "x"}]}', ["messages[0].role"]),
        ('{"messages": [{"role": "user", "content": null}]}', ["messages[0].content"]),
        ('{"messages": [{"role": "system", "content": "x"}]}', ["no message is the user's"]),
        ("\udcff", ["not JSON"]),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str, words: list[str]) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(f"{GOOD}\n{line}\n{GOOD}".encode(errors="surrogateescape"))
    with pytest.raises(SweepError) as caught:
        read_prompt_file(file)
    for word in ["bad.jsonl:2", *words]:
        assert word in str(caught.value)


def test_a_file_without_prompts_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="builtin"):
        open_dataset(str(tmp_path / "none.jsonl"), "chat")
    (tmp_path / "empty.jsonl").write_text("\n \n")
    with pytest.raises(SweepError, match="no prompt"):
        open_dataset(str(tmp_path / "empty.jsonl"), "chat")
    with pytest.raises(SweepError, match="is no regular file"):
        open_dataset(str(tmp_path), "chat")


def test_messages_do_not_go_to_completions(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "x"}]}))
    assert open_dataset(str(file), "chat")
    with pytest.raises(SweepError, match="--endpoint chat"):
        open_dataset(str(file), "completions")


def test_a_class_that_is_not_there() -> None:
    prompts = builtin_prompts()
    assert list(prompts.only(["prose"]).by_class) == ["prose"]
    with pytest.raises(SweepError, match="did you mean 'prose'"):
        prompts.only(["prosa"])


def test_sets_that_differ_have_other_digests() -> None:
    prompts = builtin_prompts()
    assert prompts.digest == builtin_prompts().digest
    assert prompts.digest != prompts.only(["code"]).digest


def settings(**options: Any) -> SweepSettings:
    return SweepSettings(arms=ARMS, concurrency=(1, 8), prompts=builtin_prompts(), repeats=6, **options)


def test_every_arm_gets_the_same_requests_and_no_request_comes_twice() -> None:
    asked = settings()
    by_run: dict[Any, list[str]] = {}
    for key in asked.schedule():
        texts = [item.opening + (item.prompt.text or "") for item in asked.work(key)]
        assert len(texts) == max(2 * key.concurrency, 8)
        assert {item.prompt.request_class for item in asked.work(key)} == {key.request_class}
        place = (key.concurrency, key.request_class, key.repeat)
        assert by_run.setdefault(place, texts) == texts
    flat = [text for texts in by_run.values() for text in texts]
    openings = [text.split("\n")[0] for text in flat]
    assert len(set(openings)) == len(openings)


def test_more_requests_than_prompts_use_all_before_one_again() -> None:
    prompts = builtin_prompts()
    count = len(prompts.by_class["code"])
    drawn = prompts.draw("code", 2 * count + 3, "x")
    assert len(set(drawn[:count])) == len(set(drawn[count : 2 * count])) == count
    assert prompts.draw("code", 5, "x") != prompts.draw("code", 5, "y")


@pytest.mark.parametrize("count", [3, 8, 16, 50])
@pytest.mark.parametrize("name", ["code", "prose"])
def test_draws_differ_in_their_prompts_and_not_in_their_lengths(name: str, count: int) -> None:
    prompts = builtin_prompts()
    draws = [prompts.draw(name, count, str(repeat)) for repeat in range(60)]
    lengths = [sum(prompt.length() for prompt in draw) / count for draw in draws]
    assert max(lengths) < 1.08 * min(lengths)
    used = {prompt for draw in draws for prompt in draw}
    assert len(used) >= 0.4 * len(prompts.by_class[name])
    if count <= len(prompts.by_class[name]):
        assert all(len(set(draw)) == count for draw in draws)


def test_verbatim_prompts_have_no_opening() -> None:
    asked = settings(verbatim=True)
    assert {item.opening for key in asked.schedule() for item in asked.work(key)} == {""}


def test_arms_take_turns() -> None:
    keys = list(settings().schedule())
    assert len(keys) == len(set(keys)) == 6 * 2 * 2 * 3
    assert [key.repeat for key in keys] == sorted(key.repeat for key in keys)
    groups = [keys[start : start + 3] for start in range(0, len(keys), 3)]
    assert all({key.arm for key in group} == {0, 1, 2} for group in groups)
    assert all(len({(key.concurrency, key.request_class, key.repeat) for key in group}) == 1 for group in groups)
    firsts = Counter((group[0].concurrency, group[0].request_class, group[0].arm) for group in groups)
    assert set(firsts.values()) == {2}, "each arm is first equally often in each cell"
    assert all(before[-1].repeat <= after[0].repeat for before, after in pairwise(groups))


@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_warm_up_is_of_all_classes(concurrency: int) -> None:
    asked = settings().warm_up(concurrency)
    assert len(asked) == concurrency
    counts = Counter(item.prompt.request_class for item in asked)
    assert max(counts.values()) - min(counts.get(name, 0) for name in ("code", "prose")) <= 1


def test_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        if path.exists():
            with pytest.raises(SweepError, match="is no regular file"):
                read_prompt_file(path)
    large = tmp_path / "large.jsonl"
    with large.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(SweepError, match=r"is larger than 256 MiB \(268435457 bytes\)"):
        read_prompt_file(large)
