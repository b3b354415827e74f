"""What the documentation names is there."""

from __future__ import annotations

import importlib
import json
import re
from collections import defaultdict
from pathlib import Path

import click
import pytest
import yaml
from pydantic import BaseModel

from adaptive_gamma.cli import SUBCOMMANDS, root_command
from adaptive_gamma.config import DiscoverySettings, DnsSettings, KubernetesSettings, ServiceSettings, Settings
from documentation.reference import FOLDER
from documentation.reference import PAGES as REFERENCE
from documentation.reference.configuration import all_keys
from documentation.reference.fields import keys_of
from documentation.reference.python_api import MODULES, public_names
from documentation.shell_blocks import pages, unmarked_commands
from tests.support.gated_engine import GatedEngine
from tests.support.running_proxy import running_proxy

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = [page for page in PAGES if page.parent != FOLDER]


def test_the_data_path_page_names_modules_and_tests_that_exist() -> None:
    page = (ROOT / "docs" / "data-path.md").read_text()
    tests = set(re.findall(r"`(test_\w+)`", page))
    assert tests
    assert {name for name in tests if not (ROOT / "tests" / "proxy" / f"{name}.py").is_file()} == set()
    modules = {name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert {name for name in modules if not (ROOT / "adaptive_gamma" / "proxy" / f"{name}.py").is_file()} == set()


def test_links_between_pages_lead_to_a_page_and_a_heading() -> None:
    wrong = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", outside_of_blocks(page)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            found = page.parent / path if path else page
            if not found.exists():
                wrong.append(f"{page.name}: {target}")
            elif page != ROOT / "README.md" and not found.resolve().is_relative_to(ROOT / "docs"):
                wrong.append(f"{page.name}: {target} is not on the site")
            elif anchor and anchor not in anchors(found):
                wrong.append(f"{page.name}: {target} names no heading")
    assert wrong == []


def outside_of_blocks(page: Path) -> str:
    return re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Of the headings, as the site and the hosts of repositories make them alike."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", outside_of_blocks(page), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain.lower()).strip()))
    return found


def test_the_page_on_discovery_names_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "discovery.md").read_text()
    values = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)[0])["discovery"]
    service, given = ServiceSettings.model_fields, {"name", "service", "port"}
    assert set(values) == set(DiscoverySettings.model_fields)
    assert set(values["services"][0]) == set(service)
    assert {key: value for key, value in values["services"][0].items() if key not in given} == {
        key: field.default for key, field in service.items() if key not in given
    }
    settings = DiscoverySettings.model_validate(values)
    assert settings.retry_max_s == DiscoverySettings.model_fields["retry_max_s"].default
    for key, section in (("kubernetes", KubernetesSettings()), ("dns", DnsSettings())):
        assert values[key] == section.model_dump()


# -- reference pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFERENCE)
def test_a_reference_page_says_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == REFERENCE[name](), "run `make reference`"


def test_there_is_no_other_reference_page() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(REFERENCE)


def test_the_configuration_page_has_every_key_of_the_settings_schema_with_a_meaning() -> None:
    """Counted by pydantic's own schema, which the page is not made from."""
    schema = Settings.model_json_schema()
    expected = set(schema["properties"])
    for section in schema["$defs"].values():
        expected |= set(section["properties"])
    page = (FOLDER / "configuration.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^#+ (?:.*[.\]])?(\w+)$", page, re.M))
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.M)
    assert {path.rpartition(".")[2].removesuffix("[]") for path in all_keys()} == expected
    assert {name for name, _ in rows} | sections >= expected
    assert [name for name, cells in rows if not cells.rpartition("|")[2].strip()] == []


def test_every_length_of_time_and_size_has_its_unit() -> None:
    sections: list[type[BaseModel]] = [Settings, *(key.section for key in keys_of(Settings) if key.section)]
    for section in sections:
        for key in keys_of(section):
            assert bool(key.unit) == key.name.endswith(("_s", "_bytes", "_context")), (section.__name__, key.name)


async def test_the_metrics_page_has_every_family_that_a_proxy_publishes() -> None:
    page = (FOLDER / "metrics.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(adaptive_gamma_\w+)` \| (\w+) \|", page, re.M))
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        text = (await proxy.admin("/metrics")).body.decode()
    published = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    assert published
    assert published.items() <= listed.items()


def test_the_command_line_page_has_every_command_and_option() -> None:
    page = (FOLDER / "command-line.md").read_text(encoding="utf-8")
    seen = 0
    for name, command in walk("adaptive-gamma", root_command):
        assert f"\n## {name}\n" in page
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert f"`{option.opts[0]}`" in section, (name, option.opts)
                seen += 1
    assert seen > 100


def walk(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
    found = [(name, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            found += walk(f"{name} {each}", inner) if not inner.hidden else []
    return found


async def test_the_http_page_has_every_route_of_the_admin_port() -> None:
    page = (FOLDER / "admin-api.md").read_text(encoding="utf-8")
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        paths = json.loads((await proxy.admin("/openapi.json")).body)["paths"]
    assert paths
    assert [path for path in paths if f" {path}`" not in page] == []


def test_the_python_page_has_every_public_name() -> None:
    page = (FOLDER / "python-api.md").read_text(encoding="utf-8")
    for module in MODULES:
        for name in public_names(importlib.import_module(module)):
            assert f"### {name}\n" in page or f"`{name}`" in page, (module, name)


# -- what people wrote -------------------------------------------------------------------------------------------------


def test_the_on_call_page_has_a_cause_and_a_way_out_for_every_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "on-call.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (AdaptiveGamma\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    rules = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "deploy").rglob("alerts.yaml"))]
    alerts = [rule["alert"] for each in rules for group in each["groups"] for rule in group["rules"]]
    assert list(sections) == alerts
    for name, text in sections.items():
        assert len(text.partition("**Cause.**")[2].partition("**What to do.**")[0].split()) > 10, name
        assert len(text.partition("**What to do.**")[2].split()) > 10, name


def test_no_command_hides_from_the_runner_of_blocks() -> None:
    """An indented block or one without a language is not run."""
    assert [f"{path.name}:{number}: {line}" for path in WRITTEN for number, line in unmarked_commands(path)] == []


def test_every_block_says_its_language_and_what_is_not_run_says_why() -> None:
    known = {"sh", "python", "yaml", "json", "text", "diff"}
    found = pages()
    assert {page.path for page in found} >= set(WRITTEN)
    for page in found:
        for block in page.blocks:
            assert block.language in known, f"{page.name}:{block.line}"
            assert block.not_run is None or len(block.not_run.split()) >= 3, f"{page.name}:{block.line}"


def test_commands_and_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"`make ([a-z][\w-]*)", text)) <= targets, page.name
        assert set(re.findall(r"`adaptive-gamma ([a-z][\w-]*)", text)) <= set(SUBCOMMANDS), page.name


def test_no_sentence_stands_on_two_pages() -> None:
    """Each fact has one place, and other pages link to it. What programs print and tables say is not looked at."""
    places = defaultdict(set)
    for page in WRITTEN:
        text = re.sub(r"^[|#<>].*$", "", outside_of_blocks(page), flags=re.M)
        for sentence in re.split(r"(?<=[.:;])\s+", " ".join(text.split())):
            if len(sentence) > 90:
                places[sentence].add(page.name)
    assert {sentence: found for sentence, found in places.items() if len(found) > 1} == {}


def test_every_key_of_a_policy_file_has_a_meaning() -> None:
    page = (FOLDER / "policy-file.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.M)
    assert len(rows) > 80
    assert [name for name, cells in rows if not cells.rpartition("|")[2].strip()] == []
