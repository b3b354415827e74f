"""``policy show --html``: the page holds the table, as the look-ups of a decision have it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from adaptive_gamma.cli.policy import command
from adaptive_gamma.cli.policy.picture import policy_document, policy_picture
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import build_policy, load_policy
from adaptive_gamma.policy.schema import PolicyInputs

SHIPPED = "h100-llama3-8b-eagle3"


def show(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["show", *arguments], catch_exceptions=False)


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_holds_the_policys_own_figures(tmp_path: Path) -> None:
    path = tmp_path / "policy.html"
    result = show(SHIPPED, "--html", str(path))
    assert result.exit_code == 0
    assert f"{path}: written" in result.stdout
    policy, picture = load_policy(SHIPPED), data_of(path)["policy"]
    assert picture["classes"] == list(policy.classes)
    for name in policy.classes:
        for context, cell in zip(picture["contexts"], picture["cells"][name], strict=True):
            assert cell["best_gamma"] == policy.table.classes[name][context].best_gamma
            assert cell["plain_wins_from"] == policy.plain_wins_from(name, context)
            for gamma, row in zip(picture["gammas"], cell["speedup"], strict=True):
                for batch, value in zip(picture["batches"], row, strict=True):
                    allowed = (gamma + 1) * batch <= 512
                    assert (value is None) != allowed
                    if allowed:
                        assert value == pytest.approx(policy.speedup(name, batch, gamma, context), abs=1e-4)
            assert all(crossing["gamma"] != 0 for crossing in cell["crossings"])


def test_json_stays_alone_on_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "policy.html"
    result = show(SHIPPED, "--html", str(path), "--json", "--class", "chat")
    assert json.loads(result.stdout)["name"] == SHIPPED
    assert "written" in result.stderr
    assert data_of(path)["policy"]["classes"] == ["chat"]


def test_every_shipped_policy_has_a_page() -> None:
    for path in (Path(__file__).resolve().parents[2] / "policies").glob("*.yaml"):
        policy = load_policy(str(path))
        document = policy_document(policy, policy.classes)
        assert len(json.dumps(document, allow_nan=False)) < 300_000


def test_a_large_policy_is_drawn_through_fewer_batches() -> None:
    inputs = load_policy(SHIPPED).inputs
    classes = {f"c{i}": inputs.classes["chat"] for i in range(10)}
    limits = inputs.limits.model_copy(update={"context_buckets": list(range(1000, 41000, 1000)), "max_batch": 64})
    large = inputs.model_copy(update={"classes": classes, "default_class": "c0", "limits": limits})
    policy = build_policy(PolicyInputs.model_validate(large.model_dump()))
    picture = policy_picture(policy, policy.classes)
    assert len(picture["batches"]) < 49
    assert len(json.dumps(picture, allow_nan=False)) < 1_500_000


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written: No such file or directory"):
        show(SHIPPED, "--html", str(tmp_path / "missing" / "policy.html"))
    with pytest.raises(ConfigurationError, match="cannot be written"):
        show(SHIPPED, "--html", str(tmp_path))
