"""Taking hold of a vLLM and letting go again, on modules with the names and signatures of vLLM 0.32's."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from adaptive_gamma.vllm_plugin import hooks
from tests.vllm_plugin.test_governor import MAX_BATCH, lookup_of


def build_dynamic_sd_schedule_lookup(
    schedule: Any, vllm_max_batch_size: int, vllm_num_speculative_tokens: int
) -> list[int]:
    assert (vllm_max_batch_size, vllm_num_speculative_tokens) == (MAX_BATCH, 5)
    return lookup_of(schedule)


@dataclass
class SchedulerOutput:
    num_scheduled_tokens: dict[str, int]
    num_spec_tokens_to_schedule: int = 0


@dataclass
class Mode:
    full: bool = False

    def has_full_cudagraphs(self) -> bool:
        return self.full


@dataclass
class Parts:
    """Configuration, with what is read of it."""

    num_speculative_tokens: int = 5
    num_speculative_tokens_per_batch_size: list[list[int]] | None = field(default_factory=lambda: [[1, MAX_BATCH, 9]])
    data_parallel_size: int = 1
    max_num_seqs: int = MAX_BATCH
    cudagraph_mode: Mode = field(default_factory=Mode)


class Config:
    def __init__(self, parts: Parts, *, speculates: bool = True, v2: bool = False) -> None:
        self.speculative_config = parts if speculates else None
        self.parallel_config = self.scheduler_config = self.compilation_config = parts
        self.use_v2_model_runner = v2


class Modules:
    """A vLLM to take hold of."""

    def __init__(self) -> None:
        class Scheduler:
            def __init__(self, vllm_config: Any, log_stats: bool = True) -> None:
                self.vllm_config = vllm_config
                self.scheduler_config = vllm_config.scheduler_config
                self.num_spec_tokens = 5
                wanted = vllm_config.speculative_config and (
                    vllm_config.speculative_config.num_speculative_tokens_per_batch_size
                )
                self.dynamic_sd_lookup = None if not wanted else lookup_of([[1, MAX_BATCH, 5]])

            def schedule(self, throttle: bool = False) -> SchedulerOutput:
                requests = {"a": 1, "b": 1}
                return SchedulerOutput(requests, (self.dynamic_sd_lookup or [5] * 9)[len(requests)])

        class SpecDecodingProm:
            def __init__(
                self, speculative_config: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]],
                is_diffusion: bool = False,
            ) -> None:  # fmt: skip
                self.seen = 0

            def observe(self, spec_decoding_stats: Any, engine_idx: int = 0) -> None:
                self.seen += 1

        self.scheduler, self.counters = Scheduler, SpecDecodingProm

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        contents: dict[str, dict[str, object]] = {
            "vllm.v1.core.sched.output": {"SchedulerOutput": SchedulerOutput},
            "vllm.v1.core.sched.scheduler": {"Scheduler": self.scheduler},
            "vllm.v1.spec_decode.dynamic.utils": {"build_dynamic_sd_schedule_lookup": build_dynamic_sd_schedule_lookup},
            "vllm.v1.spec_decode.metrics": {"SpecDecodingProm": self.counters},
        }
        for name, names in contents.items():
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                package = ".".join(parts[:length])
                if package not in sys.modules:
                    monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
            sys.modules[name].__dict__.update(names)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    modules = Modules()
    modules.install(monkeypatch)
    yield modules
    hooks.uninstall()


def state(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.with_name("gamma.state.json").read_text())
    return found


def test_a_scheduler_is_governed_and_let_go(vllm: Modules, tmp_path: Path) -> None:
    file = tmp_path / "gamma.json"
    before = dict(vars(vllm.scheduler)), dict(vars(vllm.counters))
    assert hooks.install(file) is None
    assert hooks.install(file) is None, "a second time changes nothing"
    scheduler = vllm.scheduler(Config(Parts()))
    told = state(file)
    assert (told["status"], told["startup_schedule"], told["captured_gammas"]) == ("ready", [[1, 8, 5]], None)
    governor = scheduler._adaptive_gamma_governor  # type: ignore[attr-defined]  # put there by the hook
    governor.stop()
    file.write_text(json.dumps({"format": 1, "revision": "a", "schedule": [[1, 8, 3]]}))
    governor.look()
    assert scheduler.schedule(throttle=True).num_spec_tokens_to_schedule == 3
    hooks.uninstall()
    assert (dict(vars(vllm.scheduler)), dict(vars(vllm.counters))) == before


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config(Parts(), speculates=False), "does not speculate"),
        (Config(Parts(data_parallel_size=2)), "data parallelism"),
        (Config(Parts(num_speculative_tokens_per_batch_size=None)), "started without a schedule"),
    ],
)
def test_an_engine_that_cannot_be_governed_says_so_and_serves(
    vllm: Modules, tmp_path: Path, config: Config, words: str
) -> None:
    hooks.install(tmp_path / "gamma.json")
    scheduler = vllm.scheduler(config)
    told = state(tmp_path / "gamma.json")
    assert told["status"] == "refused"
    assert words in told["problem"]
    assert scheduler.schedule().num_spec_tokens_to_schedule == 5


def test_full_graphs_of_the_second_runner_bound_the_gammas(vllm: Modules, tmp_path: Path) -> None:
    hooks.install(tmp_path / "gamma.json")
    scheduler = vllm.scheduler(Config(Parts(cudagraph_mode=Mode(True)), v2=True))
    scheduler._adaptive_gamma_governor.stop()  # type: ignore[attr-defined]  # put there by the hook
    assert state(tmp_path / "gamma.json")["captured_gammas"] == [5]


def test_another_vllm_is_left_alone(vllm: Modules, tmp_path: Path) -> None:
    class Other:
        def __init__(self, config: Any) -> None: ...

    sys.modules["vllm.v1.core.sched.scheduler"].Scheduler = Other  # type: ignore[attr-defined]  # a stand-in's
    assert hooks.install(tmp_path / "gamma.json") == "this vLLM's scheduler is not what the plugin takes hold of"
    del sys.modules["vllm.v1.spec_decode.metrics"].SpecDecodingProm
    problem = hooks.install(tmp_path / "gamma.json")
    assert problem is not None
    assert problem.startswith("this vLLM lacks vllm.v1.spec_decode.metrics")
    assert "schedule" not in vars(Other)


def test_drafts_by_position_are_counted_beside_vllms_own(vllm: Modules, tmp_path: Path) -> None:
    hooks.install(tmp_path / "gamma.json")
    counters = vllm.counters(Parts(num_speculative_tokens=3), ["model_name", "engine"], {0: ["tiny", "0"]})
    for drafted in ([4, 4, 1], [2, 0, 0]):
        counters.observe(types.SimpleNamespace(num_draft_tokens_per_pos=drafted), 0)
    assert counters.seen == 2

    def counted(position: int) -> float | None:
        labels = {"model_name": "tiny", "engine": "0", "position": str(position)}
        return REGISTRY.get_sample_value("adaptive_gamma_draft_tokens_per_position_total", labels)

    assert [counted(position) for position in range(4)] == [6.0, 4.0, 1.0, None]
    plain = vllm.counters(None, ["model_name", "engine"], {0: ["tiny", "0"]})
    plain.observe(types.SimpleNamespace(num_draft_tokens_per_pos=[]), 0)
    assert plain.seen == 1
