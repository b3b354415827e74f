"""Files that an operator writes: configuration, policy, fleet, trace, observed requests. A wrong one is told."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from adaptive_gamma.config import Settings, load_settings
from adaptive_gamma.errors import ConfigurationError, PolicyError, TraceError
from adaptive_gamma.observe import read_lines
from adaptive_gamma.policy import Policy, load_policy, shipped_policies
from adaptive_gamma.simulation.replay import read_fleet, read_trace
from tests.fuzz.shapes import ODD_VALUES, altered, edited, edited_bytes
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

SECRET = "sk-secret-5b1f"
CONFIG: dict[str, Any] = {
    "listen": "127.0.0.1:8080",
    "admin": "127.0.0.1:9090",
    "policy": "h100-llama3-8b-eagle3",
    "mode": "act",
    "engine_api_key": SECRET,
    "classify": {"header": "x-class", "rules": [{"path": "/v1/completions", "class": "code"}], "default": "unsure"},
    "scrape": {"interval_s": 1.0, "timeout_s": 0.5, "stale_after_s": 3.0},
    "limits": {"body_bytes": 1000, "idle_timeout_s": 3},
    "replicas": [
        {"name": "spec-0", "url": "http://127.0.0.1:8001", "engine": "vllm", "gamma": [[1, 8, 4], [9, 64, 2]]},
        {"name": "plain-0", "url": "https://[::1]:8002", "gamma": 0, "model": None, "max_in_flight": 8},
    ],
    "discovery": {"kind": "dns", "services": [{"name": "s", "host": "engines.local", "port": 80, "engine": "vllm"}]},
    "learn": {"enabled": True, "state_file": "/tmp/x", "exclude": ["spec-0"]},
    "allow_paths": ["/v1/extra"],
}
YAML_TOKENS = [
    ":",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "\n",
    "  ",
    "\t",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!python/object/apply:os.system ",
    "!!binary x",
    "!!timestamp 1",
    "2024-13-45",
    "2024-02-30 25:61:61",
    "0x" + "f" * 5000,
    "9" * 5000,
    "1e999",
    ".nan",
    "1:99:99",
    "? ",
    "|\n",
    ">\n",
    "%YAML 1.1\n---\n",
    "...\n---\n",
    "\x00",
    "\ufeff",
    "\u2028",
    "'",
    '"',
    "# ",
    "~",
    "null",
    "1_0",
    "0o7",
    "=",
    "[" * 600,
    "a: &b [*b]\n",
    "{? {} : 1}",
    "!!set {a}",
    "!!omap [a: 1]",
    "!!int x",
    "!!float ''",
    "!!bool x",
]
BOMB = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
"""Ten lines of YAML that stand for ten thousand million values."""
CONFIG_TEXTS = [
    yaml.safe_dump(CONFIG),
    yaml.safe_dump(CONFIG, default_flow_style=True),
    BOMB + "allow_paths: *a9\n",
    BOMB + "classify: {rules: *a9}\nreplicas: *a9\n",
]


def _written(text: str | bytes, folder: str, name: str) -> Path:
    path = Path(folder, name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


def check_config(text: str) -> None:
    """Any text is a configuration, or an error that names the file; neither tells a secret."""
    with tempfile.TemporaryDirectory() as folder:
        path = _written(text, folder, "config.yaml")
        try:
            settings = load_settings(path, environment={})
        except ConfigurationError as error:
            _told(error, path, secret=text.count(SECRET) == 1 and f"engine_api_key: {SECRET}" in text)
            return
        assert load_settings(path, environment={}) == settings
    _usable(settings)


def check_config_values(example: tuple[Any, dict[str, str]]) -> None:
    """Odd values in the place of good ones, in the file and in the environment."""
    values, environment = example
    with tempfile.TemporaryDirectory() as folder:
        path = _written(json.dumps(values) if _as_json(values) else "{}", folder, "config.yaml")
        try:
            settings = load_settings(path, environment=environment)
        except ConfigurationError as error:
            given = values.get("engine_api_key") if isinstance(values, dict) else None
            _told(error, path, secret=given == SECRET and json.dumps(values).count(SECRET) == 1)
            return
    _usable(settings)


def _as_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except ValueError:
        return False
    return True


def _told(error: ConfigurationError, path: Path, *, secret: bool) -> None:
    """``secret``: the secret stands in its own place only."""
    text = str(error)
    assert not secret or SECRET not in text, text
    assert str(path) in text or "ADAPTIVE_GAMMA_" in text
    assert len(text) < 20_000


def _usable(settings: Settings) -> None:
    assert settings.listen
    key = settings.engine_api_key
    if key is not None and key.get_secret_value() == SECRET:
        assert SECRET not in repr(key)
    for replica in settings.replicas:
        assert replica.url.startswith(("http://", "https://"))


_POLICIES = {name: yaml.safe_load(path.read_text()) for name, path in shipped_policies().items()}
_DEMO = shipped_policies()["demo-llamacpp-cpu"].read_text()
_SMALL = [_POLICIES[name] for name in ("demo-llamacpp-cpu", "article-h100-27b")]


def check_policy(data: Any) -> None:
    """A policy with odd values in it is refused, or one whose every price is a positive number."""
    if not isinstance(data, dict):
        return
    try:
        policy = Policy.from_mapping(data, "fuzzed.yaml")
    except PolicyError as error:
        assert "fuzzed.yaml" in str(error)
        assert len(str(error)) < 20_000
        return
    for name in policy.classes:
        for batch in {1, 2, policy.max_batch // 2 + 1, policy.max_batch, policy.max_batch * 3}:
            gamma = policy.best_gamma(name, batch)
            assert 0 <= gamma <= policy.max_gamma
            for speculative in (True, False):
                seconds = policy.step_seconds(batch, gamma, None, speculative)
                assert math.isfinite(seconds)
                assert seconds > 0
            assert policy.expected_tokens(name, gamma) >= 1
            assert policy.speedup(name, batch, gamma) > 0


def check_policy_text(text: str) -> None:
    """Any text in a policy file."""
    with tempfile.TemporaryDirectory() as folder:
        path = _written(text, folder, "policy.yaml")
        try:
            load_policy(path)
        except PolicyError as error:
            assert str(path) in str(error)
            assert len(str(error)) < 20_000


FLEET = """\
replicas:
  - {name: spec, gamma: 5, count: 2}
  - {name: dynamic, gamma: [[1, 8, 7], [9, 64, 3]]}
  - {name: plain, gamma: 0, max_num_seqs: 128}
"""


def check_fleet(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = _written(text, folder, "fleet.yaml")
        try:
            plans = read_fleet(path)
        except ConfigurationError as error:
            assert str(path) in str(error)
            assert len(str(error)) < 20_000
            return
    assert 0 < len(plans) <= 1000
    assert len({plan.name for plan in plans}) == len(plans)


TRACE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    b"2023-11-16 18:15:50.9951690,396,109\n"
    b"2023-11-16 18:15:51.2225670,879,55\n"
)
TRACE_TOKENS = [
    b",",
    b"\n",
    b"\r\n",
    b"\r",
    b'"',
    b'""',
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"2023-02-30 00:00:00",
    b"9999-12-31 23:59:60",
    b"0001-01-01 00:00:00+23:59",
    b"1.5",
    b"1e5",
    b"-1",
    b"9" * 30,
    b"9" * 5000,
    "١٢".encode(),
    b"TIMESTAMP",
    b"," * 3000,
    b"\xe2\x80\xa8",
    b"x" * 140_000,
    b" 1 ",
    b"+7",
    b"2023-11-16T18:15:46Z",
]


def check_trace(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = _written(raw, folder, "trace.csv")
        try:
            trace = read_trace(path)
        except (TraceError, ConfigurationError) as error:
            assert str(path) in str(error)
            assert len(str(error)) < 2000
            return
    assert len(trace) == len(trace.prompt_tokens) == len(trace.output_tokens) > 0
    assert trace.arrival_s[0] == 0
    assert all(a <= b for a, b in zip(trace.arrival_s, trace.arrival_s[1:], strict=False))
    assert all(0 <= count <= 10**7 for count in (*trace.prompt_tokens, *trace.output_tokens))


def check_good_trace(rows: list[tuple[int, int, int]]) -> None:
    """What was written is what is read."""
    rows = sorted(rows)
    lines = [f"{time // 1000}.{time % 1000:03d},{prompt},{output}" for time, prompt, output in rows]
    raw = "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        trace = read_trace(_written(raw, folder, "trace.csv"))
    assert [(p, o) for p, o in zip(trace.prompt_tokens, trace.output_tokens, strict=True)] == [row[1:] for row in rows]
    assert all(
        abs(found - (row[0] - rows[0][0]) / 1000) < 1e-6 for found, row in zip(trace.arrival_s, rows, strict=True)
    )


OBSERVED = [
    b'{"v":1,"t":1700000000.5,"id":"a","class":"chat","sent_to":"r0","would":"r1","outcome":"ok","status":200}\n',
    b'{"dropped": 3}\n',
    b"\n",
]


def check_observed(raw: bytes) -> None:
    """Lines of a log of observed requests may be anything."""
    found = read_lines(raw.split(b"\n"), 0.0)
    assert found.unreadable >= 0
    assert all(a.time_s <= b.time_s for a, b in zip(found.observations, found.observations[1:], strict=False))


_variables = st.dictionaries(
    st.sampled_from(
        [
            "LISTEN",
            "ADMIN",
            "SCRAPE__INTERVAL_S",
            "SCRAPE",
            "REPLICAS",
            "ENGINE_API_KEY",
            "LIMITS__BODY_BYTES",
            "X__Y",
            "LIMITS",
        ]
    ).map(lambda name: f"ADAPTIVE_GAMMA_{name}"),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["1", "[]", "{}", '[{"name":"a","url":"http://a"}]', "1e400", "[" * 3000, "9" * 5000, "null"]),
    max_size=3,
)

TARGETS = [
    Target("config", edited(CONFIG_TEXTS, YAML_TOKENS), check_config),
    Target("config-values", st.tuples(altered([CONFIG], 3) | ODD_VALUES, _variables), check_config_values),
    Target("policy", altered(_SMALL, 3), check_policy),
    Target(
        "policy-text",
        edited(
            [_DEMO, BOMB + _DEMO.replace("limits:", "limits: *a9\\n  x:"), BOMB + "sources: *a9\\n"], YAML_TOKENS, 3
        ),
        check_policy_text,
    ),
    Target("fleet-file", edited([FLEET, BOMB + "replicas: *a9\n"], YAML_TOKENS), check_fleet),
    Target("trace", edited_bytes([TRACE], TRACE_TOKENS), check_trace),
    Target(
        "trace-good",
        st.lists(
            st.tuples(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20
        ),
        check_good_trace,
    ),
    Target(
        "observed",
        edited_bytes(OBSERVED, [b"{", b"}", b"9" * 5000, b"NaN", b"[" * 3000, b'"t":', b"1e999"]),
        check_observed,
    ),
]
