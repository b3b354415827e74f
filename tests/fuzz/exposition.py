"""Metrics pages: against prometheus-client's own parser where they are good, within the error tree where not."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from adaptive_gamma.engines import DIALECTS, LARGEST_GAMMA, EngineReading
from adaptive_gamma.engines._exposition import read_exposition
from adaptive_gamma.errors import ScrapeError
from tests.engines import pages
from tests.fuzz.shapes import edited
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

REASONS = {"empty", "not_metrics", "truncated", "no_series"}
PAGES = [value for name, value in vars(pages).items() if name.isupper() and isinstance(value, str)]
NAMES = sorted({line.split("{")[0].split(" ")[0] for page in PAGES for line in page.splitlines() if line[:1].isalpha()})
TOKENS = [
    *NAMES[:12],
    "{",
    "}",
    '"',
    "\\",
    '\\"',
    "\\n",
    ",",
    "=",
    " ",
    "\t",
    "\n",
    "\r\n",
    "# EOF\n",
    "# TYPE ",
    "# {} 1 2\n",
    "NaN",
    "+Inf",
    "-1",
    "1e400",
    "9" * 400,
    "0x1p3",
    "1_0",
    "١",
    '{position="0"} 1\n',
    'position="-1"',
    "<html>",
    '{a="' + "\\" * 40,
    " 1 " * 20,
    "\x00",
    "\ufeff",
    "\x85",
    "\u2028",
]

_labels = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(["\\", '"', "\n", "a\\nb", "}", "{,}"]),
    max_size=3,
)
_values = st.floats() | st.integers(-5, 2**60) | st.sampled_from(["NaN", "+Inf", "-Inf", "1e3", "0.5", ".5", "7."])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def _good_page(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        name, labels = draw(st.sampled_from(NAMES)), draw(_labels)
        inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
        value = draw(_values)
        shown = value if isinstance(value, str) else repr(value)
        stamp = draw(st.sampled_from(["", "", " 1700000000000"]))
        lines.append(f"{name}{{{inside}}} {shown}{stamp}" if labels else f"{name} {shown}{stamp}")
        if draw(st.integers(0, 3)) == 0:
            lines.append(draw(st.sampled_from(["# HELP x y", "# a remark", "", "other_series 1", 'other{a="b"} 2'])))
    return "\n".join(lines) + "\n"


def _as_prometheus_reads(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def check_good_page(page: str) -> None:
    """Every sample that prometheus-client reads of a good page is read, and as the same number."""
    wanted = frozenset(NAMES)
    expected = {key: value for key, value in _as_prometheus_reads(page).items() if key[0] in wanted}
    read = read_exposition(page, wanted)
    found = {
        (name, tuple(sorted(sample.labels.items()))): sample.value for name in NAMES for sample in read.samples(name)
    }
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or (math.isnan(value) and math.isnan(found[key])), key


def check_page(page: str) -> None:
    """Any text gives a reading within bounds or a ScrapeError with a known reason, in every dialect."""
    for dialect in DIALECTS.values():
        every = dict.fromkeys(dialect.metrics_paths, page)
        try:
            reading = dialect.read(every)
        except ScrapeError as error:
            assert error.reason in REASONS, error.reason
            assert len(str(error)) < 300
            continue
        _within_bounds(reading)


def _within_bounds(reading: EngineReading) -> None:
    assert reading.gamma is None or 0 <= reading.gamma <= LARGEST_GAMMA
    assert reading.scheduled_gamma is None or 0 <= reading.scheduled_gamma <= LARGEST_GAMMA
    assert reading.kv_usage is None or 0 <= reading.kv_usage <= 1
    for count in (reading.running, reading.waiting):
        assert count is None or 0 <= count <= 10**6
    for total in (reading.generation_tokens, reading.prompt_tokens, reading.first_tokens, reading.engine_steps):
        assert total is None or 0 <= total <= 2.0**53
    counters = reading.speculation
    if counters is not None:
        rates = counters.accepted_per_position
        assert len(rates) <= LARGEST_GAMMA
        assert all(0 <= count <= 2.0**53 for count in (*rates, counters.draft_tokens, counters.accepted_tokens))


def check_slots(slots: Any) -> None:
    """llama.cpp's second page may be anything."""
    _within_bounds(DIALECTS["llamacpp"].read({"/metrics": pages.LLAMACPP_PLAIN, "/slots": slots}))


TARGETS = [
    Target("exposition-good", _good_page(), check_good_page),
    Target("exposition", edited(PAGES, TOKENS), check_page),
    Target(
        "slots",
        edited(
            [pages.LLAMACPP_SLOTS_PLAIN, pages.LLAMACPP_SLOTS_SPECULATIVE, "[" * 3000],
            ["[", "{", '"speculative":', "1", "null", "9" * 5000],
        ),
        check_slots,
    ),
]
