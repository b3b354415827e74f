"""What acting would have changed: against truths that are known because they were made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptive_gamma.observe import Observation, build_report, report_text
from adaptive_gamma.observe.estimate import resampling, whole_sums
from adaptive_gamma.observe.reading import Found

from .making import PLAIN, SPECULATIVE, hour, observation, place


def report(observations: list[Observation], **more: int) -> dict[str, Any]:
    return build_report(Found(observations=observations, **more))


def test_the_arithmetic_of_one_stream() -> None:
    """0.1 s to the first byte stay; 100 steps of 20 ms become 100 of 10 ms."""
    sums = whole_sums([observation()])
    assert sums.seconds[0] == pytest.approx(2.1)
    assert sums.seconds_had_it_acted(corrected=False)[0] == pytest.approx(1.1)
    assert sums.decode_seconds[0] / sums.tokens[0] == pytest.approx(0.02)
    assert sums.decode_seconds_had_it_acted(corrected=False)[0] / sums.tokens[0] == pytest.approx(0.01)
    assert sums.error(0)[0] == pytest.approx(1.0)
    assert np.isnan(sums.error(1)[0])


def test_the_arithmetic_of_one_whole_answer() -> None:
    """Nothing tells prefill from decoding, so that all of its time scales, prefill as predicted included."""
    sent, decided = place(tpot_s=0.02, prefill_s=1.0), place("s", "speculative", tpot_s=0.01, prefill_s=1.0)
    sums = whole_sums([observation(sent=sent, decided=decided, tokens=50, stream=False, total_s=4.0)])
    assert sums.seconds_had_it_acted(corrected=False)[0] == pytest.approx(4.0 * 1.5 / 2.0)
    assert sums.error(0)[0] == pytest.approx(2.0)


def test_an_answer_without_a_count_has_times_but_no_time_per_token() -> None:
    sums = whole_sums([observation(tokens=None)])
    assert sums.seconds_had_it_acted(corrected=False)[0] == pytest.approx(1.1)
    assert (sums.tokens[0], sums.measured(0)[0]) == (0.0, 0.0)
    made = report([observation(tokens=None)])
    assert made["overall"]["tpot_s"] is None
    assert "not known" in report_text(made)


def test_a_true_gain_is_found_and_its_interval_is_about_it() -> None:
    """Half of the requests went to a pool that takes twice as long per token."""
    made = report(hour(1))
    overall = made["overall"]
    change = overall["request_s"]["change"]
    assert made["verdict"] == "faster"
    truth = -0.5 * (2 / 3)  # two thirds of the seconds are of plain requests, and halve
    assert change == pytest.approx(truth, abs=0.04)
    assert overall["request_s"]["low"] < truth < overall["request_s"]["high"]
    assert made["resampling"] == {"blocks": 60, "block_s": 60.0, "draws": 2000}


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """A hundred hours whose minutes share their luck; the true change of time per token is -1/3."""
    held = 0
    for seed in range(100):
        observations = hour(seed, per_minute=5)
        drawn = resampling(observations).draws
        changes = drawn.decode_seconds_had_it_acted(corrected=False) / drawn.decode_seconds - 1.0
        low, high = np.percentile(changes, [2.5, 97.5])
        held += low <= -1 / 3 <= high
    assert 88 <= held <= 100, held


def test_blocks_give_a_wider_interval_where_requests_share_luck() -> None:
    """Time per token of a minute's requests moves together; drawn singly they look as if they knew more."""
    observations = [each for each in hour(3, per_minute=20) if each.sent is PLAIN]
    apart = [each._replace(time_s=observations[0].time_s) for each in observations]
    widths = []
    for each in (observations, apart):
        made = resampling(each)
        tpot = made.draws.decode_seconds / made.draws.tokens
        low, high = np.percentile(tpot, [2.5, 97.5])
        widths.append(high - low)
        assert (made.block_s is None) == (each is apart)
    assert widths[0] > 1.5 * widths[1]


@pytest.mark.parametrize(("plain_error", "speculative_error"), [(1.0, 1.0), (1.3, 1.3), (1.0, 1.5), (0.8, 2.4)])
def test_an_error_of_one_pool_is_corrected_by_what_was_seen_of_both(
    plain_error: float, speculative_error: float
) -> None:
    made = report(hour(7, per_minute=30, plain_error=plain_error, speculative_error=speculative_error))
    true_ratio = 0.5 * speculative_error / plain_error
    plain_share = 2 * plain_error / (2 * plain_error + speculative_error)
    corrected = made["overall"]["tpot_s_corrected"]
    assert corrected["change"] == pytest.approx(plain_share * (true_ratio - 1.0), abs=0.06)
    pools = made["predictions"]["pools"]
    assert pools["plain"]["observed_over_predicted"] == pytest.approx(plain_error, rel=0.1)
    assert pools["speculative"]["observed_over_predicted"] == pytest.approx(speculative_error, rel=0.1)
    assert made["verdict"] == ("slower" if true_ratio > 1 else "faster")
    assert ("say the opposite" in " ".join(report_text(made).split())) == (true_ratio > 1)


def test_nothing_to_change_and_nothing_to_show() -> None:
    same = [observation(at=n, decided=PLAIN) for n in range(200)]
    made = report(same)
    assert made["verdict"] == "the_same"
    assert made["would_have_moved"]["requests"] == 0
    assert "changed nothing" in report_text(made)
    mixed = [
        observation(at=n, decided=place("other", tpot_s=0.02 * (0.5 if n % 2 else 1.5)), total_s=1.0 + n % 7)
        for n in range(140)
    ]
    made = report(mixed)
    assert made["verdict"] == "not_shown"
    assert "No change can be shown" in report_text(made)


def test_few_requests_are_drawn_singly_and_it_says_so() -> None:
    made = report([observation(at=60 * n) for n in range(30)])
    assert made["resampling"]["block_s"] is None
    assert "true interval is wider" in " ".join(report_text(made).split())
    assert "rests on the policy alone" in " ".join(report_text(made).split())


def test_requests_that_did_not_end_well_are_left_out_and_counted() -> None:
    ends = [("client_closed", None), ("engine_error", 500), ("ok", 200), ("client_error", 404), ("client_closed", 200)]
    made = report([observation(outcome=outcome, status=status) for outcome, status in ends], dropped=7, unreadable=1)
    assert made["requests"] == 1
    assert made["left_out"] == {"client_closed": 2, "engine_error": 1, "client_error": 1}
    text = report_text(made)
    assert "INCOMPLETE: the log says that 7 observations" in text
    assert "1 lines could not be read" in text


def test_no_requests_at_all() -> None:
    made = report([])
    assert made["verdict"] == "nothing_observed"
    assert "nothing can be said" in report_text(made)


def test_the_same_input_gives_the_same_report() -> None:
    assert report(hour(5)) == report(hour(5))


def test_classes_have_figures_of_their_own() -> None:
    chat = [observation(at=n, request_class="chat", sent=SPECULATIVE, decided=SPECULATIVE) for n in range(50)]
    made = report([*hour(2), *chat])
    classes = made["classes"]
    assert classes["chat"]["request_s"]["change"] == pytest.approx(0.0)
    assert classes["structured"]["request_s"]["high"] < 0
    assert "chat: 50, of which 0" in report_text(made)


def test_what_cannot_be_known_is_said() -> None:
    text = " ".join(report_text(report([observation()])).split())
    assert "predicted, not measured" in text
    assert "Acting on all of them moves load" in text


def test_many_requests_are_resampled_in_bounded_memory() -> None:
    """Draws are of blocks, so that 100 000 requests of a day cost no more than its minutes."""
    one = observation()
    many = [one._replace(time_s=one.time_s + 0.864 * n) for n in range(20_000)]
    assert resampling(many).blocks == 288
