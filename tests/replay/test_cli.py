from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from adaptive_gamma.cli import dry_run
from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.errors import ConfigurationError, TraceError
from adaptive_gamma.policy import load_policy, shipped_policies
from adaptive_gamma.simulation.replay import FIGURES, MEANINGS
from adaptive_gamma.simulation.replay.pricing import PLAIN, StepPrices
from tests.replay.standin import HandPolicy

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:{i // 2:02d}.{5 * (i % 2)},{100 + 7 * i},{20 + 3 * i}\n" for i in range(40)
)


@pytest.fixture(autouse=True)
def _policy_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "load_policy", lambda path: HandPolicy())


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(dry_run.command, ["--policy", "p.yaml", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def document(*arguments: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(invoke("--json", *arguments))
    return parsed


def test_the_document_holds_every_figure_of_every_policy(trace: str) -> None:
    found = document("--trace", trace)
    assert found["schema"] == "adaptive-gamma/dry-run/v1"
    assert list(found["policies"]) == [
        "adaptive",
        *(f"fixed-{k}" for k in range(1, 9)),
        "plain",
        "least-loaded",
        "round-robin",
        "oracle",
    ]
    for figures in found["policies"].values():
        assert set(figures) == set(FIGURES)
        for name in ("tokens_per_second", "mean_latency_s", "p99_latency_s", "mean_tpot_ms", "regret_vs_oracle"):
            assert isinstance(figures[name], float)
    assert found["policies"]["oracle"]["regret_vs_oracle"] == 0.0
    assert found["workload"]["requests"] == 40
    assert found["workload"]["requests_by_class"] == {"chat": 40, "structured": 0}
    assert [r["name"] for r in found["fleet"]] == ["spec-0", "spec-1", "plain-0"]


def test_the_same_seed_prints_the_same_bytes_and_another_seed_others(trace: str) -> None:
    arguments = ("--json", "--trace", f"{trace}=code", "--trace", "synthetic:code", "--limit", "300", "--seed")
    assert invoke(*arguments, "5") == invoke(*arguments, "5")
    assert invoke(*arguments, "5") != invoke(*arguments, "6")
    table = ("--trace", trace, "--only", "adaptive,oracle")
    assert invoke(*table) == invoke(*table)


def test_the_table_names_policies_and_reasons(trace: str) -> None:
    text = invoke("--trace", trace)
    for word in (
        "adaptive",
        "fixed-8",
        "round-robin",
        "oracle",
        "tokens/s",
        "low_load",
        "40 requests",
        "spec-0 (gamma",
    ):
        assert word in text


@pytest.mark.parametrize(
    ("suffix", "expected"), [("", "chat"), ("=code", "structured"), ("=math", "structured"), ("=prose", "chat"),
                             ("=structured", "structured"), ("=unsure", "chat")],
)  # fmt: skip
def test_a_trace_gets_its_class(trace: str, suffix: str, expected: str) -> None:
    found = document("--trace", trace + suffix, "--only", "adaptive")
    assert found["traces"][0]["class"] == expected
    assert found["policies"]["adaptive"]["regret_vs_oracle"] is None


def test_a_file_with_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "day=3.csv"
    path.write_text(TRACE)
    assert document("--trace", str(path), "--only", "plain")["traces"][0]["class"] == "chat"
    assert document("--trace", f"{path}=code", "--only", "plain")["traces"][0]["class"] == "structured"


def test_scale_limit_and_duration(trace: str) -> None:
    one = document("--trace", trace, "--only", "plain")["workload"]
    double = document("--trace", trace, "--only", "plain", "--scale", "2")["workload"]
    assert double["span_s"] == pytest.approx(one["span_s"] / 2)
    assert document("--trace", trace, "--only", "plain", "--limit", "7")["workload"]["requests"] == 7
    cut = document("--trace", trace, "--only", "plain", "--duration", "5", "--scale", "2")["workload"]
    assert cut["requests"] == 10


def test_a_fleet_file_and_its_errors(trace: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("replicas: [{name: s, gamma: [[1, 4, 6], [5, 256, 2]]}, {name: p, gamma: 0, count: 2}]\n")
    found = document("--trace", trace, "--fleet", str(path), "--only", "adaptive")
    assert [(r["name"], r["pool"]) for r in found["fleet"]] == [
        ("s", "speculative"), ("p-0", "plain"), ("p-1", "plain"),
    ]  # fmt: skip
    path.write_text("replicas: [{name: s, gamma: 3, max_seqs: 4}]\n")
    with pytest.raises(ConfigurationError, match="did you mean 'max_num_seqs'"):
        invoke("--trace", trace, "--fleet", str(path))


def test_another_truth_changes_the_result(trace: str) -> None:
    usual = document("--trace", trace, "--only", "fixed-4")["policies"]["fixed-4"]
    worse = document("--trace", trace, "--only", "fixed-4", "--true-acceptance", "prose=0.1,0.1")
    assert worse["policies"]["fixed-4"]["mean_tpot_ms"] > 1.5 * usual["mean_tpot_ms"]
    assert worse["settings"]["true_acceptance"] == {"chat": [0.1, 0.1]}


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("--trace", "{trace}=cod"), ConfigurationError, "did you mean 'code'"),
        (("--trace", "none.csv"), ConfigurationError, "none.csv: the trace cannot be read"),
        (("--trace", "synthetic:convo"), ConfigurationError, "no such synthetic trace"),
        (("--trace", "{trace}", "--only", "orcale"), ConfigurationError, "did you mean 'oracle'"),
        (("--trace", "{trace}", "--true-acceptance", "chat"), ConfigurationError, "CLASS=FIRST,PLATEAU"),
        (("--trace", "{trace}", "--true-acceptance", "chat=0.5,x"), ConfigurationError, "plateau: expected a number"),
        (("--trace", "{trace}", "--true-acceptance", "chat=1.5,1"), ConfigurationError, "first: 1.5 is not within"),
        (("--trace", "{bad}"), TraceError, "bad.csv: line 2: GeneratedTokens: expected a whole number of tokens"),
    ],
)
def test_what_is_wrong_is_named(
    trace: str, tmp_path: Path, arguments: tuple[str, ...], error: type[Exception], says: str
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,many\n")
    with pytest.raises(error, match=says):
        invoke(*(a.format(trace=trace, bad=bad) for a in arguments))


@pytest.mark.parametrize("option", ["--scale", "--duration", "--scrape-interval", "--slo-tpot-ms"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_numbers_must_be_above_zero(trace: str, option: str, value: str) -> None:
    result = CliRunner().invoke(dry_run.command, ["--policy", "p", "--trace", trace, option, value])
    assert result.exit_code == 2
    assert option in result.stderr
    assert ("not in the range " if value in ("0", "-1") else "not a finite number") in result.stderr


@pytest.mark.parametrize("scale", ["1e-308", "1e-320", "1e308", "1e7"])
def test_a_scale_at_which_times_end_is_refused(trace: str, scale: str) -> None:
    result = CliRunner().invoke(dry_run.command, ["--policy", "p", "--trace", trace, "--scale", scale])
    assert result.exit_code == 2
    assert f"{float(scale)} is not in the range 1e-06<=x<=1000000.0" in result.stderr


@pytest.mark.parametrize("option", ["--scale", "--duration", "--scrape-interval", "--slo-tpot-ms"])
def test_both_ends_of_each_range_are_served(
    monkeypatch: pytest.MonkeyPatch, trace: str, tmp_path: Path, option: str
) -> None:
    monkeypatch.undo()
    kind = next(one.type for one in dry_run.command.params if option in one.opts)
    assert isinstance(kind, FiniteFloat)
    least, most = kind.min, kind.max
    assert least is not None
    assert most is not None
    for value in (max(least, 1e-300), most):
        page = tmp_path / f"{value}.html"
        arguments = ["--policy", "h200-llama3-70b-fp8", "--trace", trace, "--only", "adaptive", "--html", str(page)]
        result = CliRunner().invoke(dry_run.command, [*arguments, option, str(value)], catch_exceptions=False)
        assert result.exit_code == 0, (value, result.output)


def test_the_old_name_of_the_limit_is_answered_with_the_new_one(trace: str) -> None:
    result = CliRunner().invoke(dry_run.command, ["--policy", "p", "--trace", trace, "--slo-tpot", "0.08"])
    assert result.exit_code == 2
    assert "No such option" in result.stderr
    assert "--slo-tpot-ms" in result.stderr


def test_the_limit_is_in_milliseconds(trace: str) -> None:
    found = document("--trace", trace, "--only", "adaptive", "--slo-tpot-ms", "80")
    assert found["settings"]["slo_tpot_s"] == 0.08


def test_help_defines_every_policy_and_figure() -> None:
    text = " ".join(CliRunner().invoke(dry_run.command, ["--help"]).stdout.split())
    for name, meaning in MEANINGS.items():
        assert f"{name}: {meaning}." in text
    assert "regret_vs_oracle is the relative excess of mean latency over the oracle's" in text


@pytest.mark.parametrize("name", sorted(shipped_policies()))
def test_every_shipped_policy_replays(monkeypatch: pytest.MonkeyPatch, trace: str, name: str) -> None:
    monkeypatch.undo()
    result = CliRunner().invoke(
        dry_run.command,
        ["--json", "--policy", name, "--trace", trace, "--trace", "synthetic:code=code", "--limit", "200"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["policy"]["name"] == load_policy(name).name
    assert {"adaptive", "fixed-1", "plain", "least-loaded", "round-robin", "oracle"} <= set(found["policies"])
    assert sum(found["policies"]["adaptive"]["decisions_by_reason"].values()) == 200


def test_prompt_tokens_are_free_only_where_memory_binds() -> None:
    """A few prompt tokens ride along with a memory-bound step; many cost their compute."""
    policy = load_policy("article-h100-27b")
    prices = StepPrices(policy, True, 2048)
    assert prices.prefill_seconds(PLAIN, 1, 2048.0, 64) == pytest.approx(0.0, abs=1e-9)
    assert prices.prefill_seconds(PLAIN, 1, 2048.0, 2048) > 0.8 * policy.prefill_seconds(2048)
    assert prices.prefill_seconds(7, 64, 2048.0, 512) == pytest.approx(policy.prefill_seconds(512), rel=0.1)


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        ("", "40 requests as class chat, the policy's default, as no class was given"),
        ("=chat", "40 requests as class chat, as given"),
        ("=code", "40 requests as class structured, which is what code means in this policy"),
    ],
)
def test_the_class_a_trace_is_taken_as_is_said(trace: str, suffix: str, words: str) -> None:
    assert f"{trace}: {words}" in invoke("--trace", trace + suffix, "--only", "plain")
    given = document("--trace", trace + suffix, "--only", "plain")["traces"][0]["class_given"]
    assert given == (suffix.removeprefix("=") or None)
