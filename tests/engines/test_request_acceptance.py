"""What answers say of their own drafts: believed where it adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.engines import DIALECTS, RequestAcceptance, dialect_for

VLLM, LLAMACPP, SGLANG = dialect_for("vllm"), dialect_for("llamacpp"), dialect_for("sglang")
RECORDED = Path(__file__).resolve().parents[2].parent / "shared/data/vllm/responses"

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A gamma, and (drafted, accepted) of some verify steps."""
    gamma = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, gamma), min_size=1, max_size=40))
    return gamma, [(length, draw(st.integers(0, length))) for length in lengths]


def vllm_report(gamma: int, made: list[tuple[int, int]], *, detailed: bool) -> dict[str, Any]:
    accepted = [taken for _, taken in made]
    report: dict[str, Any] = {
        "mean_acceptance_length": 1 + sum(accepted) / len(made),
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": [accepted.count(j) for j in range(gamma + 1)],
        "num_spec_steps": len(made),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(length for length, _ in made),
        "num_spec_tokens": gamma,
    }
    if detailed:
        report |= {"per_step_accepted": accepted, "per_step_drafted": [length for length, _ in made]}
    return report


def counted(gamma: int, made: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """(accepted, tried) by position, step by step and position by position."""
    found = []
    for position in range(gamma):
        tried = [taken for length, taken in made if length > position and taken >= position]
        found.append((sum(taken > position for taken in tried), len(tried)))
    return tuple(found)


@given(steps(), st.booleans())
def test_vllm_reports_come_through(drafted: tuple[int, list[tuple[int, int]]], detailed: bool) -> None:
    gamma, made = drafted
    report = vllm_report(gamma, made, detailed=detailed)
    found = VLLM.acceptance_from_response({"metrics": {"speculative_decoding": report}})
    assert found is not None
    assert (found.drafts, found.gamma) == (len(made), gamma)
    assert (found.draft_tokens, found.accepted_tokens) == (sum(d for d, _ in made), sum(a for _, a in made))
    assert found.histogram == tuple(report["acceptance_histogram"])
    fixed = all(length == gamma for length, _ in made)
    assert found.position_counts() == (counted(gamma, made) if detailed or fixed else None)


@given(
    steps(), st.sampled_from(["num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens"]), st.integers(1, 99)
)
def test_totals_that_contradict_the_histogram_void_a_vllm_report(
    drafted: tuple[int, list[tuple[int, int]]], name: str, off: int
) -> None:
    gamma, made = drafted
    report = vllm_report(gamma, made, detailed=False)
    report[name] += off
    found = VLLM.acceptance_from_response({"metrics": {"speculative_decoding": report}})
    # The histogram tells nothing of draft lengths, so only a total beyond all of them contradicts it.
    assert (found is None) == (name != "num_draft_tokens" or report[name] > gamma * len(made))


@given(steps(), st.data())
def test_steps_that_contradict_the_totals_are_not_believed(
    drafted: tuple[int, list[tuple[int, int]]], data: st.DataObject
) -> None:
    gamma, made = drafted
    report = vllm_report(gamma, made, detailed=True)
    name = data.draw(st.sampled_from(["per_step_accepted", "per_step_drafted"]))
    at = data.draw(st.integers(0, len(made) - 1))
    report[name][at] += 1
    found = VLLM.acceptance_from_response({"metrics": {"speculative_decoding": report}})
    assert found is not None
    assert found.trials is None


@given(st.sampled_from(sorted(DIALECTS)), st.dictionaries(st.text(max_size=8), _JSON, max_size=4), _JSON)
def test_no_answer_upsets_a_dialect(engine: str, body: dict[str, object], odd: object) -> None:
    dialect = DIALECTS[engine]
    numbers = dict.fromkeys(
        ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens", "num_spec_tokens", "acceptance_histogram",
         "draft_n", "draft_n_accepted", "predicted_n", "spec_verify_ct", "spec_num_proposed_drafts",
         "spec_num_correct_drafts", "spec_correct_drafts_histogram", "per_step_accepted"),
        odd,
    )  # fmt: skip
    reports: list[object] = [odd, numbers, {"speculative_decoding": odd}, {"speculative_decoding": numbers}]
    for report in [*reports, {"spec_tokens_details": numbers}]:
        for name in ("metrics", "timings", "sglext", "meta_info"):
            found = dialect.acceptance_from_response({**body, name: report})
            assert found is None or 0 < found.draft_tokens >= found.accepted_tokens >= 0
            dialect.gamma_from_response({**body, name: report})


@pytest.mark.parametrize(
    ("name", "drafts", "draft_tokens", "accepted", "histogram", "gamma"),
    [
        ("draft_chat", 12, 60, 11, (1, 11, 0, 0, 0, 0), 5),
        ("draft_chat_stream", 6, 30, 5, (1, 5, 0, 0, 0, 0), 5),
        ("draft_completion", 15, 75, 8, (10, 3, 1, 1, 0, 0), 5),
        ("draft_completion_stream", 7, 35, 4, (5, 1, 0, 1, 0, 0), 5),
        ("dynamic_chat", 5, 20, 20, (0, 0, 0, 0, 5), 4),
        ("ngram_completion", 6, 17, 17, (0, 2, 0, 1, 3), 4),
        ("ngram_completion_stream", 4, 9, 9, (0, 2, 0, 1, 1), 4),
    ],
)
def test_recorded_vllm_answers(
    name: str, drafts: int, draft_tokens: int, accepted: int, histogram: tuple[int, ...], gamma: int
) -> None:
    found = VLLM.acceptance_from_response(recorded(name))
    assert found is not None
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (drafts, draft_tokens, accepted)
    assert (found.histogram, found.gamma) == (histogram, gamma)


def test_an_n_gram_drafters_short_drafts_are_no_refusals() -> None:
    found = VLLM.acceptance_from_response(recorded("ngram_completion"))
    assert found is not None
    # All 17 tokens drafted were accepted; by the histogram alone only 4 of 6 drafts got past the second position.
    assert found.position_counts() == ((6, 6), (4, 4), (4, 4), (3, 3))


@pytest.mark.parametrize("name", ["plain_chat", "plain_chat_stream", "plain_completion", "plain_completion_stream"])
def test_recorded_plain_vllm_answers_say_nothing(name: str) -> None:
    assert VLLM.acceptance_from_response(recorded(name)) is None


def recorded(name: str) -> dict[str, object]:
    """The body of a recorded answer, or the last JSON event of a recorded stream."""
    path = RECORDED / f"{name}.http"
    if not path.exists():
        pytest.skip(f"answers of a real server are not here: {path.name}")
    body = path.read_bytes().replace(b"\r\n", b"\n").split(b"\n\n", 1)[1].decode()
    events = [line[6:] for line in body.splitlines() if line.startswith("data: {")]
    found: dict[str, object] = json.loads(events[-1] if events else body)
    return found


def test_llamacpp_tells_totals() -> None:
    timings = {"predicted_n": 40, "draft_n": 60, "draft_n_accepted": 24}
    assert LLAMACPP.acceptance_from_response({"timings": timings}) == RequestAcceptance(
        drafts=None, draft_tokens=60, accepted_tokens=24, histogram=None, gamma=None, most_drafts=16
    )


def sglang_report(**change: object) -> dict[str, object]:
    report: dict[str, object] = {
        "spec_accept_rate": 4 / 15,
        "spec_accept_length": 9 / 5,
        "spec_num_correct_drafts": 4,
        "spec_num_proposed_drafts": 15,
        "spec_verify_ct": 5,
        "spec_correct_drafts_histogram": [2, 2, 1],
        "spec_cap_lens_histogram": [],
    }
    return {"choices": [], "sglext": {"routed_experts": None, "spec_tokens_details": report | change}}


def test_sglang_histogram_is_filled_up_to_gamma() -> None:
    found = SGLANG.acceptance_from_response(sglang_report())
    assert found == RequestAcceptance(drafts=5, draft_tokens=15, accepted_tokens=4, histogram=(2, 2, 1, 0), gamma=3)
    assert found.position_counts() == ((3, 5), (1, 3), (0, 1))
    assert SGLANG.acceptance_from_response({"meta_info": sglang_report()["sglext"]["spec_tokens_details"]}) == found  # type: ignore[index]


@pytest.mark.parametrize(
    "change",
    [
        {"spec_verify_ct": 0},
        {"spec_verify_ct": None},
        {"spec_num_proposed_drafts": 0},
        {"spec_num_correct_drafts": 16},
        {"spec_num_correct_drafts": 5},
        {"spec_correct_drafts_histogram": [3, 2, 1]},
        {"spec_correct_drafts_histogram": [2, 2, 0, 0, 1]},
    ],
)
def test_sglang_reports_that_do_not_add_up(change: dict[str, object]) -> None:
    assert SGLANG.acceptance_from_response(sglang_report(**change)) is None


def test_sglang_drafts_that_vary_give_totals_alone() -> None:
    found = SGLANG.acceptance_from_response(sglang_report(spec_num_proposed_drafts=14))
    assert found == RequestAcceptance(drafts=5, draft_tokens=14, accepted_tokens=4, histogram=None, gamma=None)
    without = SGLANG.acceptance_from_response(sglang_report(spec_correct_drafts_histogram=[]))
    assert without == RequestAcceptance(drafts=5, draft_tokens=15, accepted_tokens=4, histogram=None, gamma=3)
    assert without.position_counts() is None


def test_sglang_reports_of_several_choices_are_not_read() -> None:
    body = sglang_report()
    several = {"choices": [], "sglext": {"spec_tokens_details": [body["sglext"], body["sglext"]]}}
    assert SGLANG.acceptance_from_response(several) is None
    assert SGLANG.gamma_from_response(several) is None


@pytest.mark.parametrize(
    ("event", "added"),
    [
        ({"choices": [], "usage": {"completion_tokens": 3}}, True),
        ({"choices": [], "usage": None}, False),
        ({"choices": [{"index": 0}], "usage": {"completion_tokens": 3}}, False),
        ({"usage": {"completion_tokens": 3}}, False),
        ({"error": {"message": "usage"}}, False),
    ],
)
def test_the_event_that_asking_vllm_adds(event: dict[str, object], added: bool) -> None:
    assert VLLM.stream_ask is not None
    assert VLLM.stream_ask.is_added(event) is added


@pytest.mark.parametrize(
    ("event", "added"),
    [
        (sglang_report(), True),
        ({"choices": [], "sglext": {"routed_experts": "x", "spec_tokens_details": {}}}, False),
        ({"choices": [], "sglext": {"routed_experts": "x"}}, False),
        ({"choices": [], "sglext": None}, False),
        ({"choices": [], "usage": {"completion_tokens": 3}}, False),
        ({"choices": [{}], "sglext": {"spec_tokens_details": {}}}, False),
    ],
)
def test_the_event_that_asking_sglang_adds(event: dict[str, object], added: bool) -> None:
    assert SGLANG.stream_ask is not None
    assert SGLANG.stream_ask.is_added(event) is added


def test_llamacpp_reports_unasked() -> None:
    assert LLAMACPP.stream_ask is None
