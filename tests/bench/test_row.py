from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.bench import ROW_SCHEMA, Source, SpeculationSeen, StepSeen, SweepRow, row_from_json, row_to_json
from adaptive_gamma.errors import ConfigurationError, SweepError

HERE = Source("rows.jsonl", 3)
texts = st.none() | st.text(min_size=1, max_size=8)
loads = st.none() | st.floats(0, 1e6)
lengths = st.none() | st.floats(0, 1e8)
times = st.none() | st.floats(0, 1e7)
times_per_token = st.none() | st.floats(1e-6, 600)
counts = st.integers(0, 10**9)
seen = st.none() | st.builds(
    SpeculationSeen,
    drafts=st.none() | counts,
    mean_length=st.none() | st.floats(1, 20),
    per_position=st.none() | st.lists(st.floats(0, 1), max_size=8).map(tuple),
    histogram=st.none() | st.lists(counts, max_size=8).map(tuple),
    cumulative=st.booleans(),
)
steps = st.none() | st.builds(
    StepSeen,
    seconds=st.floats(1e-6, 10),
    sequences=counts,
    tokens_per_sequence=lengths,
    scheduled_tokens=counts,
    context_tokens=lengths,
    includes_drafter=st.booleans(),
    prefill_tokens=counts,
)
rows = st.builds(
    SweepRow,
    source=st.just(HERE),
    format=st.text(min_size=1, max_size=5),
    engine=texts,
    engine_version=texts,
    model=texts,
    drafter=texts,
    dataset=texts,
    request_class=texts,
    arm=texts,
    gamma=st.none() | st.integers(0, 64),
    speculative=st.none() | st.booleans(),
    concurrency_asked=st.none() | st.integers(1, 10**6),
    concurrency=loads,
    input_tokens=lengths,
    output_tokens=lengths,
    output_tokens_per_s=st.none() | st.floats(1e-6, 1e9),
    tpot_p50_s=times_per_token,
    tpot_p99_s=times_per_token,
    tpot_mean_s=times_per_token,
    ttft_p50_s=times,
    acceptance=seen,
    completed=counts,
    failed=counts,
    duration_s=times,
    step=steps,
    run=st.text(max_size=5),
)


@given(rows)
def test_a_row_comes_back_from_its_line(row: SweepRow) -> None:
    assert row_from_json(json.loads(json.dumps(row_to_json(row))), row.source) == row


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"schema": "adaptive-gamma/sweep-row/v2"}, "schema"),
        ({"gama": 3}, "gama"),
        ({"gamma": 65}, "gamma"),
        ({"concurrency_asked": 0}, "concurrency_asked"),
        ({"tpot_p50_s": 601.0}, "tpot_p50_s"),
        ({"output_tokens_per_s": 0.0}, "output_tokens_per_s"),
        ({"input_tokens": 1e9}, "input_tokens"),
        ({"gamma": 2.5}, "gamma"),
        ({"gamma": True}, "gamma"),
        ({"gamma": -1}, "gamma"),
        ({"tpot_p50_s": -0.1}, "tpot_p50_s"),
        ({"tpot_p50_s": float("inf")}, "tpot_p50_s"),
        ({"tpot_p50_s": float("nan")}, "tpot_p50_s"),
        ({"completed": 10**400}, "completed"),
        ({"model": 7}, "model"),
        ({"speculative": "yes"}, "speculative"),
        ({"format": None}, "format"),
        ({"acceptance": []}, "acceptance"),
        ({"acceptance": {"per_position": [1.2]}}, "acceptance.per_position"),
        ({"acceptance": {"per_position": 0.7}}, "acceptance.per_position"),
        ({"acceptance": {"mean_length": 0.5}}, "acceptance.mean_length"),
        ({"acceptance": {"histogram": [1, None]}}, "acceptance.histogram[1]"),
        ({"step": {"seconds": 0.1}}, "step.includes_drafter"),
        ({"step": {"seconds": 0.1, "includes_drafter": True}}, "step.sequences"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(change: dict[str, Any], key: str) -> None:
    with pytest.raises(SweepError) as caught:
        row_from_json({"schema": ROW_SCHEMA, "format": "own", **change}, HERE)
    assert caught.value.key == key
    assert caught.value.source == "rows.jsonl:3"
    assert isinstance(caught.value, ConfigurationError)


def test_the_nearest_right_key_is_offered() -> None:
    with pytest.raises(SweepError, match="did you mean 'gamma'"):
        row_from_json({"schema": ROW_SCHEMA, "format": "own", "gama": 3}, HERE)
