"""Linting a schedule that an engine already has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.cli.policy import command
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import load_policy
from adaptive_gamma.policy.export import (
    ScheduleOptions,
    ServerOptions,
    TableOptions,
    TableReport,
    check_engine_table,
    export_policy,
)

from .engine_rules import vllm_draft_lengths

POLICY = load_policy("h100-llama3-8b-eagle3")


def check(engine: str, data: Any, **options: Any) -> TableReport:
    policy = options.pop("policy", None)
    return check_engine_table(engine, data, TableOptions(**options), policy)


def codes(report: TableReport, severity: str | None = None) -> set[str]:
    return {note.code for note in report.notes if severity is None or note.severity == severity}


def ranges(report: TableReport) -> list[list[int]]:
    return [[s.first, s.last, s.gamma] for s in report.steps]


class TestVllm:
    """The cases that were tried on vLLM's own code, max_num_seqs 16 and num_speculative_tokens 3."""

    @pytest.mark.parametrize(
        ("table", "becomes", "code"),
        [
            ([[1, 4, 3], [8, 10, 1]], [[1, 7, 3], [8, 16, 1]], "gap"),
            ([[1, 4, 9]], [[1, 16, 3]], "clamped"),
            ([[1, 4, 2], [5, 512, 0]], [[1, 4, 2], [5, 16, 0]], "zero_gamma"),
            ([[5, 512, 0], [1, 4, 2]], [[1, 4, 2], [5, 16, 0]], "unsorted"),
            ([[1, 16, 1]], [[1, 16, 1]], "maximum_too_large"),
        ],
    )
    def test_accepted(self, table: Any, becomes: list[list[int]], code: str) -> None:
        report = check("vllm", table, max_batch=16, max_gamma=3)
        assert not report.refused
        assert ranges(report) == becomes
        assert code in codes(report)

    @pytest.mark.parametrize(
        ("table", "code"),
        [
            ([[2, 4, 3]], "start"),
            ([[1, 4, 3], [4, 8, 1]], "overlap"),
            ({"1-4": 3}, "dict_form"),
            ({1: 3}, "dict_form"),
            ([], "not_a_list"),
            ([[1, 4]], "entry"),
            ([[1, 4, -1]], "entry"),
            ([[0, 4, 1]], "entry"),
            ([[4, 1, 1]], "entry"),
            ([[1, 4, 1.5]], "entry"),
            ([[1, 4, True]], "entry"),
            ([[1, 4, 1, 8192, 3]], "entry"),
            (None, "not_a_list"),
            ("x", "not_a_list"),
            ({"method": "eagle3", "num_speculative_tokens": 0}, "no_table"),
        ],
    )
    def test_rejected(self, table: Any, code: str) -> None:
        report = check("vllm", table, policy=POLICY)
        assert report.refused
        assert report.steps == ()
        assert code in codes(report, "refusal")

    def test_the_documented_example_is_clamped(self) -> None:
        config = {
            "method": "eagle3", "model": "m", "num_speculative_tokens": 3,
            "num_speculative_tokens_per_batch_size": [[1, 4, 5], [5, 16, 4], [17, 64, 1]],
        }  # fmt: skip
        report = check("vllm", {"speculative_config": config}, server=ServerOptions(version="0.31"))
        assert ranges(report) == [[1, 16, 3], [17, 64, 1]]
        assert {"clamped", "v2_ignores_table"} <= codes(report, "warning")

    @given(
        st.lists(st.tuples(st.integers(0, 9).map(lambda n: max(n - 6, -1)), st.integers(0, 8), st.integers(0, 9)),
                 min_size=1, max_size=5),
        st.integers(1, 8),
        st.integers(1, 60),
    )  # fmt: skip
    def test_the_reader_agrees_with_the_rules(
        self, rows: list[tuple[int, int, int]], maximum: int, largest: int
    ) -> None:
        table: list[list[int]] = []
        after = 1
        for gap, width, gamma in rows:  # mostly contiguous, some with a gap, some overlapping
            first = max(after + gap, 1)
            table.append([first, first + width, gamma])
            after = first + width + 1
        report = check("vllm", table, max_batch=largest, max_gamma=maximum)
        config = {"num_speculative_tokens": maximum, "num_speculative_tokens_per_batch_size": table}
        try:
            wanted = vllm_draft_lengths(config, largest)
        except ValueError:
            assert report.refused
        else:
            assert not report.refused
            assert [s.gamma for s in report.steps for _ in range(s.first, s.last + 1)] == wanted

    def test_what_happened_to_somebody(self) -> None:
        """vLLM issue #49548: [[1,4,2],[5,512,0]], eight at once, V1 runner."""
        report = check(
            "vllm", [[1, 4, 2], [5, 512, 0]], median_load=5, capture_limit_tokens=512,
            server=ServerOptions(version="0.27.1", method="mtp"), policy=POLICY,
        )  # fmt: skip
        assert {"median_load", "zero_gamma", "v1_piecewise"} <= codes(report, "warning")
        assert report.mix_loss is not None
        assert report.mix_loss.loss.mean > 0.2

    def test_data_parallelism(self) -> None:
        report = check("vllm", [[1, 8, 2]], server=ServerOptions(version="0.25", data_parallel=2))
        assert "data_parallel_deadlock" in codes(report, "refusal")

    def test_the_capture_limit(self) -> None:
        report = check("vllm", [[1, 64, 7], [65, 256, 3]], capture_limit_tokens=512)
        note = next(n for n in report.notes if n.code == "capture_limit")
        assert "gamma 3 up to batch 256 is 1024 tokens" in note.message
        assert "from batch 129" in note.message
        assert "capture_limit" not in codes(check("vllm", [[1, 64, 7], [65, 256, 1]], capture_limit_tokens=512))
        assert "capture_limit" in codes(check("vllm", [[1, 64, 7]], policy=POLICY, max_batch=65))

    def test_many_and_narrow_ranges(self) -> None:
        table = [[b, b, 8 - b // 2] for b in range(1, 15)]
        assert {"many_steps", "narrow"} <= codes(check("vllm", table))

    def test_our_own_export_is_clean(self) -> None:
        made = export_policy(
            POLICY, "vllm", ServerOptions(version="0.33"), ScheduleOptions(median_load=100, max_batch=256)
        )
        report = check(
            "vllm", made.config, server=ServerOptions(version="0.33"), max_batch=256, median_load=100, policy=POLICY
        )
        assert codes(report, "warning") == set()
        assert ranges(report) == made.table
        assert report.mix_loss is not None
        assert report.mix_loss.loss.mean == pytest.approx(made.schedule.merging.mean)


SGLANG_DEFAULT = {
    "1": {"candidate_steps": [1, 3, 5, 7]}, "8": {"candidate_steps": [0, 1, 3]},
    "32": {"candidate_steps": [0, 1]}, "64": {"candidate_steps": [0]},
}  # fmt: skip


class TestSglang:
    def test_its_own_default(self) -> None:
        report = check("sglang", SGLANG_DEFAULT, max_batch=128, policy=POLICY)
        assert ranges(report) == [[1, 7, 7], [8, 31, 3], [32, 63, 1], [64, 128, 0]]
        assert {"zero_candidate", "always_off", "zero_steps"} <= codes(report, "warning")
        assert "not_priced" in codes(report)
        assert report.cells == ()

    def test_a_pinned_table_is_priced(self) -> None:
        report = check("sglang", {"1": {"candidate_steps": [4]}, "100": {"candidate_steps": [1]}}, policy=POLICY)
        assert report.mix_loss is not None
        assert len(report.cells) == 9

    @pytest.mark.parametrize(
        ("data", "options", "code"),
        [
            ([], {}, "not_an_object"),
            ({}, {}, "no_slot"),
            ({1: {"candidate_steps": [1]}}, {}, "key"),
            ({"1": {"candidate_steps": []}}, {}, "candidate_steps"),
            ({"1": {"candidate_steps": [-1]}}, {}, "candidate_steps"),
            ({"1": {"candidate_steps": "3"}}, {}, "candidate_steps"),
            ({"1": [3]}, {}, "candidate_steps"),
            ({"1": {"candidate_steps": [1, 3]}}, {"max_gamma": 5}, "initial_steps"),
        ],
    )
    def test_rejected(self, data: Any, options: dict[str, Any], code: str) -> None:
        assert code in codes(check("sglang", data, **options), "refusal")

    def test_oddities(self) -> None:
        report = check("sglang", {"4": {"candidate_steps": [3]}, "ema_alfa": 0.1, "ema_alpha": 0.2})
        assert {"start", "key_ignored"} <= codes(report, "warning")
        assert [n.message for n in report.notes if n.code == "key_ignored"] == [
            "the key 'ema_alfa' is ignored in silence"
        ]


class TestTensorrtLlm:
    def test_upper_bounds_and_the_implicit_zero(self) -> None:
        report = check("tensorrt-llm", {4: 4, 8: 2, 32: 1}, max_batch=40)
        assert ranges(report) == [[1, 4, 4], [5, 8, 2], [9, 32, 1], [33, 40, 0]]
        assert {"zero_gamma", "zero_kills_acceptance"} <= codes(report, "warning")

    def test_quoted_keys_are_read_too(self) -> None:
        data = {"speculative_config": {"max_draft_len": 4, "draft_len_schedule": {"4": 4, "64": 1}}}
        assert ranges(check("tensorrt-llm", data)) == [[1, 4, 4], [5, 64, 1]]

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            ([], "not_a_mapping"),
            ({}, "not_a_mapping"),
            ({0: 4}, "key"),
            ({"x": 4}, "key"),
            ({4: -1}, "length"),
            ({4: 1.5}, "length"),
            ({4: 2, 8: 4}, "smallest_key"),
            ({"max_draft_len": 3, "draft_len_schedule": {4: 4}}, "smallest_key"),
            ({"max_draft_len": 4, "draft_len_schedule": {4: 4, 8: 5}}, "length"),
            ({"max_draft_len": 4, "max_concurrency": 8, "draft_len_schedule": {4: 4}}, "max_concurrency"),
            ({"max_draft_len": 0}, "no_table"),
        ],
    )
    def test_rejected(self, data: Any, code: str) -> None:
        assert code in codes(check("tensorrt-llm", data), "refusal")


def test_unknown_engine() -> None:
    with pytest.raises(ConfigurationError, match="no such engine"):
        check("vlm", [])


class TestSize:
    """A table is read by its ranges: how far the last one goes costs nothing."""

    def test_a_last_batch_that_nobody_counts_to(self) -> None:
        report = check("vllm", [[1, 100_000_000, 2]])
        assert (ranges(report), report.max_batch) == ([[1, 100_000_000, 2]], 100_000_000)
        assert ranges(check("vllm", [[1, 8, 3], [9, 10**15, 1]])) == [[1, 8, 3], [9, 10**15, 1]]
        assert ranges(check("sglang", {"1": {"candidate_steps": [3]}, str(10**12): {"candidate_steps": [1]}})) == [
            [1, 10**12 - 1, 3],
            [10**12, 10**12, 1],
        ]
        assert ranges(check("tensorrt-llm", {4: 4, 10**12: 2})) == [[1, 4, 4], [5, 10**12, 2]]

    @pytest.mark.parametrize(
        ("engine", "data"),
        [
            ("vllm", [[1, 99999999999999999999999, 2]]),
            ("vllm", [[1, 4, 10**400]]),
            ("sglang", {"9" * 5000: {"candidate_steps": [3]}}),
            ("tensorrt-llm", {"9" * 5000: 2}),
        ],
    )
    def test_numbers_that_no_engine_holds(self, engine: str, data: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"expected at most 9223372036854775807 \(2\^63 - 1\), not "):
            check(engine, data)

    def test_a_gamma_beyond_what_is_priced(self) -> None:
        report = check("vllm", [[1, 100_000_000, 2000]], policy=POLICY)
        assert report.max_batch == POLICY.max_batch
        assert "not_priced" in codes(report, "note")
        assert report.cells == ()

    @given(
        bounds=st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True),
        gammas=st.lists(st.integers(0, 3), min_size=6, max_size=6),
        batches=st.integers(1, 70),
    )
    def test_the_ranges_are_those_of_every_batch(self, bounds: list[int], gammas: list[int], batches: int) -> None:
        slots = {str(b): {"candidate_steps": [g]} for b, g in zip(bounds, gammas, strict=False)}
        report = check("sglang", slots, max_batch=batches)
        for batch in range(1, batches + 1):
            below = [b for b in bounds if b <= batch]
            wanted = slots[str(max(below) if below else min(bounds))]["candidate_steps"][0]
            (found,) = [s.gamma for s in report.steps if s.first <= batch <= s.last]
            assert found == wanted
        assert [s.first for s in report.steps[1:]] == [s.last + 1 for s in report.steps[:-1]]
        assert (report.steps[0].first, report.steps[-1].last) == (1, batches)


class TestCommand:
    def run(self, *arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(command, ["check", *arguments], catch_exceptions=False)
        return result.exit_code, result.output

    def test_inline_and_from_files(self, tmp_path: Path) -> None:
        table = "[[1, 4, 3], [5, 64, 1]]"
        code, inline = self.run("--engine-table", table, "--for", "vllm", "--capture-limit", "512")
        assert code == 0
        assert "vllm makes of it, up to batch 64: batch 1-4: gamma 3; batch 5-64: gamma 1" in inline
        for name, text in (("t.json", table), ("t.yaml", "- [1, 4, 3]\n- [5, 64, 1]\n")):
            (tmp_path / name).write_text(text)
            assert (
                self.run("--engine-table", str(tmp_path / name), "--for", "vllm", "--capture-limit", "512")[1] == inline
            )
        code, output = self.run("--engine-table", "{4: 4, 8: 2}", "--for", "tensorrt-llm")
        assert code == 0
        assert "batch 1-4: gamma 4; batch 5-8: gamma 2" in output

    def test_exit_codes(self) -> None:
        assert self.run("--engine-table", "[[2, 4, 3]]", "--for", "vllm")[0] == 1
        zero = ("--engine-table", "[[1, 4, 3], [5, 64, 0]]", "--for", "vllm", "--engine-version", "0.33")
        assert self.run(*zero)[0] == 0
        assert self.run(*zero, "--strict")[0] == 1

    def test_with_a_policy_and_as_json(self) -> None:
        code, output = self.run(
            "h100-llama3-8b-eagle3", "--engine-table", "[[1, 128, 3]]", "--for", "vllm", "--engine-version", "0.33",
            "--max-num-seqs", "128", "--class-mix", "code=1,prose=1", "--json",
        )  # fmt: skip
        assert code == 0
        report = json.loads(output)
        assert report["steps"] == [[1, 128, 3]]
        assert report["loss"][-1]["class"] == "mix: structured 50%, chat 50%"
        assert "loss: mix" in self.run("h100-llama3-8b-eagle3", "--engine-table", "[[1, 128, 3]]", "--for", "vllm")[1]

    @pytest.mark.parametrize(
        "arguments",
        [[], ["--for", "vllm"], ["h100-llama3-8b-eagle3", "--for", "vllm"], ["--engine-table", "[[1, 4, 3]]"]],
    )
    def test_options_that_do_not_go_together(self, arguments: list[str]) -> None:
        assert self.run(*arguments)[0] == 2

    @pytest.mark.parametrize(
        ("text", "says"), [(None, "cannot be read"), (b"[1, {", "line 1, column 6"), (b"\xff\xfe", "not UTF-8")]
    )
    def test_files_that_are_no_table(self, tmp_path: Path, text: bytes | None, says: str) -> None:
        path = tmp_path / "table.json"
        if text is not None:
            path.write_bytes(text)
        with pytest.raises(ConfigurationError) as caught:
            self.run("--engine-table", str(path), "--for", "vllm")
        assert says in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "server"),
    [
        ("vllm", ServerOptions(version="0.33", data_parallel=2)),
        ("sglang", ServerOptions(method="EAGLE3")),
        ("tensorrt-llm", ServerOptions(version="1.2")),
    ],
)
def test_an_export_without_a_table_is_read_as_it_runs(engine: str, server: ServerOptions) -> None:
    made = export_policy(POLICY, engine, server, ScheduleOptions(max_batch=64))
    report = check(engine, made.config, server=server, max_batch=64, policy=POLICY)
    assert not report.refused
    assert ranges(report) == [[1, 64, made.table]]
    assert "constant" in codes(report)
    assert report.mix_loss is not None
    assert report.mix_loss.loss.mean == pytest.approx(made.schedule.merging.mean)
