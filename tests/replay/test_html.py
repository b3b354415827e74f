"""``dry-run --html``: the report holds what the command prints, and what only a plot shows."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from adaptive_gamma.cli.dry_run import command
from adaptive_gamma.errors import ConfigurationError

OPTIONS = (
    "--policy", "h200-llama3-70b-fp8", "--trace", "synthetic:conversation=chat", "--trace", "synthetic:code=code",
    "--limit", "300", "--only", "adaptive,fixed-3,plain,oracle",
)  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*OPTIONS, *arguments], catch_exceptions=False)


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_report_holds_the_document_and_the_plots(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    result = run("--html", str(path), "--json")
    assert result.exit_code == 0
    assert f"{path}: written" in result.stderr
    printed, data = json.loads(result.stdout), data_of(path)
    assert {key: data[key] for key in printed} == printed
    assert printed == json.loads(run("--json").stdout), "writing a report changes no figure"
    assert set(data["plots"]) == {"adaptive", "fixed-3", "plain", "oracle"}
    for name, plots in data["plots"].items():
        timeline = plots["timeline"]
        lengths = {len(timeline[key]) for key in ("time_s", "open", "decoding", "busy", "gamma")}
        assert len(lengths) == 1
        assert max(lengths) <= 240
        gammas = [gamma for gamma in timeline["gamma"] if gamma is not None]
        if name == "fixed-3":
            assert set(gammas) == {3.0}
        if name == "plain":
            assert set(gammas) == {0.0}
    by_replica = data["plots"]["adaptive"]["timeline"]["gamma_by_replica"]
    assert set(by_replica) == {plan["name"] for plan in data["fleet"]}
    assert data["picture"]["classes"] == data["policy"]["classes"]


def test_other_sizes_of_the_pools(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert run("--html", str(path)).exit_code == 0
    data = data_of(path)
    rows = data["what_if"]
    assert [(row["speculative"], row["plain"], row["given"]) for row in rows] == [
        (0, 3, False), (1, 2, False), (2, 1, True), (3, 0, False),
    ]  # fmt: skip
    assert rows[2]["mean_latency_s"] == data["policies"]["adaptive"]["mean_latency_s"]
    # A fleet without a drafter decodes as the policy `plain` does.
    assert rows[0]["mean_latency_s"] == pytest.approx(data["policies"]["plain"]["mean_latency_s"], rel=0.05)
    run("--html", str(path), "--no-what-if")
    assert data_of(path)["what_if"] is None


def test_names_are_only_text(tmp_path: Path) -> None:
    trace = tmp_path / "a <img src=x> & b.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0.0,10,20\n1.0,10,20\n")
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text('replicas: [{name: "</script><script>alert(1)</script>", gamma: 3}]')
    path = tmp_path / "report.html"
    arguments = [
        "--policy",
        "h200-llama3-70b-fp8",
        "--trace",
        f"{trace}=chat",
        "--fleet",
        str(fleet),
        "--html",
        str(path),
    ]
    assert CliRunner().invoke(command, [*arguments, "--only", "adaptive"], catch_exceptions=False).exit_code == 0
    text = path.read_text()
    assert "alert(1)</script>" not in text
    assert text.count("</script>") == 2
    assert data_of(path)["fleet"][0]["name"] == "</script><script>alert(1)</script>"


@pytest.mark.parametrize("name", ["missing/report.html", "."])
def test_where_it_cannot_be_written_nothing_is_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        run("--html", str(tmp_path / name), "--trace", "/no/such/trace")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_closed_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(ConfigurationError, match="cannot be written: Permission denied"):
        run("--html", str(closed / "report.html"))
