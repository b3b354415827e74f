"""Where vLLM is taken hold of. The one module that knows vLLM's classes; what it replaced it can put back."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaptive_gamma.vllm_plugin.files import refuse
from adaptive_gamma.vllm_plugin.governor import EngineLimits, ScheduleGovernor
from adaptive_gamma.vllm_plugin.metrics import PositionCounters
from adaptive_gamma.vllm_plugin.schedule import parse_schedule
from adaptive_gamma.vllm_plugin.version import engine_version

__all__ = ["install", "uninstall"]

_log = logging.getLogger("vllm.adaptive_gamma")

_GOVERNOR = "_adaptive_gamma_governor"
_COUNTERS = "_adaptive_gamma_counters"
_replaced: list[tuple[type, str, Any]] = []


def install(schedule_file: Path) -> str | None:
    """Wrap the scheduler and the counters of speculation. Does nothing where that has been done in this process.

    Returns:
        Why it could not be done, in words; vLLM is as it was then. None when it is done.
    """
    if _replaced:
        return None
    try:
        from vllm.v1.core.sched.output import SchedulerOutput
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
        from vllm.v1.spec_decode.metrics import SpecDecodingProm
    except ImportError as error:
        return f"this vLLM lacks {error.name or 'a part'} that the plugin takes hold of"
    lacks = _missing(Scheduler, SchedulerOutput, SpecDecodingProm, build_dynamic_sd_schedule_lookup)
    if lacks is not None:
        return f"this vLLM's {lacks} is not what the plugin takes hold of"
    _replace(Scheduler, "__init__", lambda original: _init(original, schedule_file, build_dynamic_sd_schedule_lookup))
    _replace(Scheduler, "schedule", _schedule)
    _replace(SpecDecodingProm, "__init__", lambda original: _counters_init(original, schedule_file))
    _replace(SpecDecodingProm, "observe", _observe)
    return None


def uninstall() -> None:
    """Put back what was replaced. Schedulers made meanwhile keep the schedule they have."""
    while _replaced:
        owner, name, original = _replaced.pop()
        setattr(owner, name, original)


def _missing(scheduler: Any, output: Any, counters: Any, lookup: Callable[..., Any]) -> str | None:
    """Which of the things taken hold of is not there, or takes other arguments."""
    needed = {
        "scheduler": (scheduler, ("vllm_config", "log_stats")),
        "schedule step": (getattr(scheduler, "schedule", None), ()),
        "step's output": (output, ("num_scheduled_tokens", "num_spec_tokens_to_schedule")),
        "speculation counters": (counters, ("labelnames", "per_engine_labelvalues")),
        "counting of drafts": (getattr(counters, "observe", None), ("spec_decoding_stats", "engine_idx")),
        "schedule look-up": (lookup, ("vllm_max_batch_size", "vllm_num_speculative_tokens")),
    }
    for words, (function, arguments) in needed.items():
        if function is None or not set(arguments) <= set(inspect.signature(function).parameters):
            return words
    return None


def _replace(owner: type, name: str, wrapper_of: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _replaced.append((owner, name, original))
    setattr(owner, name, functools.wraps(original)(wrapper_of(original)))


def _init(original: Any, schedule_file: Path, build_lookup: Callable[..., list[int]]) -> Any:
    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        problem = _govern(self, schedule_file, build_lookup)
        if problem is not None:
            _log.error("adaptive-gamma: %s; gamma stays as this engine was started with", problem)
            refuse(schedule_file, problem)

    return init


def _govern(scheduler: Any, schedule_file: Path, build_lookup: Callable[..., list[int]]) -> str | None:
    config = scheduler.vllm_config
    speculative = config.speculative_config
    if speculative is None:
        return "this engine does not speculate"
    if config.parallel_config.data_parallel_size > 1:
        return "its ranks would draft different numbers of tokens: gamma cannot be set with data parallelism"
    if scheduler.dynamic_sd_lookup is None:
        return (
            "it was started without a schedule, for which its workers are not prepared; start it with one, be it of "
            'one range: "num_speculative_tokens_per_batch_size": [[1, MAX_NUM_SEQS, GAMMA]] in --speculative-config'
        )
    max_gamma, max_batch = scheduler.num_spec_tokens, scheduler.scheduler_config.max_num_seqs
    startup = [
        [first, last, min(gamma, max_gamma)] for first, last, gamma in speculative.num_speculative_tokens_per_batch_size
    ]
    limits = EngineLimits(
        version=engine_version() or "",
        max_gamma=max_gamma,
        max_batch=max_batch,
        startup_schedule=parse_schedule(startup, max_gamma=max_gamma),
        captured_gammas=_captured_gammas(config, scheduler.dynamic_sd_lookup),
    )
    governor = ScheduleGovernor(
        scheduler,
        limits,
        schedule_file,
        lookup_of=lambda schedule: build_lookup(
            schedule, vllm_max_batch_size=max_batch, vllm_num_speculative_tokens=max_gamma
        ),
    )
    setattr(scheduler, _GOVERNOR, governor)
    governor.look()
    governor.start()
    _log.info("adaptive-gamma: gamma is set by %s; started with gamma %d at most", schedule_file, max_gamma)
    return None


def _captured_gammas(config: Any, startup_lookup: list[int]) -> frozenset[int] | None:
    """Model Runner V2 captures full graphs for the gammas of the start-up schedule; V1 captures none by gamma."""
    if not config.use_v2_model_runner or not config.compilation_config.cudagraph_mode.has_full_cudagraphs():
        return None
    return frozenset(startup_lookup[1:])


def _schedule(original: Any) -> Any:
    def schedule(self: Any, *args: Any, **options: Any) -> Any:
        governor: ScheduleGovernor | None = getattr(self, _GOVERNOR, None)
        if governor is None:
            return original(self, *args, **options)
        governor.begin_step()
        output = original(self, *args, **options)
        governor.end_step(len(output.num_scheduled_tokens), output.num_spec_tokens_to_schedule)
        return output

    return schedule


def _counters_init(original: Any, schedule_file: Path) -> Any:
    def init(
        self: Any, speculative_config: Any, labelnames: Any, per_engine_labelvalues: Any, *args: Any, **options: Any
    ) -> None:
        original(self, speculative_config, labelnames, per_engine_labelvalues, *args, **options)
        if speculative_config is not None:
            counters = PositionCounters(
                schedule_file, labelnames, per_engine_labelvalues, speculative_config.num_speculative_tokens
            )
            setattr(self, _COUNTERS, counters)

    return init


def _observe(original: Any) -> Any:
    def observe(self: Any, spec_decoding_stats: Any, engine_idx: int = 0) -> None:
        original(self, spec_decoding_stats, engine_idx)
        counters: PositionCounters | None = getattr(self, _COUNTERS, None)
        if counters is not None:
            counters.count(engine_idx, spec_decoding_stats.num_draft_tokens_per_pos)

    return observe
