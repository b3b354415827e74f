"""What is said, warned of and refused, by engine, version and server."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import yaml

from adaptive_gamma.errors import ConfigurationError, ExportRefused
from adaptive_gamma.policy import load_policy, rebuild_policy
from adaptive_gamma.policy.export import EngineExport, ScheduleOptions, ServerOptions, export_policy, parse_version

from .inputs import small_inputs

POLICY = load_policy("h100-llama3-8b-eagle3")


def export(engine: str, options: ScheduleOptions | None = None, **server: Any) -> EngineExport:
    return export_policy(POLICY, engine, ServerOptions(**server), options)


def codes(made: EngineExport, severity: str | None = None) -> set[str]:
    return {note.code for note in made.notes if severity is None or note.severity == severity}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.33", (0, 33, 0)), ("v0.32.1", (0, 32, 1)), ("1.3.0rc27", (1, 3, 0)), ("0.24.0+cu128", (0, 24, 0)),
        ("0.27.1.dev3", (0, 27, 1)), ("0.33.0-rc1", (0, 33, 0)), ("0.33.0.post1", (0, 33, 0)),
    ],
)  # fmt: skip
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "33", "0.x", "latest", "0.33 beta", "-0.33", "0.99999"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="expected a version"):
        parse_version(text)
    with pytest.raises(ConfigurationError, match="vllm version"):
        export("vllm", version=text)


class TestVllm:
    def test_the_version_is_asked_for(self) -> None:
        with pytest.raises(ConfigurationError, match="give the engine's version"):
            export("vllm")

    @pytest.mark.parametrize(
        ("server", "warned"),
        [
            ({"version": "0.33"}, set()),
            ({"version": "0.32"}, set()),
            ({"version": "0.31"}, {"v2_ignores_table"}),
            ({"version": "0.29"}, {"v2_ignores_table"}),
            ({"version": "0.28"}, {"v1_piecewise", "v2_by_architecture"}),
            ({"version": "0.28", "runner": "v1"}, {"v1_piecewise"}),
            ({"version": "0.28", "runner": "v2"}, {"v2_ignores_table"}),
            ({"version": "0.24"}, {"v1_piecewise", "v2_by_architecture"}),
            ({"version": "0.33", "runner": "v1"}, {"v1_piecewise"}),
            ({"version": "0.32", "method": "dflash"}, {"v2_ignores_table"}),
            ({"version": "0.33", "method": "dflash"}, set()),
            ({"version": "0.33", "method": "ngram"}, set()),
            ({"version": "0.33", "method": "draft_model"}, {"v2_ignores_table"}),
            ({"version": "0.33", "method": "dspark"}, {"v2_ignores_table"}),
            ({"version": "0.33", "method": "p-eagle"}, {"v1_piecewise", "v2_falls_back"}),
            ({"version": "0.30", "method": "suffix"}, {"v1_piecewise", "v2_falls_back", "v1_method_unknown"}),
            ({"version": "0.34"}, {"newer_than_read"}),
        ],
    )
    def test_warnings(self, server: dict[str, Any], warned: set[str]) -> None:
        options = ScheduleOptions(max_batch=200)
        assert codes(export("vllm", options, **server), "warning") == warned

    @pytest.mark.parametrize(
        ("server", "says"),
        [
            ({"version": "0.23.4"}, "not known before 0.24"),
            ({"version": "0.24", "data_parallel": 2}, "deadlock"),
            ({"version": "0.25.9", "data_parallel": 2}, "no guard"),
            ({"version": "0.26", "data_parallel": 2}, "drops the table"),
            ({"version": "0.33", "data_parallel": 8}, "drops the table"),
            ({"version": "0.33", "method": "suffix"}, "Model Runner V1 drops the table"),
            ({"version": "0.33", "method": "dspark", "runner": "v1"}, "Model Runner V2 only"),
            ({"version": "0.32", "method": "p-eagle", "runner": "v2"}, "refuses to start"),
        ],
    )
    def test_refusals_name_the_way_out(self, server: dict[str, Any], says: str) -> None:
        with pytest.raises(ExportRefused) as caught:
            export("vllm", ScheduleOptions(max_batch=200), **server)
        assert says in str(caught.value)
        assert "the best single gamma up to 200 sequences is 1, predicted to lose" in str(caught.value)

    @pytest.mark.parametrize(
        "server",
        [
            {"version": "0.23.4"},
            {"version": "0.24", "data_parallel": 2},
            {"version": "0.33", "data_parallel": 8},
            {"version": "0.33", "method": "suffix"},
        ],
    )
    def test_one_range_is_a_constant_which_no_engine_drops(self, server: dict[str, Any]) -> None:
        made = export("vllm", ScheduleOptions(max_batch=64), **server)
        assert made.config["num_speculative_tokens"] == made.table == 4
        assert "num_speculative_tokens_per_batch_size" not in made.config
        assert made.table_key == "num_speculative_tokens"
        assert "constant" in codes(made)
        assert not {"data_parallel_drops_table", "v1_piecewise", "v2_ignores_table", "tail"} & codes(made)
        (note,) = [note for note in made.notes if note.code == "constant"]
        assert "gamma 4 serves every batch up to 64" in note.message

    def test_what_is_refused_without_a_table_too(self) -> None:
        with pytest.raises(ExportRefused, match="Model Runner V2 only"):
            export("vllm", ScheduleOptions(max_batch=64), version="0.33", method="dspark", runner="v1")

    def test_gamma_0_everywhere_stays_a_table(self) -> None:
        made = export(
            "vllm", ScheduleOptions(allow_zero=True, zero_margin=0.0, max_gamma=1, max_batch=300), version="0.33"
        )
        assert isinstance(made.table, list)

    @pytest.mark.parametrize(
        ("engine", "server", "key"),
        [
            ("sglang", {"method": "EAGLE3"}, "speculative-num-steps"),
            ("tensorrt-llm", {"version": "1.3.1"}, "max_draft_len"),
        ],
    )
    def test_one_range_in_other_engines(self, engine: str, server: dict[str, Any], key: str) -> None:
        made = export(engine, ScheduleOptions(max_batch=64), **server)
        assert (made.table_key, made.table) == (key, 4)
        assert "constant" in codes(made)
        assert "--speculative-adaptive" not in made.flags
        assert "draft_len_schedule" not in str(made.config)

    def test_every_gate_says_where_it_is_from(self) -> None:
        from adaptive_gamma.policy.export import sglang, tensorrt_llm, vllm

        for gate in (*vllm.GATES, *sglang.GATES, *tensorrt_llm.GATES):
            assert gate.source, gate.code
            assert gate.since is None or gate.before is None or gate.since < gate.before

    def test_the_command_can_be_pasted(self) -> None:
        made = export("vllm", version="0.33", model="meta-llama/Llama-3.1-8B-Instruct", draft_model="a/b c")
        words = shlex.split(made.command)
        assert words == list(made.flags)
        assert words[:3] == ["vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct"]
        config = json.loads(words[words.index("--speculative-config") + 1])
        assert config["method"] == "eagle3"
        assert config["model"] == "a/b c"
        assert config["num_speculative_tokens_per_batch_size"] == made.table
        assert "placeholders" not in codes(made)
        assert "placeholders" in codes(export("vllm", version="0.33"))

    @pytest.mark.parametrize(
        ("version", "limit", "given"),
        [("0.33", 512, False), ("0.32", 1024, True), ("0.31", 512, True), ("0.33", 300, False)],
    )
    def test_capture_sizes_are_given_only_where_the_server_would_not_add_them(
        self, version: str, limit: int, given: bool
    ) -> None:
        made = export("vllm", ScheduleOptions(capture_limit_tokens=limit), version=version)
        assert ("--cudagraph-capture-sizes" in made.flags) is given
        assert ("capture_by_default" in codes(made)) is not given
        assert "--max-cudagraph-capture-size" not in made.flags

    @pytest.mark.parametrize(
        ("method", "expected"),
        [
            ("ngram", {"method": "ngram"}),
            ("mtp", {"method": "mtp"}),
            ("p-eagle", {"method": "eagle3", "parallel_drafting": True, "model": "DRAFT_MODEL"}),
            ("draft_model", {"method": "draft_model", "model": "DRAFT_MODEL"}),
        ],
    )
    def test_methods(self, method: str, expected: dict[str, Any]) -> None:
        config = export("vllm", version="0.33", method=method).config
        own = {k: v for k, v in config.items() if not k.startswith("num_speculative_tokens")}
        assert own == expected

    def test_a_policy_that_does_not_say_what_its_drafter_is(self) -> None:
        made = export_policy(rebuild_policy(small_inputs(), "x"), "vllm", ServerOptions(version="0.33"))
        assert "method" not in made.config
        assert "method_unknown" in codes(made)

    def test_zero_is_warned_of(self) -> None:
        made = export("vllm", ScheduleOptions(allow_zero=True), version="0.33")
        assert made.table[-1][2] == 0
        assert {"zero_gamma", "zero_keeps_drafter"} <= codes(made)

    def test_a_table_of_zeros_still_has_a_maximum_the_engine_takes(self) -> None:
        data = small_inputs()
        data["inputs"]["classes"] = {"chat": {"reading": "conditional", "independent": 0.01}}
        data["inputs"]["default_class"] = "chat"
        options = ScheduleOptions(allow_zero=True, zero_margin=0.0)
        data["inputs"]["limits"]["zero_gamma_tax"] = 0.0
        made = export_policy(rebuild_policy(data, "x"), "vllm", ServerOptions(version="0.33"), options)
        assert made.table == [[1, 300, 0]]
        assert made.config["num_speculative_tokens"] == 1


class TestSglang:
    @pytest.mark.parametrize("method", ["NGRAM", "DFLASH", "dspark", "STANDALONE"])
    def test_other_algorithms_are_refused(self, method: str) -> None:
        with pytest.raises(ExportRefused, match="EAGLE and EAGLE3 only"):
            export("sglang", method=method)

    def test_the_file_and_its_flags(self) -> None:
        made = export("sglang", model="m", draft_model="d", file="there.json")
        assert made.flags[made.flags.index("--speculative-adaptive-config") + 1] == "there.json"
        assert made.flags[made.flags.index("--speculative-eagle-topk") + 1] == "1"
        assert all(len(slot["candidate_steps"]) == 1 for slot in made.config.values())
        assert "placeholders" not in codes(made)
        nextn = export("sglang", method="nextn")
        assert nextn.flags[nextn.flags.index("--speculative-algorithm") + 1] == "EAGLE"

    def test_candidates_by_class(self) -> None:
        slot = export("sglang", candidates_by_class=True).config["1"]["candidate_steps"]
        assert len(slot) > 1
        assert slot == sorted(slot)

    @pytest.mark.parametrize(
        ("server", "code"),
        [
            ({"version": "0.5.9"}, "older_than_read"),
            ({"version": "0.6"}, "newer_than_read"),
            ({"data_parallel": 2}, "data_parallel"),
        ],
    )
    def test_warnings(self, server: dict[str, Any], code: str) -> None:
        assert code in codes(export("sglang", **server), "warning")


class TestTensorrtLlm:
    def test_the_file(self) -> None:
        made = export("tensorrt-llm", version="1.4.0", draft_model="d", model="m", file="x.yaml")
        read = yaml.safe_load(made.config_text)
        assert read["speculative_config"]["decoding_type"] == "Eagle3"
        assert all(isinstance(key, int) for key in read["speculative_config"]["draft_len_schedule"])
        assert read["max_batch_size"] == max(read["speculative_config"]["draft_len_schedule"])
        assert made.flags == ("trtllm-serve", "m", "--extra_llm_api_options", "x.yaml")

    def test_keys_were_lower_bounds_once(self) -> None:
        with pytest.raises(ExportRefused, match="lower bounds"):
            export("tensorrt-llm", version="1.2.0")
        assert "release_candidates" in codes(export("tensorrt-llm", version="1.3.0rc4"))
        assert "version_not_given" in codes(export("tensorrt-llm"))

    def test_no_gamma_above_the_first_one(self) -> None:
        """Where more sequences pay for longer drafts the whole table starts with the longest."""
        data = small_inputs()
        data["inputs"]["step_time"] = {"kind": "linear", "fixed_seconds": 0.02, "seconds_per_token": 0.0}
        data["inputs"]["drafter"] = {"kind": "autoregressive", "family": "eagle3", "pass_seconds": 0.004}
        data["inputs"]["step_time"]["seconds_per_kv_token"] = 2e-7
        data["inputs"]["limits"]["capture_limit_tokens"] = None
        policy = rebuild_policy(data, "x")
        free = export_policy(policy, "vllm", ServerOptions(version="0.33"))
        assert free.table[-1][2] > free.table[0][2]
        bound = export_policy(policy, "tensorrt-llm")
        assert bound.schedule.gamma_at(1) == max(step.gamma for step in bound.schedule.steps)
        assert bound.schedule.gamma_at(1) == bound.config["speculative_config"]["max_draft_len"]
        assert bound.schedule.merging.mean >= free.schedule.merging.mean

    def test_unknown_decoding(self) -> None:
        with pytest.raises(ExportRefused, match="no decoding_type"):
            export("tensorrt-llm", method="DSpark")


def test_unknown_engines_get_the_nearest() -> None:
    with pytest.raises(ConfigurationError) as caught:
        export("tensorrt_llm")
    assert caught.value.suggestion == "tensorrt-llm"


def test_everything_is_plain_data() -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        made = export(engine, version="0.33" if engine == "vllm" else None)
        read = json.loads(json.dumps(made.to_json()))
        assert read["schema"] == "adaptive-gamma/engine-schedule/v1"
        assert read["merging_loss"]["mean"] <= read["best_single_gamma"]["mean"]
        assert {row["class"] for row in read["loss_by_class_and_context"]} == set(POLICY.classes)
        assert all(note["message"] for note in read["notes"])
