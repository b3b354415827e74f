"""Relative paths in a configuration are ones from its folder; those of variables and options are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.cli.reload import Configuration
from adaptive_gamma.config import Settings, load_settings
from adaptive_gamma.config.section import NamedFile
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import find_policy

SHIPPED = "h200-llama3-70b-fp8"
REPLICAS = [{"name": "a", "url": "http://127.0.0.1:1"}]
FILES: dict[str, Any] = {
    "policy": "policies/mine.yaml",
    "replicas": REPLICAS,
    "learn": {"state_file": "learned.json"},
    "observe": {"log": "seen/observed.jsonl"},
    "access_log": {"path": "../access.log"},
    "discovery": {
        "kind": "kubernetes",
        "services": [{"name": "s", "service": "vllm"}],
        "kubernetes": {"token_file": "token", "ca_file": "/etc/ca.crt"},
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the configuration is to lie; the working directory is another."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "etc" / "policies").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "etc"


def _write(folder: Path, values: dict[str, Any]) -> Path:
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _named(settings: Settings) -> list[str | None]:
    assert settings.discovery is not None
    kubernetes = settings.discovery.kubernetes
    return [
        settings.policy, settings.learn.state_file, settings.observe.log, settings.access_log.path,
        kubernetes.token_file, kubernetes.ca_file,
    ]  # fmt: skip


def test_every_relative_path_of_the_file_is_from_its_folder(folder: Path) -> None:
    named = _named(load_settings(_write(folder, FILES), environment={}))
    assert named == [
        f"{folder}/policies/mine.yaml", f"{folder}/learned.json", f"{folder}/seen/observed.jsonl",
        f"{folder}/../access.log", f"{folder}/token", "/etc/ca.crt",
    ]  # fmt: skip


def test_a_configuration_in_the_working_directory_names_files_as_it_did(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(folder, FILES)
    monkeypatch.chdir(folder)
    assert load_settings("c.yaml", environment={}).policy == "policies/mine.yaml"


def test_variables_and_options_are_from_the_working_directory(folder: Path) -> None:
    environment = {"ADAPTIVE_GAMMA_POLICY": "there.yaml", "ADAPTIVE_GAMMA_LEARN__STATE_FILE": "s.json"}
    settings = load_settings(_write(folder, FILES), environment=environment)
    assert (settings.policy, settings.learn.state_file) == ("there.yaml", "s.json")
    assert settings.observe.log == f"{folder}/seen/observed.jsonl"
    assert load_settings(folder / "c.yaml", environment={}, overrides={"policy": "o.yaml"}).policy == "o.yaml"


def test_what_is_no_path_stays(folder: Path) -> None:
    values = {**FILES, "access_log": {"path": "-"}, "learn": {"state_file": None}}
    settings = load_settings(_write(folder, values), environment={})
    assert (settings.access_log.path, settings.learn.state_file) == ("-", None)
    with pytest.raises(ConfigurationError, match="policy: expected text, not 5"):
        load_settings(_write(folder, {**FILES, "policy": 5}), environment={})
    with pytest.raises(ConfigurationError, match=r"state_file: .*at least 1 character"):
        load_settings(_write(folder, {**FILES, "learn": {"state_file": ""}}), environment={})


@pytest.mark.parametrize("name", [SHIPPED, f"{SHIPPED}.yaml"])
def test_a_shipped_policy_is_named_from_anywhere(folder: Path, name: str) -> None:
    path = _write(folder, {"policy": name, "replicas": REPLICAS})
    settings, policy = Configuration(path, {}).load()
    assert (settings.policy, policy.name) == (name, SHIPPED)


def test_a_file_beside_the_configuration_goes_before_a_shipped_policy(folder: Path) -> None:
    (folder / f"{SHIPPED}.yaml").write_bytes(find_policy("h100-llama3-8b-eagle3").read_bytes())
    path = _write(folder, {"policy": f"{SHIPPED}.yaml", "replicas": REPLICAS})
    settings, policy = Configuration(path, {}).load()
    assert (settings.policy, policy.name) == (f"{folder}/{SHIPPED}.yaml", "h100-llama3-8b-eagle3")


def test_a_policy_of_the_working_directory_is_not_taken_for_one_beside_the_configuration(folder: Path) -> None:
    Path("mine.yaml").write_bytes(find_policy(SHIPPED).read_bytes())
    path = _write(folder, {"policy": "mine.yaml", "replicas": REPLICAS})
    with pytest.raises(ConfigurationError, match=f"{path}: policy: '{folder}/mine.yaml': no such file"):
        Configuration(path, {}).load()


def test_a_reload_finds_the_file_where_the_start_did_and_watches_it(folder: Path) -> None:
    mine = folder / "policies" / "mine.yaml"
    path = _write(folder, {"policy": "policies/mine.yaml", "replicas": REPLICAS})
    configuration = Configuration(path, {})
    with pytest.raises(ConfigurationError):
        configuration.load()
    assert set(configuration.stamps) == {path, mine}, "a file that is not there yet is watched where it will be"
    mine.write_bytes(find_policy(SHIPPED).read_bytes())
    for _ in range(2):
        settings, policy = configuration.load()
        assert (settings.policy, policy.name) == (str(mine), SHIPPED)
        assert set(configuration.stamps) == {path, mine}


def test_a_configuration_from_a_pipe_has_no_folder(folder: Path) -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, yaml.safe_dump(FILES).encode())
        os.close(writer)
        assert load_settings(f"/dev/fd/{reader}", environment={}).policy == "policies/mine.yaml"
    finally:
        os.close(reader)


def test_every_setting_that_names_a_file_is_marked_as_one() -> None:
    """A key that is called after a file, or says it is one, is moved with the others."""

    def unmarked(model: Any, above: str = "") -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            text = f"{field.annotation} {field.metadata}"
            if (name.endswith("_file") or name in ("log", "policy")) and NamedFile.__name__ not in text:
                found.append(above + name)
            for section in (field.annotation, *getattr(field.annotation, "__args__", ())):
                if hasattr(section, "model_fields"):
                    found += unmarked(section, f"{above}{name}.")
        return found

    assert unmarked(Settings) == []


def test_what_was_piped_in_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time there is nothing in it, which is no empty file, and reading a named pipe would never end."""
    monkeypatch.setenv("ADAPTIVE_GAMMA_POLICY", SHIPPED)
    monkeypatch.setenv("ADAPTIVE_GAMMA_REPLICAS", '[{"name": "a", "url": "http://127.0.0.1:1"}]')
    reading, writing = os.pipe()
    os.write(writing, b"mode: observe\n")
    os.close(writing)
    try:
        configuration = Configuration(Path(f"/dev/fd/{reading}"), {})
        assert configuration.load()[0].mode == "observe"
        with pytest.raises(ConfigurationError, match=r"/dev/fd/.*: was piped in, and can be read only once; restart"):
            configuration.load()
    finally:
        os.close(reading)


def test_a_file_that_was_not_there_or_is_a_folder_is_told_so_again(folder: Path) -> None:
    for path, why in ((folder / "none.yaml", "No such file"), (folder, "Is a directory")):
        configuration = Configuration(path, {})
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=why):
                configuration.load()
