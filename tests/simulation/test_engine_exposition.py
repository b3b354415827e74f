"""The metrics page against real pages of vLLM where they are at hand, and against a literal page everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adaptive_gamma.simulation.engine import (
    CoreLimits,
    EngineCore,
    EngineMetrics,
    EngineRequest,
    LinearStepClock,
    ScriptedAcceptance,
    drain,
    metrics_page,
)

REAL_PAGES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "vllm" / "metrics"

Shape = dict[str, tuple[str, frozenset[frozenset[str]]]]


def cores(gamma: int | None, count: int = 1) -> list[EngineCore]:
    clock = LinearStepClock(0.01, 0.0001, 0.001, speculative=gamma is not None)
    acceptance = ScriptedAcceptance({"chat": (0.8, 0.7)})
    return [EngineCore(CoreLimits(max_model_len=1024), clock, acceptance, gamma) for _ in range(count)]


def shape_of(page: str) -> Shape:
    """Family -> type and the sets of label values other than numbers that change from server to server."""
    shapes: Shape = {}
    for family in text_string_to_metric_families(page):
        if not family.name.startswith("vllm:"):
            continue
        children = frozenset(
            frozenset(
                f"{name}={value if name in FIXED else '*'}"
                for name, value in {**sample.labels, "": sample.name}.items()
            )
            for sample in family.samples
        )
        shapes[family.name] = (family.type, children)
    return shapes


FIXED = {"", "engine", "reason", "source", "finished_reason", "sleep_state", "position", "le"}
OWN_LABELS = "vllm:cache_config_info"  # its labels are the settings of vLLM's cache, which change with each version


@pytest.mark.parametrize(("name", "gamma"), [("draft_idle.txt", 5), ("draft.txt", 5), ("plain.txt", None)])
def test_families_types_labels_and_buckets_are_those_of_a_real_page(name: str, gamma: int | None) -> None:
    if not REAL_PAGES.exists():
        print(f"skipped: no real pages at {REAL_PAGES}")
        pytest.skip(f"no real pages at {REAL_PAGES}")
    real = shape_of((REAL_PAGES / name).read_text())
    ours = shape_of(metrics_page(EngineMetrics(cores(gamma), "tiny")).decode())
    assert real.keys() == ours.keys()
    real.pop(OWN_LABELS)
    ours.pop(OWN_LABELS)
    for family, shape in real.items():
        assert ours[family] == shape, family


def test_the_page_word_by_word() -> None:
    ranks = cores(2)
    metrics = EngineMetrics(ranks, "m")
    for outcome in drain(ranks[0], 0.0, [(0.0, EngineRequest("a", "chat", 12, 4, seed=3))]):
        metrics.observe_step(0, outcome)
    page = [line for line in metrics_page(metrics, created=False).decode().splitlines() if "_bucket" not in line]
    start = page.index("# HELP vllm:spec_decode_num_drafts_total Drafts verified.")
    drafts, tokens, accepted, first, second = (page[start + i].split()[-1] for i in (2, 5, 8, 11, 12))
    assert page[start : start + 13] == [
        "# HELP vllm:spec_decode_num_drafts_total Drafts verified.",
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}',
        "# HELP vllm:spec_decode_num_draft_tokens_total Tokens drafted.",
        "# TYPE vllm:spec_decode_num_draft_tokens_total counter",
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {tokens}',
        "# HELP vllm:spec_decode_num_accepted_tokens_total Draft tokens accepted.",
        "# TYPE vllm:spec_decode_num_accepted_tokens_total counter",
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}',
        "# HELP vllm:spec_decode_num_accepted_tokens_per_pos_total Accepted by draft position.",
        "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter",
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="0"}} {first}',
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="1"}} {second}',
    ]
    assert float(tokens) == 2 * float(drafts) > 0
    assert float(accepted) == float(first) + float(second)
    assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 4.0' in page
    assert 'vllm:prompt_tokens_total{engine="0",model_name="m"} 12.0' in page
    assert 'vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 16.0' in page
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 1.0' in page
    assert 'vllm:num_requests_running{engine="0",model_name="m"} 0.0' in page


def test_a_plain_engine_has_no_speculation_family() -> None:
    assert "spec_decode" not in metrics_page(EngineMetrics(cores(None), "m")).decode()


def test_position_labels_exist_before_any_traffic() -> None:
    page = metrics_page(EngineMetrics(cores(4), "m")).decode()
    for position in range(4):
        label = f'position="{position}"'
        assert f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",{label}}} 0.0' in page
    assert 'position="4"' not in page


def test_the_form_of_several_api_processes() -> None:
    page = metrics_page(EngineMetrics(cores(1, count=2), "m"), created=False).decode()
    assert "_created" not in page
    ttft = [line.split("{")[0] for line in page.splitlines() if line.startswith("vllm:time_to_first_token_seconds")]
    assert ttft[0].endswith("_sum")
    assert ttft[-1].endswith("_count")
    assert len(ttft) == 2 * (2 + 23)
    for rank in (0, 1):
        assert f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} 0.0' in page


def test_counters_never_fall() -> None:
    ranks = cores(3)
    metrics = EngineMetrics(ranks, "m")
    before: dict[tuple[str, str], float] = {}
    arrivals = [(0.01 * i, EngineRequest(f"r{i}", "chat", 20, 30, seed=i)) for i in range(20)]
    for outcome in drain(ranks[0], 0.0, arrivals):
        metrics.observe_step(0, outcome)
        for family in text_string_to_metric_families(metrics_page(metrics).decode()):
            if family.type == "gauge":
                continue
            for sample in family.samples:
                key = (sample.name, str(sorted(sample.labels.items())))
                assert sample.value >= before.get(key, 0.0)
                before[key] = sample.value
    assert before["vllm:generation_tokens_total", "[('engine', '0'), ('model_name', 'm')]"] == 600
