"""Policy files: round trip, and every way to get one wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy import (
    Policy,
    build_policy,
    find_policy,
    lint_policy,
    load_policy,
    parse_inputs,
    policy_yaml,
    read_policy_file,
    rebuild_policy,
    shipped_policies,
)

from .inputs import POLICIES, SHIPPED, shipped_file, small_file, small_inputs, small_policy

File = dict[str, Any]


def refused(data: File) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        Policy.from_mapping(data, "my.yaml")
    assert str(caught.value).startswith("my.yaml: ")
    return caught.value


class TestRoundTrip:
    def test_written_read_and_written_again(self, tmp_path: Path) -> None:
        text = policy_yaml(small_policy())
        path = tmp_path / "small.yaml"
        path.write_text(text)
        loaded = load_policy(path)
        assert loaded.document.inputs == small_policy().document.inputs
        assert loaded.table == small_policy().table
        assert policy_yaml(loaded) == text

    @pytest.mark.parametrize("name", SHIPPED)
    def test_shipped_files_are_what_their_inputs_give(self, name: str) -> None:
        text = (POLICIES / f"{name}.yaml").read_text()
        assert policy_yaml(load_policy(POLICIES / f"{name}.yaml")) == text
        data = shipped_file(name)
        del data["table"]
        assert policy_yaml(rebuild_policy(data, name)) == text
        assert load_policy(name).name == name

    @pytest.mark.parametrize("name", SHIPPED)
    def test_shipped_files_say_what_they_rest_on(self, name: str) -> None:
        document = load_policy(name).document
        assert len(document.description) > 80
        assert document.sources
        assert document.assumed

    @given(
        st.floats(1e-3, 1.0),
        st.floats(0.0, 1e-3),
        st.floats(0.0, 1.0),
        st.floats(0.0, 1.0),
        st.integers(1, 12),
        st.integers(1, 80),
        st.none() | st.integers(1, 300),
        st.floats(0.0, 0.5),
    )
    def test_any_policy_survives(
        self, fixed: float, token: float, first: float, plateau: float, gamma: int, batch: int, limit: int | None,
        tax: float,
    ) -> None:  # fmt: skip
        data = small_inputs()
        data["inputs"]["step_time"].update(fixed_seconds=fixed, seconds_per_token=token)
        data["inputs"]["classes"]["chat"] = {
            "reading": "unconditional", "two_parameter": {"first": first, "plateau": plateau},
        }  # fmt: skip
        data["inputs"]["limits"].update(
            max_gamma=gamma, max_batch=batch, capture_limit_tokens=limit, zero_gamma_tax=tax, context_buckets=[700]
        )
        policy = rebuild_policy(data, "x")
        text = policy_yaml(policy)
        again = Policy.from_mapping(yaml.safe_load(text), "x")
        assert again.table == policy.table
        assert policy_yaml(again) == text
        for ranges in (cell.best_gamma for contexts in again.table.classes.values() for cell in contexts.values()):
            for _, last, best in ranges:
                assert limit is None or best == 0 or best <= limit / last - 1

    def test_built_from_inputs_alone(self) -> None:
        inputs = parse_inputs(small_inputs()["inputs"], "x")
        policy = build_policy(inputs, name="mine", description="text", sources=["a", "b"])
        assert policy.name == "mine"
        assert policy.description == "text"
        assert policy.table == small_policy().table

    def test_a_name_must_be_a_name(self) -> None:
        inputs = parse_inputs(small_inputs()["inputs"], "x")
        with pytest.raises(PolicyError, match="name: string should match"):
            build_policy(inputs, name="two words")


def _set(path: str, value: object) -> Callable[[File], None]:
    def change(data: File) -> None:
        *parents, last = path.split(".")
        here: Any = data
        for step in parents:
            here = here[step]
        here[last] = value

    return change


def _rename(path: str, new: str) -> Callable[[File], None]:
    def change(data: File) -> None:
        *parents, last = path.split(".")
        here: Any = data
        for step in parents:
            here = here[step]
        here[new] = here.pop(last)

    return change


@pytest.mark.parametrize(
    ("change", "key", "suggestion"),
    [
        (_rename("inputs", "input"), "input", "inputs"),
        (_rename("name", "names"), "names", "name"),
        (_rename("inputs.limits", "limit"), "inputs.limit", "limits"),
        (_rename("inputs.limits.max_gamma", "max_gama"), "inputs.limits.max_gama", "max_gamma"),
        (_rename("inputs.drafter.pass_fraction", "pas_fraction"), "inputs.drafter.pas_fraction", "pass_fraction"),
        (_rename("inputs.step_time.fixed_seconds", "fixed_second"), "inputs.step_time.fixed_second", "fixed_seconds"),
        (_rename("inputs.classes.chat.rates", "rate"), "inputs.classes.chat.rate", "rates"),
        (
            _rename("inputs.classes.structured.two_parameter.plateau", "plateua"),
            "inputs.classes.structured.two_parameter.plateua",
            "plateau",
        ),
        (_set("inputs.step_time.kind", "linaer"), "inputs.step_time.kind", "linear"),
        (_set("inputs.drafter.kind", "autoregresive"), "inputs.drafter.kind", "autoregressive"),
        (_set("inputs.classes.chat.reading", "unconditionel"), "inputs.classes.chat.reading", "unconditional"),
        (_set("inputs.default_class", "chatt"), "inputs.default_class", "chat"),
        (_rename("table.gammas", "gamma"), "table.gamma", "gammas"),
        (_rename("table.classes.chat", "chats"), "table.classes", "chat"),
    ],
)
def test_a_wrong_word_gets_the_nearest_right_one(change: Callable[[File], None], key: str, suggestion: str) -> None:
    data = small_file()
    change(data)
    error = refused(data)
    assert error.key == key
    assert error.suggestion == suggestion
    assert f"did you mean '{suggestion}'?" in str(error)


def test_a_wrong_key_in_a_cell() -> None:
    data = small_file()
    cell = data["table"]["classes"]["chat"][2000]
    cell["best_gama"] = cell.pop("best_gamma")
    error = refused(data)
    assert (error.key, error.suggestion) == ("table.classes.chat.2000.best_gama", "best_gamma")


def test_missing_keys_are_named() -> None:
    data = small_file()
    del data["inputs"]["limits"]["max_batch"]
    assert str(refused(data)) == "my.yaml: inputs.limits.max_batch: missing"
    data = small_file()
    del data["inputs"]["drafter"]["kind"]
    assert refused(data).key == "inputs.drafter.kind"
    data = small_file()
    del data["table"]
    assert "policy build --inputs" in str(refused(data))


@pytest.mark.parametrize("found", [None, "adaptive-gamma/policy/v2"])
def test_only_this_schema(found: str | None) -> None:
    data = small_file()
    data["schema"] = found
    error = refused(data)
    assert error.key == "schema"
    assert "adaptive-gamma/policy/v1" in str(error)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("hardware.bandwidth_bytes_per_s", 3.35, "looks like TB/s; write 3.35e+12"),
        ("hardware.bandwidth_bytes_per_s", 3350.0, "looks like GB/s; write 3.35e+12"),
        ("hardware.compute_flops_per_s", 989.0, "looks like TFLOP/s; write 9.89e+14"),
        ("hardware.memory_bytes", 80, "looks like GB; write 8e+10"),
        ("model.weight_bytes", 54, "looks like billions of bytes; write 5.4e+10"),
        ("model.kv_bytes_per_token", -1, "bytes per token"),
        ("step_time.memory_efficiency", 80, "80 % is 0.8"),
        ("step_time.memory_efficiency", 0, "fraction in (0, 1]"),
        ("step_time.compute_efficiency", 1.5, "fraction in (0, 1]"),
        ("step_time.combine", "maximum", "'max' or a power in 1..1000"),
        ("step_time.combine", 0.5, "'max' or a power in 1..1000"),
        ("step_time.combine", float("inf"), "'max' or a power in 1..1000"),
        ("step_time.combine", True, "'max' or a power"),
        ("hardware.bandwidth_bytes_per_s", float("nan"), "bytes/s in"),
        ("hardware.bandwidth_bytes_per_s", 10**400, "not 1000"),
        ("step_time.launch_seconds", 3.0, "milliseconds"),
        ("step_time.capture_sizes", [8, 4], "must rise"),
        ("limits.context_buckets", [8000, 500], "500 follows 8000"),
        ("limits.context_buckets", [], "at least 1 item"),
        ("limits.max_gamma", 0, "greater than or equal to 1"),
        ("limits.max_gamma", "8", "valid integer"),
        ("limits.max_gamma", True, "valid integer"),
        ("limits.min_gamma", 7, "at most max_gamma (6)"),
        ("limits.zero_gamma_tax", 6.6, "6.6 % is 0.066"),
        ("limits.zero_gamma_tax", [[10, 0.1], [2, 0.1]], "batches that rise"),
        ("limits.zero_gamma_tax", [[10, 0.1, 3]], "[[batch, tax], ...]"),
        ("drafter.pass_fraction", 12, "fraction of a target step"),
        ("drafter.pass_seconds", 0.001, "exactly one of pass_fraction"),
        ("classes.chat.rates", [0.6, 36], "36 % is 0.36"),
        ("classes.chat.rates", [0.6, -0.1], "rate in 0..1"),
        ("classes.chat.rates", [0.6, 0.7], "cannot rise"),
        ("classes.chat.rates", [], "at least one rate"),
        ("classes.chat.independent", 0.5, "rates and independent"),
        ("classes.structured.plateau", 0.5, "goes with rates or line"),
        ("classes.unsure", {"reading": "unconditional", "independent": 0.8}, "set reading: conditional"),
        ("classes.unsure", {"reading": "conditional"}, "none of them"),
        ("classes.unsure", {"rates": [0.5]}, "missing"),
        (
            "classes.unsure",
            {"reading": "conditional", "line": {"first": 0.9, "fall_per_position": 0.2, "positions": 8}},
            "rate at position 6",
        ),
    ],
)  # fmt: skip
def test_wrong_values_name_their_key_and_what_was_expected(path: str, value: object, says: str) -> None:
    data = small_file()
    data["inputs"]["hardware"] = {"name": "H100", "bandwidth_bytes_per_s": 3.35e12, "compute_flops_per_s": 989e12}
    data["inputs"]["model"] = {
        "name": "m", "weight_bytes": 54e9, "flops_per_token": 54e9, "kv_bytes_per_token": 262144,
    }  # fmt: skip
    data["inputs"]["step_time"] = {"kind": "roofline", "memory_efficiency": 0.8, "compute_efficiency": 0.8}
    _set(f"inputs.{path}", value)(data)
    error = refused(data)
    section = ".".join(path.split(".")[: -1 if path.startswith("drafter.pass_s") or "independent" in path else None])
    assert error.key.startswith(f"inputs.{section}")
    assert says in error.problem


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("fixed_seconds", 20.6, "20.6 ms is 0.0206"),
        ("seconds_per_token", 0.105, "0.105 ms is 1.05e-4"),
        ("seconds_per_kv_token", 62.6, "62.6 ns is 6.26e-8"),
    ],
)
def test_milliseconds_in_a_linear_step(key: str, value: float, says: str) -> None:
    data = small_file()
    data["inputs"]["step_time"][key] = value
    error = refused(data)
    assert error.key == f"inputs.step_time.{key}"
    assert says in error.problem


@pytest.mark.parametrize("part", ["hardware", "model"])
def test_a_roofline_needs_hardware_and_model(part: str) -> None:
    data = shipped_file("h100-llama3-8b-eagle3")
    del data["inputs"][part]
    assert refused(data).key == f"inputs.{part}"


def test_a_drafter_pass_as_a_share_needs_all_three() -> None:
    data = small_inputs()
    data["inputs"]["drafter"] = {"kind": "autoregressive", "weight_fraction": 0.04, "kv_fraction": 0.1}
    with pytest.raises(PolicyError, match=r"inputs\.drafter\.compute_fraction: missing"):
        rebuild_policy(data, "x")


class TestTablesThatContradict:
    """Edits of [[first, last, gamma], ...] in one cell; each names the range."""

    @pytest.mark.parametrize(
        ("ranges", "key", "says"),
        [
            ([[2, 300, 1]], "[0]", "start at batch 1, not 2"),
            ([[1, 40, 4], [40, 300, 1]], "[1]", "overlaps the range before it; expected 41"),
            ([[1, 40, 4], [43, 300, 1]], "[1]", "leaves a gap after the range before it; expected 41"),
            ([[1, 40, 4], [41, 39, 1]], "[1]", "ends at batch 39, before it starts"),
            ([[1, 300, 7]], "[0]", "gamma 7 is outside 0..max_gamma (6)"),
            ([[1, 300, -1]], "[0]", "outside"),
            ([[1, 200, 3], [201, 300, 0]], "[0]", "800 tokens, beyond the capture limit of 512"),
            ([[1, 80, 3]], "", "ends at batch 80; expected max_batch (300)"),
            ([[1, 300]], "[0]", "expected [first batch, last batch, gamma]"),
            ([], "", "ends at batch 0"),
            ([[1, 80, 2], [81, 256, 1], [257, 300, 0]], "[0]", "but the inputs give"),
        ],
    )
    def test_ranges(self, ranges: list[list[int]], key: str, says: str) -> None:
        data = small_file()
        data["table"]["classes"]["chat"][2000]["best_gamma"] = ranges
        error = refused(data)
        assert error.key == f"table.classes.chat.2000.best_gamma{key}"
        assert says in error.problem

    def test_a_changed_speedup(self) -> None:
        data = small_file()
        data["table"]["classes"]["chat"][2000]["speedup"][8][1] += 0.0002
        error = refused(data)
        assert error.key == "table.classes.chat.2000.speedup.8[1]"
        assert "gamma 2" in error.problem

    def test_rounding_is_no_contradiction(self) -> None:
        data = small_file()
        Policy.from_mapping(data, "x")

    def test_a_speedup_beyond_the_capture_limit(self) -> None:
        data = small_file()
        data["table"]["classes"]["chat"][2000]["speedup"][256][3] = 1.1
        assert refused(data).key == "table.classes.chat.2000.speedup.256[3]"

    def test_a_changed_break_even(self) -> None:
        data = small_file()
        data["table"]["classes"]["chat"][2000]["plain_wins_from"] = None
        error = refused(data)
        assert error.key == "table.classes.chat.2000.plain_wins_from"
        assert error.problem.startswith("is null, but the inputs give")

    def test_changed_inputs(self) -> None:
        data = small_file()
        data["inputs"]["step_time"]["fixed_seconds"] = 0.021
        assert "rebuild the table" in str(refused(data))

    @pytest.mark.parametrize("what", ["class", "context", "batch", "gamma"])
    def test_missing_parts(self, what: str) -> None:
        data = small_file()
        classes = data["table"]["classes"]
        if what == "class":
            del classes["chat"]
        elif what == "context":
            del classes["chat"][500]
        elif what == "batch":
            del classes["chat"][500]["speedup"][64]
        else:
            classes["chat"][500]["speedup"][64].pop()
        assert refused(data).key.startswith("table.classes")


class TestReading:
    def test_bare_names_paths_and_neighbours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert set(shipped_policies()) == set(SHIPPED)
        assert find_policy("article-h100-27b") == POLICIES / "article-h100-27b.yaml"
        assert find_policy("article-h100-27b.yaml") == POLICIES / "article-h100-27b.yaml"
        with pytest.raises(PolicyError) as caught:
            find_policy("artikel-h100-27b")
        assert caught.value.suggestion == "article-h100-27b"
        monkeypatch.chdir(tmp_path)
        Path("article-h100-27b").write_text("mine")
        assert find_policy("article-h100-27b") == Path("article-h100-27b")
        with pytest.raises(PolicyError, match="is a directory"):
            find_policy(tmp_path)
        with pytest.raises(PolicyError, match="cannot be read"):
            find_policy("x" * 5000)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("- a\n- b\n", "expected a mapping"),
            ("", "expected a mapping"),
            ("a: [1\n", "line 2"),
            ("name: a\nname: b\n", "the key 'name' is given twice"),
            ("a: !!python/object:os.system {}\n", "line 1"),
        ],
    )
    def test_files_that_are_no_policy(self, tmp_path: Path, text: str, says: str) -> None:
        path = tmp_path / "bad.yaml"
        path.write_text(text)
        with pytest.raises(PolicyError) as caught:
            load_policy(path)
        assert says in str(caught.value)
        assert str(path) in str(caught.value)

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.yaml"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(PolicyError, match="not UTF-8"):
            load_policy(path)

    def test_numbers_as_people_write_them(self, tmp_path: Path) -> None:
        path = tmp_path / "numbers.yaml"
        path.write_text("a: 3.35e12\nb: 1e-4\nc: 54e9\nd: 1.5E+3\ne: 62.6e-9\nf: 12\ng: v1e5\n")
        assert read_policy_file(path) == {
            "a": 3.35e12, "b": 1e-4, "c": 54e9, "d": 1500.0, "e": 62.6e-9, "f": 12, "g": "v1e5",
        }  # fmt: skip


class TestLint:
    def test_remarks_name_their_key(self) -> None:
        findings = {f.key: f.message for f in lint_policy(load_policy("article-h100-27b"))}
        assert "edge of the search" in findings["table.*.best_gamma"]
        eight = {f.key: f.message for f in lint_policy(load_policy("h200-llama3-70b-fp8"))}
        assert "up to batch 256" in eight["table.*.plain_wins_from"]
        assert "at most about 48 sequences" in findings["inputs.limits.max_batch"]

    def test_an_edge_on_the_median_load(self) -> None:
        policy = load_policy("article-h100-27b")
        plain, loaded = lint_policy(policy), lint_policy(policy, median_load=80)
        found = [str(f) for f in loaded if f not in plain]
        assert found == [
            "table.classes.decaying.2048.best_gamma: an edge at batch 80 stands on the median load 80",
            "table.classes.independent_0.8.2048.best_gamma: an edge at batch 80 stands on the median load 80",
        ]
        assert lint_policy(policy, median_load=600) == plain

    def test_a_class_that_never_gains(self) -> None:
        data = small_inputs()
        data["inputs"]["classes"]["chat"] = {"reading": "conditional", "independent": 0.05}
        messages = [str(f) for f in lint_policy(rebuild_policy(data, "x"))]
        assert "table.classes.chat.2000.plain_wins_from: this class never gains from the drafter" in messages
        assert any(m.startswith("inputs.classes.unsure.reading: conditional rates") for m in messages)

    @pytest.mark.parametrize(
        ("path", "value", "key", "says"),
        [
            ("drafter", {"kind": "autoregressive", "pass_fraction": 0.04}, "inputs.drafter", "measured are 10-14 %"),
            (
                "drafter",
                {"kind": "parallel", "weight_fraction": 0.04, "compute_fraction": 0.04, "kv_fraction": 1.0},
                "inputs.drafter",
                "measured are 17-26 %",
            ),
            ("limits.capture_limit_tokens", None, "inputs.limits.capture_limit_tokens", "costs up to 5x"),
            ("limits.capture_limit_tokens", 100, "inputs.limits.capture_limit_tokens", "beyond batch 50 no draft fits"),
            ("limits.min_gamma", 0, "inputs.limits.min_gamma", "gamma 0 competes; on a speculative engine"),
            (
                "classes.chat",
                {"reading": "conditional", "rates": [0.9, 0.8, 0.7]},
                "inputs.classes.chat.reading",
                "falls from 0.90 to 0.70",
            ),
            (
                "classes.chat",
                {"reading": "unconditional", "rates": [0.95, 0.9]},
                "inputs.classes.chat.plateau",
                "acceptance is given for 2 positions",
            ),
        ],
    )
    def test_traps(self, path: str, value: object, key: str, says: str) -> None:
        data = small_inputs()
        _set(f"inputs.{path}", value)(data)
        found = [f for f in lint_policy(rebuild_policy(data, "x")) if f.key == key and says in f.message]
        assert len(found) == 1
        clean = [f for f in lint_policy(small_policy()) if f.key == key and says in f.message]
        assert clean == []

    def test_a_roofline_of_the_larger_time(self) -> None:
        keys = {f.key for f in lint_policy(load_policy("article-h100-27b"))}
        assert {"inputs.step_time.combine", "inputs.drafter", "inputs.classes.decaying.reading"} <= keys

    def test_a_gain_within_noise(self) -> None:
        data = small_inputs()
        data["inputs"]["classes"]["chat"] = {"reading": "unconditional", "rates": [0.125, 0.01]}
        found = {f.key: f.message for f in lint_policy(rebuild_policy(data, "x"))}
        assert "within the noise" in found["table.classes.chat.500.speedup"]
