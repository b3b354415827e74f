"""``adaptive-gamma roofline`` and ``adaptive-gamma policy``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from adaptive_gamma.cli.policy import command as policy_command
from adaptive_gamma.cli.roofline import command as roofline_command
from adaptive_gamma.errors import ConfigurationError, PolicyError
from adaptive_gamma.policy import load_policy, policy_yaml

from .inputs import POLICIES, SHIPPED, small_policy


def run(command: Any, *arguments: str) -> Result:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def roofline(*arguments: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run(roofline_command, *arguments, "--json").output)
    return report


class TestRoofline:
    def test_the_article(self) -> None:
        report = roofline("article-h100-27b")
        assert round(report["weight_read_ms"], 3) == 20.149
        assert round(report["kv_read_ms_per_sequence"], 5) == 0.20032
        assert round(report["compute_ms_per_token"], 5) == 0.10920
        bound = report["compute_bound_batch"]
        assert (round(bound["7"], 1), round(bound["3"], 1)) == (29.9, 85.2)
        decaying = report["classes"]["decaying"]
        expected = decaying["expected_tokens"]
        assert round(report["classes"]["independent_0.8"]["expected_tokens"]["7"], 3) == 4.161
        assert round(expected["7"], 4) == 4.4875
        assert round(expected["8"] - expected["5"], 3) == 0.326
        batches = [str(1 << i) for i in range(10)]
        assert [decaying["best_gamma"][b] for b in batches] == [8, 8, 8, 8, 8, 6, 4, 3, 3, 3]
        assert list(decaying["speedup"]) == batches
        assert round(decaying["speedup"]["32"]["6"], 3) == 3.453
        assert decaying["break_even_batch"]["7"] == 513
        assert decaying["break_even_batch"]["8"] == 329
        assert decaying["break_even_batch"]["3"] is None
        assert report["classes"]["independent_0.6"]["break_even_batch"]["7"] == 84

    def test_other_batches_gammas_and_contexts(self) -> None:
        report = roofline("article-h100-27b", "--batch", "1,2000", "--max-gamma", "12", "--context", "4096")
        decaying = report["classes"]["decaying"]
        assert list(decaying["best_gamma"]) == ["1", "2000"]
        assert decaying["best_gamma"]["1"] == 12
        assert list(report["compute_bound_batch"]) == [str(g) for g in range(1, 13)]
        assert report["kv_read_ms_per_sequence"] == pytest.approx(2 * 0.2003249671641791)
        assert report["compute_bound_batch"]["1"] is None
        assert list(roofline("article-h100-27b", "--max-gamma", "2")["compute_bound_batch"]) == ["1", "2"]

    def test_a_linear_step_gives_its_equivalents(self) -> None:
        report = roofline("h200-llama3-70b-fp8", "--context", "2048")
        assert report["weight_read_ms"] == pytest.approx(20.6)
        assert report["compute_ms_per_token"] == pytest.approx(0.105)
        assert report["kv_read_ms_per_sequence"] == pytest.approx(2048 * 62.6e-6)
        assert list(report["classes"]) == ["structured", "chat", "unsure"]
        chat = report["classes"]["chat"]
        assert chat["speedup"]["256"]["2"] is None
        assert chat["best_gamma"]["256"] == 1

    @pytest.mark.parametrize("name", SHIPPED)
    def test_the_table_for_people(self, name: str) -> None:
        output = run(roofline_command, name).output
        assert name in output
        assert "speed-up over plain by gamma" in output

    def test_bad_batches(self) -> None:
        for bad in ("0", "1,x", "", "-4", "70000", "9" * 5000):
            with pytest.raises(ConfigurationError, match="--batch: expected whole numbers"):
                CliRunner().invoke(roofline_command, ["article-h100-27b", "--batch", bad], catch_exceptions=False)


class TestBuild:
    def test_from_names(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        run(
            policy_command, "build", "--gpu", "h100", "--model", "llama-3.1-8b", "--drafter", "EAGLE-3",
            "--max-gamma", "6", "--context", "1000,4000", "--capture-limit", "1024", "-o", str(path),
        )  # fmt: skip
        policy = load_policy(path)
        assert policy.max_gamma == 6
        assert policy.context_buckets == (1000, 4000)
        assert policy.classes == ("structured", "chat", "unsure")
        assert policy.cost.capture_limit_tokens == 1024
        assert policy.name == "h100-sxm-llama-3.1-8b-bf16-eagle3"
        assert "ok: the table follows" in run(policy_command, "check", str(path)).output

    def test_the_same_starting_point_as_the_shipped_file(self) -> None:
        arguments = ["--gpu", "H100", "--model", "Llama-3.1-8B", "--drafter", "eagle3", "--max-batch", "512"]
        text = run(policy_command, "build", *arguments, "--name", "mine").output
        built = text[text.index("table:") :]
        shipped = (POLICIES / "h100-llama3-8b-eagle3.yaml").read_text()
        assert built == shipped[shipped.index("table:") :]

    @pytest.mark.parametrize("family", ["eagle3", "eagle1", "dflash", "dspark", "p-eagle", "mtp", "ngram"])
    def test_every_drafter_family(self, family: str, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        run(policy_command, "build", "--gpu", "B200", "--model", "Qwen3-32B", "--drafter", family,
            "--weights", "fp8", "--no-capture-limit", "-o", str(path))  # fmt: skip
        policy = load_policy(path)
        assert policy.cost.capture_limit_tokens is None
        assert policy.expected_tokens("code", 4) >= policy.expected_tokens("prose", 4)

    def test_from_a_config_json(self, tmp_path: Path) -> None:
        config = {
            "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
        }  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(config))
        arguments = ["build", "--gpu", "H100", "--drafter", "ngram", "--name", "mine", "--model"]
        by_name = run(policy_command, *arguments, "Llama-3.1-8B").output
        for place in (tmp_path, tmp_path / "config.json"):
            text = run(policy_command, *arguments, str(place)).output
            assert text[text.index("table:") :] == by_name[by_name.index("table:") :]
        (tmp_path / "config.json").write_text(json.dumps({**config, "num_local_experts": 8}))
        with pytest.raises(ConfigurationError, match="mixture of experts"):
            CliRunner().invoke(policy_command, [*arguments, str(tmp_path)], catch_exceptions=False)
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ConfigurationError, match="cannot be read as JSON"):
            CliRunner().invoke(policy_command, [*arguments, str(tmp_path)], catch_exceptions=False)
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ConfigurationError, match="num_hidden_layers is missing"):
            CliRunner().invoke(policy_command, [*arguments, str(tmp_path)], catch_exceptions=False)

    @pytest.mark.parametrize(
        ("option", "wrong", "suggestion"),
        [
            ("--gpu", "H100 SMX", "H100 SXM"),
            ("--model", "lama-3.1-8b", "Llama-3.1-8B"),
            ("--drafter", "n-grm", "ngram"),
        ],
    )
    def test_wrong_names_get_the_nearest_right_one(self, option: str, wrong: str, suggestion: str) -> None:
        given = {"--gpu": "H100", "--model": "Qwen3-8B", "--drafter": "mtp", option: wrong}
        arguments = [part for pair in given.items() for part in pair]
        with pytest.raises(ConfigurationError) as caught:
            CliRunner().invoke(policy_command, ["build", *arguments], catch_exceptions=False)
        assert caught.value.source == option
        assert caught.value.suggestion == suggestion

    def test_rebuilding_a_file_whose_inputs_changed(self, tmp_path: Path) -> None:
        path = tmp_path / "small.yaml"
        path.write_text(policy_yaml(small_policy()).replace("fixed_seconds: 0.02", "fixed_seconds: 0.03"))
        with pytest.raises(PolicyError, match="rebuild the table"):
            load_policy(path)
        run(policy_command, "build", "--inputs", str(path), "-o", str(path))
        assert load_policy(path).step_seconds(1, 0, 500, speculative=False) == pytest.approx(0.03 + 1e-4 + 500 * 5e-8)

    @pytest.mark.parametrize(
        ("options", "key"),
        [
            (["--context", "8000,500"], "inputs.limits.context_buckets"),
            (["--context", ",".join(["1"] * 70)], "limits.context_buckets"),
            (["--min-gamma", "9"], "inputs.limits.min_gamma"),
            (["--name", "two words"], "name"),
        ],
    )
    def test_options_that_make_no_policy(self, options: list[str], key: str) -> None:
        arguments = ["build", "--gpu", "H100", "--model", "Qwen3-8B", "--drafter", "mtp", *options]
        with pytest.raises(PolicyError) as caught:
            CliRunner().invoke(policy_command, arguments, catch_exceptions=False)
        assert caught.value.key == key

    @pytest.mark.parametrize("arguments", [[], ["--gpu", "H100"], ["--inputs", "x", "--gpu", "H100"]])
    def test_incomplete_or_contradicting_options(self, arguments: list[str]) -> None:
        assert CliRunner().invoke(policy_command, ["build", *arguments]).exit_code == 2


class TestShowAndCheck:
    def test_show(self) -> None:
        output = run(policy_command, "show", "h100-llama3-8b-eagle3", "--class", "code").output
        assert "structured, context 512" in output
        assert "chat, context" not in output
        assert "plain wins from batch 257" in output
        first, last, gamma = load_policy("h100-llama3-8b-eagle3").table.classes["structured"][512].best_gamma[0]
        assert f"best gamma by load: batch {first}-{last}: gamma {gamma}; batch " in " ".join(output.split())

    def test_show_says_what_a_class_means(self) -> None:
        words = "note: class code means structured in this policy"
        assert words in run(policy_command, "show", "h100-llama3-8b-eagle3", "--class", "code").stderr
        assert words not in run(policy_command, "show", "h100-llama3-8b-eagle3", "--class", "structured").stderr

    def test_show_json(self) -> None:
        shown = json.loads(run(policy_command, "show", "article-h100-27b", "--json").output)
        assert shown["classes"]["decaying"]["2048"]["best_gamma"][0] == [1, 26, 8]

    def test_show_an_unknown_class(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            CliRunner().invoke(policy_command, ["show", SHIPPED[0], "--class", "decayin"], catch_exceptions=False)
        assert caught.value.suggestion == "decaying"

    def test_strict(self) -> None:
        assert CliRunner().invoke(policy_command, ["check", "article-h100-27b", "--strict"]).exit_code == 1


def test_exit_codes_and_messages(tmp_path: Path) -> None:
    """Through the real command: 2 and one line for a policy that cannot be used."""
    path = tmp_path / "bad.yaml"
    path.write_text(policy_yaml(small_policy()).replace("max_gamma: 6", "max_gama: 6"))
    done = subprocess.run(
        [sys.executable, "-m", "adaptive_gamma", "policy", "check", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"{path}: inputs.limits.max_gama: unknown key" in done.stderr
    assert "did you mean 'max_gamma'?" in done.stderr
