"""Alert rules and the dashboard: every expression can be parsed, and every series and label in it is one of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.chart.cases import BASE, ENGINES
from tests.chart.chart_tools import CHART, ROOT, run
from tests.chart.rendering import merged, render
from tests.support.gated_engine import GatedEngine
from tests.support.running_proxy import running_proxy

DEPLOY = ROOT / "deploy"
RULES = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
OF_A_SCRAPE = {"job", "instance", "le"}
"""Labels that Prometheus adds, and those of buckets."""
GRAFANAS = {"$__rate_interval": "5m", "$class": "chat", "$job": ".+", "$replica": ".+"}


@dataclass(frozen=True)
class Used:
    """A series that an expression reads, and the labels it is chosen by."""

    series: str
    labels: frozenset[str]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Where each stands, and the expression with Grafana's variables filled in."""
    for group in RULES:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", filled(target["expr"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert found, variable["name"]
            yield f"variable {variable['name']}", f"count by ({found[2]}) ({filled(found[1])})"


def filled(expression: str) -> str:
    for name, value in GRAFANAS.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


EXPRESSIONS = dict(expressions())


def parts(node: Any) -> Iterator[Any]:
    """The expression and everything in it."""
    yield node
    for name in ("lhs", "rhs", "expr", "param", "vector_selector", "args"):
        inner = getattr(node, name, None)
        for each in inner if isinstance(inner, list) else [inner]:
            if each is not None:
                yield from parts(each)


def uses(expression: str) -> tuple[set[Used], set[str]]:
    """The series it reads, and the labels it groups or joins by."""
    series, labels = set(), set()
    for node in parts(promql_parser.parse(expression)):
        if isinstance(node, promql_parser.VectorSelector):
            series.add(Used(str(node.name), frozenset(m.name for m in node.matchers.matchers)))
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels |= set(node.modifier.labels)
        if isinstance(node, promql_parser.BinaryExpr) and node.modifier and node.modifier.matching:
            labels |= set(node.modifier.matching.labels)
    return series, labels


async def our_series() -> dict[str, set[str]]:
    """Labels by series of a proxy that serves, whether or not a series has a sample now."""
    async with GatedEngine() as engine, running_proxy([engine], gammas=[3], mode="observe") as proxy:
        page = (await proxy.admin("/metrics")).body.decode()
        families = list(proxy.plane.metrics.families())
    announced = set(re.findall(r"^# TYPE (\S+) ", page, re.M))
    found = {}
    for family in families:
        title = f"{family.name}_total" if family.kind == "counter" else family.name
        assert title in announced, "what is looked at is what a scrape gets"
        suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        found.update({title + suffix: set(family.labels) for suffix in suffixes})
    return found


async def test_each_series_and_label_is_one_of_ours() -> None:
    ours = await our_series()
    assert len(ours) > 30
    for where, expression in EXPRESSIONS.items():
        series, labels = uses(expression)
        assert series, where
        for used in series:
            assert used.series in ours, f"{where}: there is no {used.series}"
            assert used.labels <= ours[used.series] | OF_A_SCRAPE, f"{where}: {used}"
        known = set().union(*(ours[used.series] for used in series)) | OF_A_SCRAPE
        assert labels <= known, f"{where}: no series has {labels - known}"


async def test_a_renamed_series_would_be_found() -> None:
    ours = await our_series()
    series, labels = uses('a / on (b) sum by (x) (rate(adaptive_gamma_request_total{outcom="ok"}[5m]))')
    assert labels == {"x", "b"}
    assert {used.series for used in series} == {"a", "adaptive_gamma_request_total"}
    assert not {used.series for used in series} & ours.keys()
    assert {label for used in series for label in used.labels} == {"outcom"}


def test_what_must_be_shown_is_shown() -> None:
    shown = set()
    for panel in panels():
        for target in panel["targets"]:
            shown |= {used.series for used in uses(filled(target["expr"]))[0]}
    assert shown >= {
        "adaptive_gamma_acceptance",
        "adaptive_gamma_decisions_total",
        "adaptive_gamma_gain_over_plain_ratio",
        "adaptive_gamma_gamma",
        "adaptive_gamma_in_flight",
        "adaptive_gamma_predicted_step_seconds",
        "adaptive_gamma_requests_total",
        "adaptive_gamma_retries_total",
        "adaptive_gamma_step_seconds",
    }


def test_the_dashboard_is_sound() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len(titles) == len(set(titles))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies on another"
        taken |= cells
    for panel in panels():
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs))
        assert panel["datasource"]["uid"] == "${datasource}"
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD)
    assert set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"} <= variables


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_another_parser_takes_it_too(where: str) -> None:
    promql_parser.parse(EXPRESSIONS[where])


def test_the_parsers_refuse_what_is_wrong(tmp_path: Path) -> None:
    wrong = "rates(adaptive_gamma_requests_total[5m])"
    with pytest.raises(ValueError, match="unknown function"):
        promql_parser.parse(wrong)
    rules = {"groups": [{"name": "wrong", "rules": [{"record": "r:x", "expr": wrong}]}]}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(rules))
    assert run("promtool", "check", "rules", tmp_path / "wrong.yaml").returncode != 0


def test_promtool_takes_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"r:{number}", "expr": expression} for number, expression in enumerate(EXPRESSIONS.values())]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = run("promtool", "check", "rules", tmp_path / "all.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_checks_the_alerts() -> None:
    for what in ("check", "test"):
        file = "alerts.yaml" if what == "check" else "alerts.test.yaml"
        done = run("promtool", what, "rules", DEPLOY / "prometheus" / file)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested_and_can_be_read() -> None:
    cases = yaml.safe_load((DEPLOY / "prometheus" / "alerts.test.yaml").read_text())["tests"]
    fired = {t["alertname"] for case in cases for t in case.get("alert_rule_test", ()) if t["exp_alerts"]}
    alerts = {rule["alert"]: rule for group in RULES for rule in group["rules"]}
    assert fired == set(alerts)
    for rule in alerts.values():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]


async def test_promtool_finds_no_fault_in_our_names() -> None:
    """``promtool check metrics`` over the page as it is."""
    async with GatedEngine() as engine, running_proxy([engine], gammas=[3]) as proxy:
        page = (await proxy.admin("/metrics")).body.decode()
    done = run("promtool", "check", "metrics", text=page)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_carries_the_same_files() -> None:
    assert (DEPLOY / "prometheus" / "alerts.yaml").read_text() == (CHART / "files" / "alerts.yaml").read_text()
    assert (DEPLOY / "grafana" / "dashboard.json").read_text() == (CHART / "files" / "dashboard.json").read_text()
    on = {"metrics": {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}}
    manifests = render(merged(ENGINES, BASE["proxy"], on))
    name = "inference/ag-adaptive-gamma"
    assert manifests["PrometheusRule", name]["spec"]["groups"] == RULES
    assert json.loads(manifests["ConfigMap", f"{name}-dashboard"]["data"]["adaptive-gamma.json"]) == DASHBOARD
