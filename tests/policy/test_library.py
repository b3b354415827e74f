"""The library: accelerators, models and drafter families as data with sources."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from statistics import mean

import pytest

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy import (
    family_named,
    find_policy,
    hardware_named,
    library,
    load_library,
    load_policy,
    model_named,
    shipped_policies,
)
from adaptive_gamma.roofline import AcceptanceCurve, achieved_efficiency

from .inputs import POLICIES

FILES = POLICIES / "library"
MEASURED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "measured"


def rows_of(name: str) -> list[dict[str, str]]:
    path = MEASURED / name
    if not path.is_file():
        pytest.skip(f"the table it was restated from is not here ({name})")
    return list(csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith("#")))


class TestAccelerators:
    def test_peaks_equal_the_table_they_come_from(self) -> None:
        rows = rows_of("hardware_peaks.csv")
        assert len(rows) == len(library().accelerators)
        for row in rows:
            found = hardware_named(row["gpu"].split(" (")[0])
            assert found is not None, row["gpu"]
            assert found.bandwidth == pytest.approx(float(row["hbm_bw_TBs"]) * 1e12)
            assert found.bf16_flops == pytest.approx(float(row["bf16_dense_TF"]) * 1e12)
            fp8 = row["fp8_dense_TF"]
            assert found.fp8_flops == (pytest.approx(float(fp8) * 1e12) if fp8 else None)
            assert found.memory_bytes == pytest.approx(float(row["mem_GB"]) * 1e9)

    def test_efficiencies_equal_the_table_they_come_from(self) -> None:
        rows = rows_of("gemm_measured_efficiency.csv")
        stored = (FILES / "accelerators.yaml").read_text()
        assert stored.count("best_fit:") == len(rows)
        for row in rows:
            found = hardware_named(row["gpu"])
            assert found is not None
            reached = achieved_efficiency(found, "fp8" if row["dtype"] == "fp8" else "bf16")
            assert reached is not None
            memory = [float(row[f"mbu_m{m}"]) for m in (1, 16, 128)]
            compute = [float(row[f"mfu_m{m}"]) for m in (512, 2048)]
            assert min(memory) - 0.005 <= reached[0] <= max(memory) + 0.005
            assert min(compute) - 0.005 <= reached[1] <= max(compute) + 0.005
            for name in ("mbu_m1", "mbu_m16", "mbu_m128", "mfu_m128", "mfu_m512", "mfu_m2048", "err"):
                assert f"{float(row[name]):.3f}" in stored

    @pytest.mark.parametrize(
        ("asked", "name"), [("h100", "H100 SXM"), ("H100-PCIe", "H100 PCIe"), ("b300 sxm", "B300 SXM")]
    )
    def test_names_are_forgiving(self, asked: str, name: str) -> None:
        found = hardware_named(asked)
        assert found is not None
        assert found.name == name
        assert found.source

    def test_unknown(self) -> None:
        assert hardware_named("TPU v5") is None

    def test_without_fp8_units_weights_are_computed_in_bf16(self) -> None:
        a100, h100 = hardware_named("A100"), hardware_named("H100")
        assert a100 is not None
        assert h100 is not None
        assert a100.flops("fp8") == 312e12
        assert h100.flops("fp8") == 1978e12
        assert achieved_efficiency(h100, "bf16") == (0.80, 0.80)
        assert achieved_efficiency(a100, "fp8") is None


class TestModels:
    @pytest.mark.parametrize(
        ("name", "billions", "kv"),
        [
            ("Llama-3.1-8B", 8.03, 131_072),
            ("Llama-3.1-70B", 70.55, 327_680),
            ("Llama-3.2-1B", 1.236, 32_768),
            ("Llama-3.2-3B", 3.213, 114_688),
            ("Mistral-7B-v0.3", 7.25, 131_072),
            ("Qwen2.5-7B", 7.62, 57_344),
            ("Qwen2.5-32B", 32.76, 262_144),
            ("Qwen2.5-72B", 72.7, 327_680),
            ("Qwen3-4B", 4.02, 147_456),
            ("Qwen3-8B", 8.19, 147_456),
            ("Qwen3-14B", 14.77, 163_840),
            ("Qwen3-32B", 32.76, 262_144),
        ],
    )
    def test_parameters_and_kv(self, name: str, billions: float, kv: int) -> None:
        """Parameter counts as the models' cards print them."""
        shape = library().models[name]
        assert shape.parameters is not None
        assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.001)
        assert shape.kv_bytes_per_token() == kv
        assert shape.kv_bytes_per_token(bytes_per_value=1) == kv / 2

    def test_mixtures_of_experts_say_so(self) -> None:
        experts = {name for name, shape in library().models.items() if shape.mixture_of_experts}
        assert experts == {"Mixtral-8x7B-v0.1", "Qwen3-30B-A3B", "Qwen3-235B-A22B", "DeepSeek-V3"}
        assert library().models["DeepSeek-V3"].kv_bytes_per_token() == 70_272

    def test_usual_names(self) -> None:
        for name in ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"):
            assert model_named(name) is library().models["Llama-3.1-8B"]
        assert model_named("deepseek-ai/DeepSeek-R1") is library().models["DeepSeek-V3"]
        assert model_named("gpt-6") is None


class TestDrafters:
    def test_names(self) -> None:
        for asked, name in (("EAGLE-3", "eagle3"), ("eagle", "eagle1"), ("P-EAGLE", "p-eagle"), ("dspark", "dspark")):
            found = family_named(asked)
            assert found is not None
            assert found.name == name
        assert family_named("crystal-ball") is None

    @pytest.mark.parametrize("name", list(library().drafters))
    def test_priors_rest_on_what_is_listed(self, name: str) -> None:
        """A prior that calls itself measured or derived gives the accepted lengths listed for its class, within 6 %."""
        family = library().drafters[name]
        assert set(family.priors) == {"structured", "chat", "unsure"}
        for request_class, prior in family.priors.items():
            curve = AcceptanceCurve.two_parameter(prior.first, prior.plateau)
            rows = [m for m in family.measured if m.request_class == request_class]
            if prior.standing == "assumed" or (prior.standing == "measured" and request_class == "unsure" and not rows):
                continue
            assert rows, f"{request_class} is called {prior.standing}, but nothing is listed for it"
            for gamma in {g for m in rows for g in m.accepted_length}:
                found = mean(m.accepted_length[gamma] for m in rows if gamma in m.accepted_length)
                assert curve.expected_tokens(gamma) == pytest.approx(found, rel=0.08 if gamma > 8 else 0.06)

    def test_per_position_rates_add_up_to_the_accepted_length(self) -> None:
        """1 + sum of unconditional rates: the figures are read as vLLM counts them."""
        checked = 0
        for family in library().drafters.values():
            for row in family.measured:
                length = row.accepted_length.get(len(row.unconditional))
                if row.unconditional and length is not None:
                    assert 1 + sum(row.unconditional) == pytest.approx(length, abs=0.09), (family.name, row.task)
                    checked += 1
        assert checked >= 18

    def test_rates_equal_the_table_they_come_from(self) -> None:
        listed = {(tuple(row.unconditional[:8]), row.target) for f in library().drafters.values() for row in f.measured}
        missing = []
        for row in rows_of("acceptance_per_position.csv"):
            rates = tuple(float(row[f"p{i}"]) for i in range(1, 9) if row[f"p{i}"])
            if row["p2"] and not any(rates == found for found, _ in listed):
                missing.append((row["model"], row["task"]))
        assert missing == []

    def test_the_weight_of_a_prior_reaches_the_policy(self) -> None:
        family = family_named("dspark")
        assert family is not None
        classes = family.classes()
        assert classes["chat"].pseudo_drafts == family.priors["chat"].pseudo_drafts
        assert (classes["chat"].source or "").startswith("derived: ")


def test_library_files_are_no_policies() -> None:
    assert not {"accelerators", "models", "drafters"} & set(shipped_policies())
    with pytest.raises(PolicyError, match="no policy of that name"):
        find_policy("drafters")
    with pytest.raises(PolicyError, match="schema: is 'adaptive-gamma/library/v1'"):
        load_policy(FILES / "drafters.yaml")


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("accelerators", "bandwidth_bytes_per_s: 3.35e12", "bandwidth_bytes_per_s: 3.35", "looks like TB/s"),
        ("accelerators", "memory: 0.80, compute: 0.80", "memory: 80.0, compute: 0.80", "80 % is 0.8"),
        ("accelerators", "aliases: [h200]", "aliases: [h100]", "'h100' means 'H100 SXM' already"),
        ("accelerators", "kind: accelerators", "kind: models", "expected 'accelerators', not 'models'"),
        ("models", "hidden_size: 4096", "hidden_sise: 4096", "hidden_size is missing"),
        ("drafters", "pass_fraction: 0.12", "pas_fraction: 0.12", "did you mean 'pass_fraction'?"),
        ("drafters", "first: 0.89", "first: 89.0", "89 % is 0.89"),
        ("drafters", "standing: derived", "standing: guessed", "standing"),
        ("drafters", "schema: adaptive-gamma/library/v1", "schema: adaptive-gamma/library/v2", "schema"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, name: str, old: str, new: str, says: str) -> None:
    shutil.copytree(FILES, tmp_path / "library")
    path = tmp_path / "library" / f"{name}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(PolicyError) as caught:
        load_library(tmp_path / "library")
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"accelerators\.yaml: cannot be read"):
        load_library(tmp_path)
