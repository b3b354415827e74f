from __future__ import annotations

import pytest

from adaptive_gamma.engines import EngineReading, LatencySum, SpeculationCounters, dialect_for
from adaptive_gamma.errors import ScrapeError
from tests.engines import pages

LLAMACPP = dialect_for("llamacpp")


def read(metrics: str, slots: str | None = None) -> EngineReading:
    return LLAMACPP.read({"/metrics": metrics} if slots is None else {"/metrics": metrics, "/slots": slots})


def test_speculative_server() -> None:
    assert read(pages.LLAMACPP_SPECULATIVE, pages.LLAMACPP_SLOTS_SPECULATIVE) == EngineReading(
        running=4,
        waiting=2,
        speculative=True,
        gamma=4,
        speculation=SpeculationCounters(533, 2132, 1057, (429, 319, 206, 103)),
        generation_tokens=600,
        prompt_tokens=120,
    )


def test_plain_server_has_the_counters_and_does_not_speculate() -> None:
    reading = read(pages.LLAMACPP_PLAIN, pages.LLAMACPP_SLOTS_PLAIN)
    assert reading.speculative is False
    assert reading.speculation is None
    assert reading.gamma is None
    assert reading.kv_usage is None


def test_steps_and_their_seconds_are_of_whole_requests() -> None:
    plain = read(pages.LLAMACPP_PLAIN, pages.LLAMACPP_SLOTS_PLAIN)
    assert plain.inter_token_latency == LatencySum(4.25, 600, at_end=True)
    text = pages.LLAMACPP_SPECULATIVE.replace("tokens_predicted_total 600", "tokens_predicted_total 1600")
    assert read(text).inter_token_latency == LatencySum(4.25, 1600 - 1057, at_end=True)


def test_steps_are_not_known_where_accepted_drafts_are_not_counted() -> None:
    text = "".join(line for line in pages.LLAMACPP_PLAIN.splitlines(keepends=True) if "spec_decode" not in line)
    assert read(text, pages.LLAMACPP_SLOTS_SPECULATIVE).inter_token_latency is None
    assert read(text, pages.LLAMACPP_SLOTS_PLAIN).inter_token_latency is not None
    assert read(pages.LLAMACPP_SPECULATIVE).inter_token_latency is None, "more accepted than there are tokens"


def test_before_the_first_speculative_request_only_the_slots_tell() -> None:
    reading = read(pages.LLAMACPP_PLAIN, pages.LLAMACPP_SLOTS_SPECULATIVE)
    assert reading.speculative is True
    assert reading.gamma is None
    assert reading.speculation == SpeculationCounters(0, 0, 0, ())
    assert read(pages.LLAMACPP_PLAIN).speculative is None


def test_without_slots_a_counted_draft_tells() -> None:
    assert read(pages.LLAMACPP_SPECULATIVE).speculative is True


@pytest.mark.parametrize("slots", ["", "{}", "[", "[1]", "[]", '[{"speculative":"yes"}]', "[" * 100_000, "<html>"])
def test_slots_that_cannot_be_read_tell_nothing(slots: str) -> None:
    assert read(pages.LLAMACPP_PLAIN, slots).speculative is None


def test_builds_without_speculation_counters() -> None:
    text = "".join(line for line in pages.LLAMACPP_PLAIN.splitlines(keepends=True) if "spec_decode" not in line)
    reading = read(text, pages.LLAMACPP_SLOTS_SPECULATIVE)
    assert (reading.running, reading.speculative, reading.speculation) == (4, True, None)


def test_counters_without_total() -> None:
    text = pages.LLAMACPP_SPECULATIVE.replace("_total", "")
    assert read(text).speculation == SpeculationCounters(533, 2132, 1057, (429, 319, 206, 103))


def test_another_engines_page() -> None:
    with pytest.raises(ScrapeError) as caught:
        read(pages.VLLM_0_33)
    assert caught.value.reason == "no_series"


@pytest.mark.parametrize(
    ("timings", "gamma"),
    [
        ({"predicted_n": 200, "draft_n": 1080, "draft_n_accepted": 110}, 12),
        ({"predicted_n": 40, "draft_n": 60, "draft_n_accepted": 24}, 4),
        ({"predicted_n": 40, "draft_n": 16, "draft_n_accepted": 24}, None),
        ({"predicted_n": 40}, None),
        ({"predicted_n": 40, "draft_n": 0, "draft_n_accepted": 0}, None),
        ({"predicted_n": 10, "draft_n": 20, "draft_n_accepted": 10}, None),
        ({"predicted_n": 11, "draft_n": 640, "draft_n_accepted": 1}, 64),
        ({"predicted_n": 11, "draft_n": 641, "draft_n_accepted": 1}, None),
        ({"predicted_n": 2, "draft_n": 10**8, "draft_n_accepted": 1}, None),
        ({"predicted_n": 2, "draft_n": 10**400, "draft_n_accepted": 1}, None),
        ({"predicted_n": "40", "draft_n": 60, "draft_n_accepted": 24}, None),
        ({"predicted_n": True, "draft_n": 1, "draft_n_accepted": 0}, None),
        (None, None),
        ([], None),
    ],
)
def test_gamma_from_response(timings: object, gamma: int | None) -> None:
    assert LLAMACPP.gamma_from_response({"timings": timings}) == gamma
    assert LLAMACPP.gamma_from_response({}) is None
