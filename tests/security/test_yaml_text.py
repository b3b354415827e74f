"""YAML that is wrong, or means too much: what fuzzing found in the readers of policies, fleets and configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_gamma.config import load_settings
from adaptive_gamma.errors import ConfigurationError, PolicyError
from adaptive_gamma.policy import load_policy
from adaptive_gamma.simulation.replay import read_fleet
from adaptive_gamma.yaml_text import MOST_VALUES, parse_yaml
from tests.fuzz.files import BOMB

REFUSED = {
    "a date that is none": ("name: 2024-13-45\n", "not valid YAML"),
    "a time that is none": ("name: 2024-02-28 25:61:61\n", "not valid YAML"),
    "a number of too many digits": (f"name: 0x{'f' * 5000}\n", "too many digits"),
    "digits in groups of sixty": (f"name: {':'.join(['59'] * 3000)}\n", "too many digits"),
    "nested too deeply": (f"name: {'[' * 600}\n", "nested too deeply"),
    "a value that holds itself": ("name: &a [*a]\n", "line 1, column 11: the value holds itself"),
    "a key that holds itself": ("name: &a {? *a : 1}\n", "the value holds itself"),
    "aliases upon aliases": (BOMB + "name: *a9\n", f"aliases stand for over {MOST_VALUES} values"),
    "a character that is none": ("name: \x00\n", "special characters are not allowed"),
    "a set of a list": ("name: !!set {? [1] : }\n", "line 1, column 16"),
    "a number that is none": ("name: !!int x\n", "not valid YAML"),
    "a truth that is none": ("name: !!bool x\n", "not valid YAML"),
    "binary that is none": ("name: !!binary x\n", "base64"),
    "an object of Python": ("name: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
    "two documents": ("name: a\n---\nname: b\n", "but found another document"),
    "a merge of a text": ("<<: name\n", "mapping"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_words_by_every_reader(tmp_path: Path, name: str) -> None:
    text, says = REFUSED[name]
    path = tmp_path / "file.yaml"
    path.write_bytes(text.encode())
    for read, error in (
        (load_policy, PolicyError),
        (read_fleet, ConfigurationError),
        (load_settings, ConfigurationError),
    ):
        with pytest.raises(error) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert says in str(caught.value)
        assert len(str(caught.value)) < 1000


def test_aliases_that_people_write_are_read() -> None:
    text = "base: &b {engine: vllm, gamma: 3}\nreplicas: [{<<: *b, name: a}, {<<: *b, name: b, gamma: 0}]\n"
    assert parse_yaml(text, "x", text_keys=True)["replicas"] == [
        {"engine": "vllm", "gamma": 3, "name": "a"},
        {"engine": "vllm", "gamma": 0, "name": "b"},
    ]


def test_numbers_of_yaml_1_2_are_numbers() -> None:
    assert parse_yaml("[3.35e12, 1e-3, -2E+4, 0x10, 1_000]", "x") == [3.35e12, 1e-3, -2e4, 16, 1000]


def test_a_fleet_file_names_a_key_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("replicas:\n  - {name: a, gamma: 1, gamma: 2}\n")
    with pytest.raises(ConfigurationError, match="line 2, column 25: the key 'gamma' is given twice"):
        read_fleet(path)


@pytest.mark.parametrize("text", ["*" + "0" * 30_000, "!" + "x" * 30_000 + " 1", "? " + "x" * 900 + "\n? " + "x" * 900])
def test_what_is_wrong_is_told_in_a_line_however_long_the_text(text: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        parse_yaml(text, "the-file.yaml")
    assert len(str(told.value)) < 300
