"""SGLang's pages. No server was run: the pages are written after its sources of 0.5.23."""

from __future__ import annotations

import json

import pytest

from adaptive_gamma.config.settings import ReplicaSettings
from adaptive_gamma.engines import EngineReading, dialect_for
from adaptive_gamma.errors import ScrapeError
from tests.engines import pages

SGLANG = dialect_for("sglang")
METRICS, LOADS = SGLANG.metrics_paths

PAGE = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 7.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.0
# HELP sglang:token_usage The token usage.
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.25
# HELP sglang:spec_accept_length The average acceptance length of speculative decoding.
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.5
sglang:spec_accept_rate{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.5
sglang:spec_num_steps{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 3.0
sglang:spec_num_draft_tokens{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 4.0
# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{engine_type="unified",model_name="m"} 1234.0
sglang:prompt_tokens_total{engine_type="unified",model_name="m"} 567.0
sglang:spec_verify_calls_total{engine_type="unified",model_name="m"} 490.0
sglang:inter_token_latency_seconds_sum{engine_type="unified",model_name="m"} 30.0
sglang:inter_token_latency_seconds_count{engine_type="unified",model_name="m"} 1200.0
"""
PLAIN = "".join(
    line.rsplit(" ", 1)[0] + " 0.0\n" if line.startswith("sglang:spec_") else line + "\n" for line in PAGE.splitlines()
)


def read(metrics: str, loads: object = None) -> EngineReading:
    page = {METRICS: metrics}
    if loads is not None:
        page[LOADS] = loads if isinstance(loads, str) else json.dumps(loads)
    return SGLANG.read(page)


def test_speculative_server() -> None:
    assert read(PAGE) == EngineReading(
        running=7,
        waiting=2,
        kv_usage=0.25,
        speculative=True,
        gamma=3,
        generation_tokens=1234,
        prompt_tokens=567,
    )


def test_gauges_of_zero_do_not_tell_a_plain_server_from_one_that_does_not_draft_now() -> None:
    reading = read(PLAIN)
    assert (reading.speculative, reading.gamma, reading.speculation) == (None, None, None)


def test_a_drafter_of_blocks_without_steps() -> None:
    page = PAGE.replace("spec_num_steps", "no_such_gauge").replace('tp_rank="0"} 4.0', 'tp_rank="0"} 8.0')
    assert read(page).gamma == 7


def test_an_adaptive_server_that_does_not_draft_now_still_speculates() -> None:
    reading = read(PAGE.replace('tp_rank="0"} 3.0', 'tp_rank="0"} 0.0').replace('tp_rank="0"} 4.0', 'tp_rank="0"} 1.0'))
    assert (reading.speculative, reading.gamma) == (True, None)


@pytest.mark.parametrize("value", ["-1.0", "2.5", "NaN", "1e9", "+Inf"])
def test_steps_that_are_no_gamma(value: str) -> None:
    page = PAGE.replace('tp_rank="0"} 3.0', f'tp_rank="0"}} {value}').replace("spec_num_draft_tokens", "no_such_gauge")
    assert read(page).gamma is None


def test_ranks_of_data_add_up_and_their_workers_do_not() -> None:
    lines = [
        f'sglang:num_running_reqs{{dp_rank="{rank}",tp_rank="{worker}"}} {value}'
        for rank, worker, value in ((0, 0, 4), (0, 1, 3), (1, 0, 5), (1, 1, 5))
    ]
    assert read("\n".join(lines) + "\n").running == 9
    assert read(lines[0] + "\n" + lines[1].replace(" 3", " -3") + "\n").running is None


def test_priorities_are_parts_of_the_total() -> None:
    lines = ['sglang:num_queue_reqs{priority=""} 6', *(f'sglang:num_queue_reqs{{priority="{p}"}} 3' for p in (0, 1))]
    assert read("\n".join(lines) + "\n").waiting == 6


def test_the_fresher_page_goes_first() -> None:
    loads = {"loads": [{"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 1}]}
    assert (read(PAGE, loads).running, read(PAGE, loads).waiting) == (3, 1)
    loads["loads"].append({"dp_rank": 1, "num_running_reqs": 4})
    # A rank that leaves a figure out (some versions leave out zeros) leaves the gauge in force.
    assert (read(PAGE, loads).running, read(PAGE, loads).waiting) == (7, 2)


@pytest.mark.parametrize(
    "loads", ["", "[", "[" * 100_000, "{}", "[]", '{"loads":[]}', '{"loads":[1]}', '{"loads":{}}', "<html>"]
)
def test_loads_that_cannot_be_read_leave_the_gauges(loads: str) -> None:
    assert (read(PAGE, loads).running, read(PAGE, loads).waiting) == (7, 2)


@pytest.mark.parametrize("value", [True, -1, 2.5, "3", 10**40])
def test_loads_that_are_no_counts(value: object) -> None:
    assert read(PAGE, {"loads": [{"num_running_reqs": value, "num_waiting_reqs": 0}]}).running == 7


def test_another_engines_page() -> None:
    with pytest.raises(ScrapeError) as caught:
        read(pages.VLLM_0_33)
    assert caught.value.reason == "no_series"


def test_the_configuration_takes_the_engine() -> None:
    assert ReplicaSettings(name="s", url="http://127.0.0.1:1", engine="sglang").engine == "sglang"
