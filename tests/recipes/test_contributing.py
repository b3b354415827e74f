"""CONTRIBUTING.md: its map against the law and the folders, its recipes followed for real."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.doctor.labelled import LOGS
from tests.recipes.following import ROOT, environment, follow, printed, run, sections
from tests.support.served import serve
from tests.test_import_law import MAY_IMPORT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with all recipes followed."""
    folder = tmp_path_factory.mktemp("package")
    follow(folder)
    return folder


def test_the_map_names_every_folder_and_what_it_may_import() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", PAGE, re.M)
    mapped = {folder: set(re.findall(r"`(\w+)`", allowed)) for folder, allowed in rows}
    package = ROOT / "adaptive_gamma"
    folders = {
        path.name
        for path in package.iterdir()
        if path.is_dir() and path.name != "__pycache__" and any(path.glob("*.[pj]*"))
    }
    assert mapped.keys() == folders
    assert {folder: mapped[folder] for folder in MAY_IMPORT} == MAY_IMPORT


def test_the_targets_and_tests_it_names_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([\w-]+)", PAGE)) | {"test-envoy", "test-chart", "test-vllm", "test-actuator", "soak"}
    assert named - targets == set()
    for path in re.findall(r"`(tests/[\w/.]+|docs/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_recipes_are_ten_lines() -> None:
    """Imports, empty lines and the path aside: what a person has to think of."""
    for title, blocks in sections().items():
        lines = [line for language, text in blocks for line in _own(language, text)]
        assert len(lines) <= 12, f"{title}: {len(lines)} lines"
    assert list(sections()) == ["An engine dialect", "A step-time model", "An importer", "A check of the doctor"]


def _own(language: str, text: str) -> Iterator[str]:
    for line in text.splitlines():
        if language == "diff":
            if not line.startswith("+"):
                continue
            line = line[1:]
        if line.strip() and not line.startswith(("#", "from ", "import ")):
            yield line


class _ToyEngine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the library's name
        pages = {
            "/metrics": "toy:running 3\ntoy:waiting 1\ntoy:gamma 4\n",
            "/health": "ok",
            "/v1/models": '{"object": "list", "data": [{"id": "toy-model", "object": "model"}]}',
        }
        page = pages.get(self.path, "").encode()
        self.send_response(200 if page else 404)
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def toy_engine() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ToyEngine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_the_toy_engine_is_scraped_by_serve(copy: Path, toy_engine: str, tmp_path: Path) -> None:
    replicas = [{"name": "toy-0", "url": toy_engine, "engine": "toy"}]
    async with serve(tmp_path, [], environment=environment(copy), replicas=replicas) as served:
        await served.ready()
        async with asyncio.timeout(20):
            while (row := (await served.status())["replicas"][0])["running"] is None:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0.05)
    assert (row["engine"], row["running"], row["waiting"], row["gamma"]) == ("toy", 3, 1, 4)
    assert row["pool"] == "speculative"


def test_an_engine_that_there_is_none_of_is_still_refused(copy: Path) -> None:
    program = (
        "from adaptive_gamma.config import load_settings; from adaptive_gamma.errors import ConfigurationError\n"
        "replicas = [{'name': 'a', 'url': 'http://a', 'engine': 'tyo'}]\n"
        "try: load_settings(None, environment={}, overrides={'policy': 'x', 'replicas': replicas})\n"
        "except ConfigurationError as error: print(error)"
    )
    assert "did you mean 'toy'" in printed(copy, program)


def test_the_power_law_prices_a_policy(copy: Path, tmp_path: Path) -> None:
    data = yaml.safe_load((ROOT / "policies" / "demo-llamacpp-cpu.yaml").read_text())["inputs"]
    data["step_time"] = {"kind": "power", "seconds": 0.01, "exponent": 0.5}
    inputs = tmp_path / "inputs.yaml"
    inputs.write_text(yaml.safe_dump(data))
    program = (
        "import sys, yaml; from adaptive_gamma import PolicyError, build_policy, parse_inputs\n"
        "data = yaml.safe_load(open(sys.argv[1]))\n"
        "policy = build_policy(parse_inputs(data, 'inputs.yaml'))\n"
        "print([round(policy.step_seconds(batch, 0, speculative=False), 4) for batch in (1, 4, 16)])\n"
        "data['step_time']['exponent'] = 3\n"
        "try: parse_inputs(data, 'inputs.yaml')\n"
        "except PolicyError as error: print(error.key)"
    )
    assert printed(copy, program, str(inputs)).splitlines() == ["[0.01, 0.02, 0.04]", "inputs.step_time.exponent"]


def test_the_toy_results_are_imported(copy: Path, tmp_path: Path) -> None:
    for users, gamma, ms in ((1, 0, 10.0), (1, 3, 5.0), (8, 0, 12.0), (8, 3, 9.0)):
        run_ = {"toy_bench": 1, "model": "m", "users": users, "gamma": gamma, "ms_per_token": ms, "requests": 20}
        (tmp_path / f"{users}-{gamma}.json").write_text(json.dumps(run_))
    program = (
        "import sys; from pathlib import Path; from adaptive_gamma import read_sweep\n"
        "sweep = read_sweep([Path(sys.argv[1])])\n"
        "print(sorted((r.concurrency_asked, r.gamma, round(r.tpot_p50_s, 6)) for r in sweep.rows), sweep.findings)"
    )
    said = printed(copy, program, str(tmp_path))
    assert said == "[(1, 0, 0.01), (1, 3, 0.005), (8, 0, 0.012), (8, 3, 0.009)] ()"


def test_the_toy_check_finds_an_old_version(copy: Path) -> None:
    logs = [str(LOGS / name) for name in ("0.10.2-eagle3-clean.log", "0.33.0-restarted.log")]
    found = run(copy, "doctor", "--json", "--log", logs[0], "--log", logs[1])
    subjects = [each["subject"] for each in json.loads(found.stdout)["findings"] if each["code"] == "toy_old_version"]
    assert subjects == logs[:1]
