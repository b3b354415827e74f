"""What the documentation names is there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from adaptive_gamma.config import DiscoverySettings, DnsSettings, KubernetesSettings, ServiceSettings

ROOT = Path(__file__).resolve().parents[1]


def test_the_data_path_page_names_modules_and_tests_that_exist() -> None:
    page = (ROOT / "docs" / "data-path.md").read_text()
    tests = set(re.findall(r"`(test_\w+)`", page))
    assert tests
    assert {name for name in tests if not (ROOT / "tests" / "proxy" / f"{name}.py").is_file()} == set()
    modules = {name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert {name for name in modules if not (ROOT / "adaptive_gamma" / "proxy" / f"{name}.py").is_file()} == set()


def test_links_between_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


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
