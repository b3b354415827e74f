"""Options that contradict each other, or that the chosen command would ignore, are not taken in silence."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from adaptive_gamma.cli.policy import command
from adaptive_gamma.errors import ConfigurationError

NAME = "h100-llama3-8b-eagle3"
MADE = ["build", "--gpu", "H100", "--model", "Llama-3.1-8B", "--drafter", "eagle3"]
VLLM = ["--for", "vllm", "--engine-version", "0.33"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([*MADE, "--capture-limit", "256", "--no-capture-limit"], "--no-capture-limit goes without --capture-limit"),
        (["build", "--inputs", NAME, "--max-gamma", "4"], "--inputs goes without --max-gamma"),
        (["build", "--inputs", NAME, "--context", "10", "--name", "x"], "--inputs goes without --context, --name"),
        (["export", NAME, *VLLM, "--by-class"], "--by-class goes with --for sglang"),
        (["export", NAME, "--for", "sglang", "--runner", "v2"], "--runner goes with --for vllm"),
        (["export", NAME, *VLLM, "--zero-margin", "0.1"], "--zero-margin goes with --allow-zero"),
        (["export", NAME, *VLLM, "--median-load", "inf"], "inf is not a finite number"),
        (["export", NAME, *VLLM, "--median-load", "1e9"], "not in the range 1<=x<=65536"),
        (["check", NAME, "--max-gamma", "4"], "--max-gamma goes with --engine-table"),
        (["check", NAME, "--method", "mtp", "--runner", "v1"], "go with --engine-table"),
        (["check", "--engine-table", "[[1,8,2]]", *VLLM, "--class-mix", "chat"], "--class-mix goes with a POLICY"),
        (["check", "--engine-table", "{}", "--for", "sglang", "--runner", "v1"], "--runner goes with --for vllm"),
    ],
)
def test_refused_with_the_reason(arguments: list[str], reason: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())


def test_a_method_that_vllm_does_not_have() -> None:
    for arguments in (["export", NAME], ["check", "--engine-table", "[[1,8,2]]"]):
        with pytest.raises(ConfigurationError, match=r"no method 'eagel3'.*did you mean 'eagle3'"):
            run(*arguments, *VLLM, "--method", "eagel3")
    assert run("export", NAME, *VLLM, "--method", "deepseek_mtp").exit_code == 0


def test_loads_and_contexts_beyond_the_table_are_remarked_on() -> None:
    assert "the median load 9000 lies beyond 512" in run("check", NAME, "--median-load", "9000").output
    table = run("check", "--engine-table", "[[1,8,2]]", *VLLM, "--median-load", "9000").output
    assert "the median load 9000 lies beyond 8" in table
    for context in ("100", "1000000"):
        assert f"context {context} lies outside of" in run("export", NAME, *VLLM, "--context", context).stderr
    assert "lies outside of" not in run("export", NAME, *VLLM, "--context", "2000").stderr
