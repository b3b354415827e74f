from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adaptive_gamma.engines import EngineReading, LatencySum, SpeculationCounters, dialect_for
from adaptive_gamma.errors import ConfigurationError, ScrapeError
from tests.engines import pages

VLLM = dialect_for("vllm")
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "vllm"


def read(text: str) -> EngineReading:
    return VLLM.read({"/metrics": text})


def real(name: str) -> str:
    path = REAL / name
    if not path.exists():
        pytest.skip(f"pages of a real server are not here: {name}")
    return path.read_text()


@pytest.mark.parametrize(
    ("text", "started_at"),
    [(pages.VLLM_0_33, 1796007937.3262804), (pages.VLLM_0_33_MULTIPROCESS, None)],
    ids=["one process", "several"],
)
def test_0_33(text: str, started_at: float | None) -> None:
    assert read(text) == EngineReading(
        running=7,
        waiting=2,
        kv_usage=0.1375,
        speculative=True,
        gamma=3,
        speculation=SpeculationCounters(1042, 3126, 1690, (811, 541, 338)),
        generation_tokens=2732,
        prompt_tokens=5000,
        inter_token_latency=LatencySum(21.0, 1050),
        awake=True,
        engine_steps=3,
        kv_tokens=410_112,
        started_at=started_at,
    )


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        (['engine="0",kv_cache_size_tokens="410128"'], 410_128),
        (['engine="0",kv_cache_size_tokens="410128"', 'engine="1",kv_cache_size_tokens="400000"'], 400_000),
        (['block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="27000"'], 432_000),
        (['block_size="16",engine="0",num_gpu_blocks="None"'], None),
        (['engine="0",kv_cache_size_tokens="' + "9" * 400 + '"'], None),
        (['engine="0",kv_cache_size_tokens="0"'], None),
    ],
)
def test_kv_tokens_of_the_smallest_rank(labels: list[str], tokens: int | None) -> None:
    lines = ['vllm:num_requests_running{engine="0"} 1.0', *(f"vllm:cache_config_info{{{each}}} 1.0" for each in labels)]
    assert read("\n".join(lines) + "\n").kv_tokens == tokens


def test_first_tokens_are_counted() -> None:
    page = 'vllm:num_requests_running{engine="0"} 1.0\nvllm:time_to_first_token_seconds_count{engine="0"} 523.0\n'
    assert read(page).first_tokens == 523


def test_multiprocess_page_is_what_it_claims() -> None:
    text = pages.VLLM_0_33_MULTIPROCESS
    assert "_created" not in text
    assert text.index("latency_seconds_sum") < text.index("latency_seconds_bucket")


def test_v0() -> None:
    reading = read(pages.VLLM_0_6_6_V0)
    assert (reading.running, reading.waiting, reading.kv_usage) == (6, 1, 0.25)
    assert reading.inter_token_latency == LatencySum(4.5, 300)
    assert reading.generation_tokens == 1200
    assert reading.speculative is None, "a V0 page creates the speculation series with the first draft"
    assert reading.speculation is None


def test_v0_speculative_knows_neither_drafts_nor_positions() -> None:
    reading = read(pages.VLLM_0_6_6_V0_SPECULATIVE)
    assert reading.speculative is True
    assert reading.gamma is None
    assert reading.speculation == SpeculationCounters(None, 1000, 600, ())


def test_0_8_5() -> None:
    reading = read(pages.VLLM_0_8_5_V1_SPECULATIVE)
    assert (reading.kv_usage, reading.gamma) == (0.5, 2)
    assert reading.inter_token_latency == LatencySum(8.0, 400)
    assert reading.generation_tokens == 900
    assert reading.speculation == SpeculationCounters(400, 800, 500, (320, 180))
    assert reading.awake is None


def test_0_10_2_prefers_the_new_names() -> None:
    reading = read(pages.VLLM_0_10_2_V1_PLAIN)
    assert reading.kv_usage == 0.12
    assert reading.inter_token_latency == LatencySum(0.4, 8)
    assert reading.speculative is False


def test_data_parallel_ranks_are_summed_and_the_fullest_cache_counts() -> None:
    reading = read(pages.VLLM_TWO_ENGINES)
    assert (reading.running, reading.waiting, reading.kv_usage) == (9, 3, 0.9)
    assert reading.speculation == SpeculationCounters(30, 60, 27, (18, 9))
    assert reading.gamma == 2
    assert reading.awake is False


def test_several_model_names_are_summed() -> None:
    text = pages.VLLM_0_10_2_V1_PLAIN + 'vllm:num_requests_running{engine="0",model_name="other"} 3.0\n'
    assert read(text).running == 5


def test_rust_front_end() -> None:
    reading = read(pages.VLLM_RUST)
    assert (reading.running, reading.waiting, reading.kv_usage, reading.generation_tokens) == (1, 0, 0.031, 44)
    assert reading.speculative is None, "the Rust front end creates the speculation series with the first draft"
    speculative = read(pages.VLLM_RUST_SPECULATIVE)
    assert (speculative.speculative, speculative.gamma) == (True, 2)
    assert speculative.speculation == SpeculationCounters(9, 18, 7, (5, 2))


def test_diffusion_models_do_not_tell() -> None:
    text = pages.VLLM_0_10_2_V1_PLAIN + 'vllm:diffusion_steps_total{engine="0"} 3.0\n'
    assert read(text).speculative is None


def test_crlf() -> None:
    assert read(pages.VLLM_0_33.replace("\n", "\r\n")) == read(pages.VLLM_0_33)


def test_statistics_disabled() -> None:
    with pytest.raises(ScrapeError) as caught:
        read("# TYPE python_info gauge\npython_info 1.0\n# TYPE process_open_fds gauge\nprocess_open_fds 9.0\n")
    assert caught.value.reason == "no_series"


def test_a_missing_position_leaves_positions_and_gamma_unknown() -> None:
    text = "".join(line for line in pages.VLLM_0_33.splitlines(keepends=True) if 'position="1"' not in line)
    reading = read(text)
    assert reading.speculative is True
    assert reading.gamma is None
    assert reading.speculation == SpeculationCounters(1042, 3126, 1690, ())


def test_unknown_numbers_stay_unknown() -> None:
    text = pages.VLLM_0_33.replace('waiting{engine="0",model_name="Qwen/Qwen3-8B"} 2.0', 'waiting{engine="0"} NaN')
    assert read(text.replace("} 0.1375", "} 13.75")).kv_usage is None
    assert read(text).waiting is None
    assert read(text).running == 7


@pytest.mark.parametrize(("labels", "gamma"), [(64, 64), (65, None), (5000, None)])
def test_more_position_labels_than_any_gamma_are_no_gamma(labels: int, gamma: int | None) -> None:
    stem = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    text = "".join(f'{stem}{{engine="0",position="{position}"}} 1.0\n' for position in range(labels))
    reading = read(pages.VLLM_0_10_2_V1_PLAIN + text)
    assert reading.speculative is True
    assert reading.gamma == gamma


@pytest.mark.parametrize(
    ("value", "running"), [("1000000", 1_000_000), ("1000001", None), ("9e307", None), ("-1", None), ("+Inf", None)]
)
def test_request_gauges_beyond_belief_are_unknown(value: str, running: int | None) -> None:
    reading = read(f'vllm:num_requests_running{{engine="0"}} {value}\nvllm:num_requests_waiting{{engine="0"}} 2\n')
    assert reading.running == running
    assert reading.waiting == 2


@pytest.mark.parametrize(("value", "usage"), [("1.005", 1.0), ("1.4", None), ("-0.1", None), ("1e308", None)])
def test_cache_use_that_is_no_share_is_unknown(value: str, usage: float | None) -> None:
    assert read(pages.VLLM_0_33.replace("} 0.1375", f"}} {value}")).kv_usage == usage


def test_refused_parameters() -> None:
    assert VLLM.refused_parameters == {"min_p", "logit_bias"}


def test_gamma_from_response() -> None:
    body = {"metrics": {"speculative_decoding": {"num_spec_tokens": 3, "num_draft_tokens": 129}}}
    assert VLLM.gamma_from_response(body) == 3


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"metrics": None},
        {"metrics": []},
        {"metrics": {"speculative_decoding": None}},
        {"metrics": {"speculative_decoding": {}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": "3"}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": True}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": 0}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": -3}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": 65}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": 10**8}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": 10**30}}},
        {"metrics": {"speculative_decoding": {"num_spec_tokens": 1e30}}},
    ],
)
def test_responses_without_gamma(body: dict[str, object]) -> None:
    assert VLLM.gamma_from_response(body) is None


@pytest.mark.parametrize(
    ("name", "gamma", "counters"),
    [
        ("draft", 5, (27251, 113946, 20613, (11012, 4152, 2596, 1570, 1283))),
        ("ngram", 4, (20, 52, 52, (20, 12, 12, 8))),
        ("dynamic", 4, (16, 64, 64, (16, 16, 16, 16))),
    ],
)
def test_real_speculative_pages(name: str, gamma: int, counters: tuple[float, float, float, tuple[float, ...]]) -> None:
    reading = read(real(f"metrics/{name}.txt"))
    assert reading.speculative is True
    assert reading.gamma == gamma
    assert reading.speculation == SpeculationCounters(*counters)
    assert (reading.running, reading.waiting, reading.kv_usage, reading.awake) == (0, 0, 0.0, True)


def test_real_plain_page() -> None:
    reading = read(real("metrics/plain.txt"))
    assert reading.speculative is False
    assert reading.gamma is None
    assert reading.speculation is None
    assert (reading.generation_tokens, reading.prompt_tokens) == (72, 38)


def test_real_response() -> None:
    body = json.loads(real("responses/draft_chat.http").split("\n\n", 1)[-1].split("\r\n\r\n")[-1])
    assert VLLM.gamma_from_response(body) == 5


def test_an_unknown_engine_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="vllm"):
        dialect_for("vlm")


def plugin_page(drafted: str, accepted: str = "811 541 338") -> str:
    """A page of three positions with the plugin's series beside vLLM's own."""
    text = "\n".join(line for line in pages.VLLM_0_33.splitlines() if "per_pos_total{" not in line)
    labels = 'engine="0",model_name="Qwen/Qwen3-8B"'
    lines = [
        *(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{i}"}} {n}.0'
          for i, n in enumerate(accepted.split())),
        *(f'adaptive_gamma_draft_tokens_per_position_total{{{labels},position="{i}"}} {n}.0'
          for i, n in enumerate(drafted.split())),
        f"adaptive_gamma_scheduled_gamma{{{labels}}} 2.0",
    ]  # fmt: skip
    return text + "\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("drafted", "believed"),
    [
        ("1042 900 700", (1042, 900, 700)),
        ("1042 900", ()),
        ("1042 1043 700", ()),
        ("800 700 600", ()),
        ("1042 900 700 10", ()),
        ("", ()),
    ],
)
def test_drafts_by_position_of_the_plugin(drafted: str, believed: tuple[float, ...]) -> None:
    reading = read(plugin_page(drafted))
    assert reading.speculation == SpeculationCounters(1042, 3126, 1690, (811, 541, 338), believed)
    assert reading.scheduled_gamma == 2


def test_a_position_nothing_was_drafted_at_may_have_no_series() -> None:
    reading = read(plugin_page("1042 900", "811 541 0"))
    assert reading.speculation is not None
    assert reading.speculation.drafted_per_position == (1042, 900, 0)
    assert read(pages.VLLM_0_33).scheduled_gamma is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "7"])
def test_a_page_without_one_number_is_all_unknown(value: str) -> None:
    """Such a server is neither idle nor asleep, and nothing was drafted or not: nobody knows."""
    text = re.sub(r" [0-9.e+-]+$", f" {value}", pages.VLLM_0_33, flags=re.M)
    seen = read(text)
    assert seen.awake is None
    if value != "7":
        assert (seen.running, seen.waiting, seen.kv_usage, seen.speculation) == (None, None, None, None)
        assert (seen.generation_tokens, seen.prompt_tokens, seen.inter_token_latency) == (None, None, None)
        assert (seen.first_tokens, seen.engine_steps, seen.started_at) == (None, None, None)
