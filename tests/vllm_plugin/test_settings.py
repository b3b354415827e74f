"""What vLLM's environment may say to the plugin."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from adaptive_gamma import vllm_plugin
from adaptive_gamma.vllm_plugin.run_directory import schedule_file_of
from adaptive_gamma.vllm_plugin.settings import FILE, REMOTE, TOKEN, TOKEN_FILE, UNTESTED, PluginSettings, SettingsError
from adaptive_gamma.vllm_plugin.version import TESTED, unsupported_reason

SECRET = "a-secret-of-some-length"


def test_without_its_variables_it_is_off() -> None:
    assert not PluginSettings.from_environment({"PATH": "/bin", "ADAPTIVE_GAMMA_LISTEN": "x"}).active


def test_all_of_them(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET + "\n")
    settings = PluginSettings.from_environment(
        {FILE: "/run/knob/gamma.json", TOKEN_FILE: str(token), REMOTE: "1", UNTESTED: "no"}
    )
    assert settings == PluginSettings(Path("/run/knob/gamma.json"), SECRET, True, False)
    assert settings.active
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({FILE: "gamma.json"}, "absolute path"),
        ({FILE: "/run/gamma.yaml"}, "ends with .json"),
        ({TOKEN: "short"}, "16 or more"),
        ({TOKEN: "a token with spaces in it"}, "without a space"),
        ({TOKEN: "x" * 15 + "\x07"}, "printable"),
        ({TOKEN: SECRET, TOKEN_FILE: "/x"}, "both"),
        ({TOKEN_FILE: "/no/such/file"}, "cannot be read: No such file"),
        ({TOKEN: SECRET, REMOTE: "perhaps"}, f"{REMOTE} must be 1 or 0"),
        ({"ADAPTIVE_GAMMA_PLUGIN_TOKN": SECRET}, "ADAPTIVE_GAMMA_PLUGIN_TOKN is not known"),
    ],
)
def test_what_is_wrong_is_named_without_its_value(environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        PluginSettings.from_environment(environment)
    assert SECRET not in str(caught.value)


def test_a_wrong_variable_leaves_vllm_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(TOKEN, "short")
    with caplog.at_level(logging.INFO):
        vllm_plugin.register()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "nothing is changed" in caplog.text


def test_where_only_the_route_is_asked_for_the_files_have_a_directory_of_their_own() -> None:
    environment = {TOKEN: SECRET}
    path = schedule_file_of(PluginSettings.from_environment(environment), environment)
    assert environment[FILE] == str(path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    # A process started from here reads the variable, and uses the same.
    assert schedule_file_of(PluginSettings.from_environment(environment), environment) == path


def test_without_a_vllm_there_is_nothing_to_take_hold_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsupported_reason(False) == "no vLLM is installed here"
    monkeypatch.setenv(FILE, str(tmp_path / "gamma.json"))
    vllm_plugin.register()
    assert '"refused"' in (tmp_path / "gamma.state.json").read_text()


def test_another_version_is_refused_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        assert name == "vllm"
        return "9.9.9+cpu"

    monkeypatch.setattr("adaptive_gamma.vllm_plugin.version.version", version)
    reason = unsupported_reason(False)
    assert reason is not None
    assert reason.startswith("vLLM 9.9.9 is not one it was tested with (0.32.0)")
    assert unsupported_reason(True) is None
    monkeypatch.setattr("adaptive_gamma.vllm_plugin.version.version", lambda _: f"{TESTED[0]}+cpu")
    assert unsupported_reason(False) is None
