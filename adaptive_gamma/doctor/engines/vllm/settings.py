"""vLLM's settings out of its command line as it logs it, the line on its configuration, and ``/server_info``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from adaptive_gamma.doctor.engines.vllm.literals import (
    graph_mode,
    literal_after,
    number_after,
    text_after,
    truth_after,
)
from adaptive_gamma.doctor.engines.vllm.texts import MODES_BY_NUMBER
from adaptive_gamma.doctor.evidence import PARALLEL_EAGLE, Fact, Settings, Version
from adaptive_gamma.doctor.finding import Evidence
from adaptive_gamma.engines import LARGEST_GAMMA
from adaptive_gamma.policy.export import parse_version

__all__ = ["read_version", "settings_of_arguments", "settings_of_config", "settings_of_info"]

T = TypeVar("T")

_TABLE = "num_speculative_tokens_per_batch_size"
_DEAD = ("disable_by_batch_size", "speculative_disable_by_batch_size")
_OLDEST: Version = (0, 5, 0)
_SIZES = re.compile(r"""['"]?cudagraph_capture_sizes['"]?\s?[=:]\s?\[([\d, ]{0,8000})\]""")


def read_version(text: str) -> Version | None:
    """A version, or None for what is none: a build from source without tags calls itself 0.1.dev."""
    try:
        version = parse_version(text)
    except ValueError:
        return None
    return version if version >= _OLDEST else None


def _quoted(evidence: Evidence, text: str) -> Evidence:
    return Evidence("setting" if evidence.kind == "setting" else "line", evidence.where, text)


def _fact(value: T | None, evidence: Evidence, name: str) -> Fact[T] | None:
    """A fact whose evidence says the setting and not the whole line of ten thousand letters."""
    if value is None:
        return None
    shown = json.dumps(value) if isinstance(value, list | dict | bool) else str(value)
    return Fact(value, _quoted(evidence, f"{name}={shown[:200]}"))


def _gamma(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST_GAMMA:
        return None
    return value


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12 else None


def settings_of_arguments(text: str, evidence: Evidence) -> Settings:
    """Of ``non-default args: {...}`` or ``args: Namespace(...)``: what was asked for.

    Where the line has no ``speculative_config`` nothing is said of speculation: older versions have other options.
    """
    config = literal_after(text, "speculative_config")
    if not isinstance(config, Mapping):
        config = {}
    numbers = (number_after(text, name) for name in ("spec_tokens", "num_speculative_tokens"))
    gamma = next(filter(None, map(_gamma, (config.get("num_speculative_tokens"), *numbers))), None)
    dead = [
        Fact(name, _quoted(evidence, f"{name}={value}"))
        for name in _DEAD
        if (value := config.get(name, number_after(text, name))) is not None
    ]
    short = (text_after(text, name) for name in ("spec_method", "spec_model", "speculative_model"))
    speculative = True if config or any(each is not None for each in short) else None
    table = config.get(_TABLE)
    compilation = literal_after(text, "compilation_config")
    compilation_text = text if not isinstance(compilation, Mapping) else json.dumps(compilation, default=str)
    limit = _capture_limit(compilation_text)
    method = config.get("method") or text_after(text, "spec_method")
    method = PARALLEL_EAGLE if config.get("parallel_drafting") is True else method
    return Settings(
        model=_fact(text_after(text, "model"), evidence, "model"),
        speculative=_fact(speculative, evidence, "speculative"),
        method=_fact(method if isinstance(method, str) else None, evidence, "method"),
        gamma=_fact(gamma, evidence, "num_speculative_tokens"),
        table=_fact(table if table else None, evidence, _TABLE),
        adaptive_verification=_fact(
            _truth(config.get("enable_adaptive_verification")), evidence, "enable_adaptive_verification"
        ),
        dead_options=tuple(dead),
        enforce_eager=_fact(truth_after(text, "enforce_eager"), evidence, "enforce_eager"),
        graph_mode=_fact(graph_mode(compilation_text), evidence, "cudagraph_mode"),
        capture_limit=_fact(limit, evidence, "capture limit"),
        capture_limit_asked=limit is not None,
        max_model_len=_fact(number_after(text, "max_model_len"), evidence, "max_model_len"),
        max_num_seqs=_fact(number_after(text, "max_num_seqs"), evidence, "max_num_seqs"),
        data_parallel=_fact(number_after(text, "data_parallel_size"), evidence, "data_parallel_size"),
        pipeline_parallel=_fact(number_after(text, "pipeline_parallel_size"), evidence, "pipeline_parallel_size"),
        attention_backend=_fact(_backend_asked(text), evidence, "attention_backend"),
        statistics=_fact(_off(truth_after(text, "disable_log_stats")), evidence, "disable_log_stats=True, statistics"),
    )


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _off(disabled: bool | None) -> bool | None:
    return False if disabled else None


def _backend_asked(text: str) -> str | None:
    found = re.search(
        r"""attention_backend['"]?\s?[=:]\s?(?:<AttentionBackendEnum\.(\w{1,60})|['"](\w{1,60})['"])""", text
    )
    return (found[1] or found[2]) if found is not None else None


def _capture_limit(text: str) -> int | None:
    """The largest size given, or the limit by itself."""
    for key in ("max_cudagraph_capture_size", "max_capture_size"):
        if limit := number_after(text, key):
            return limit
    found = _SIZES.search(text)
    sizes = [int(size) for size in re.findall(r"\d{1,9}", found[1])] if found is not None else []
    return max(sizes, default=None)


def settings_of_config(text: str, version: str, generation: str | None, evidence: Evidence) -> Settings:
    """Of ``Initializing a V1 LLM engine (v...) with config: ...``: the configuration before graphs are captured."""
    found = re.search(r"speculative_config=(None|SpeculativeConfig\((.{0,2000}?)\)(?=[,\s]|$))", text)
    inside = found[2] if found is not None and found[2] is not None else ""
    speculative = None if found is None else found[1] != "None"
    limit = _capture_limit(text)
    generation = generation.lower() if generation else "v0"
    mode = graph_mode(text)
    if mode is None and truth_after(text, "use_cudagraph") is False and generation == "v1":
        mode = "NONE"
    return Settings(
        version=_fact(read_version(version), evidence, "version")
        and Fact(read_version(version) or (0, 0, 0), _quoted(evidence, f"vLLM {version}")),
        generation=_fact(generation, evidence, "engine"),
        model=_fact(text_after(text, "model"), evidence, "model"),
        speculative=Fact(speculative, _quoted(evidence, f"speculative_config={found[1][:200]}"))
        if speculative is not None and found is not None
        else None,
        method=_fact(text_after(inside, "method"), evidence, "method"),
        gamma=_fact(_gamma(number_after(inside, "num_spec_tokens")), evidence, "num_spec_tokens"),
        enforce_eager=_fact(truth_after(text, "enforce_eager"), evidence, "enforce_eager"),
        graph_mode=_fact(mode, evidence, "cudagraph_mode"),
        capture_limit=_fact(limit, evidence, "largest capture size"),
        max_model_len=_fact(number_after(text, "max_seq_len"), evidence, "max_seq_len"),
        data_parallel=_fact(number_after(text, "data_parallel_size"), evidence, "data_parallel_size"),
        pipeline_parallel=_fact(number_after(text, "pipeline_parallel_size"), evidence, "pipeline_parallel_size"),
        device=_fact(text_after(text, "device_config"), evidence, "device_config"),
    )


def settings_of_info(page: object, where: str) -> Settings | None:
    """Of ``/server_info?config_format=json``; None where the page is another one."""
    config = page.get("vllm_config") if isinstance(page, Mapping) else None
    if not isinstance(config, Mapping):
        return None
    evidence = Evidence("setting", where, "")

    def part(name: str) -> Mapping[str, Any]:
        value = config.get(f"{name}_config")
        return value if isinstance(value, Mapping) else {}

    speculation, compilation, scheduler = map(part, ("speculative", "compilation", "scheduler"))
    parallel, model = part("parallel"), part("model")
    limit = _whole(compilation.get("max_cudagraph_capture_size"))
    if limit is None:
        sizes = compilation.get("cudagraph_capture_sizes")
        limit = max((s for s in sizes if _whole(s)), default=None) if isinstance(sizes, list) else None
    table = speculation.get(_TABLE)
    method = PARALLEL_EAGLE if speculation.get("parallel_drafting") is True else speculation.get("method")
    device = part("device").get("device_type") or part("device").get("device")
    return Settings(
        generation=_fact("v1", evidence, "engine"),
        model=_fact(model.get("model") if isinstance(model.get("model"), str) else None, evidence, "model"),
        speculative=_fact("speculative_config" in config and bool(speculation), evidence, "speculative")
        if "speculative_config" in config
        else None,
        method=_fact(method if isinstance(method, str) else None, evidence, "method"),
        gamma=_fact(_gamma(speculation.get("num_speculative_tokens")), evidence, "num_speculative_tokens"),
        table=_fact(table if table else None, evidence, _TABLE),
        adaptive_verification=_fact(
            _truth(speculation.get("enable_adaptive_verification")), evidence, "enable_adaptive_verification"
        ),
        dead_options=tuple(
            Fact(name, _quoted(evidence, f"{name}={speculation[name]}"))
            for name in _DEAD
            if speculation.get(name) is not None
        ),
        enforce_eager=_fact(_truth(model.get("enforce_eager")), evidence, "enforce_eager"),
        graph_mode=_fact(_info_mode(compilation.get("cudagraph_mode")), evidence, "cudagraph_mode"),
        capture_limit=_fact(limit, evidence, "max_cudagraph_capture_size"),
        max_model_len=_fact(_whole(model.get("max_model_len")), evidence, "max_model_len"),
        max_num_seqs=_fact(_whole(scheduler.get("max_num_seqs")), evidence, "max_num_seqs"),
        data_parallel=_fact(_whole(parallel.get("data_parallel_size")), evidence, "data_parallel_size"),
        pipeline_parallel=_fact(_whole(parallel.get("pipeline_parallel_size")), evidence, "pipeline_parallel_size"),
        device=_fact(device if isinstance(device, str) else None, evidence, "device"),
    )


def _info_mode(value: object) -> str | None:
    if isinstance(value, list):
        return MODES_BY_NUMBER.get(",".join(map(str, value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return MODES_BY_NUMBER.get(str(value))
    return graph_mode(f"cudagraph_mode={value}") if isinstance(value, str) else None
