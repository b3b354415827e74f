"""Reading a schedule that somebody wrote for an engine: what the engine would make of it, batch by batch.

Rules as the engines have them: see the module of each engine. Nothing is repaired here; a table the engine would reject
gives refusals and no gammas.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeGuard

from adaptive_gamma.policy.export import sglang, tensorrt_llm, vllm
from adaptive_gamma.policy.export.notes import Note

__all__ = ["READERS", "ReadTable"]


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table as its engine takes it."""

    gamma_at: Callable[[int], int] | None
    """Gamma by batch; None where the engine rejects the table. With several candidates the largest one."""
    notes: tuple[Note, ...]
    last: int
    """The last batch that the table names."""
    edges: tuple[int, ...] = ()
    """Rising; the only batches at which another gamma than just below can begin, beside batch 1."""
    exact: bool = True
    """Whether the engine really drafts ``gamma_at``; False where it walks between several candidates."""
    max_gamma: int | None = None
    """The engine's maximum, where the table came with it."""
    method: str | None = None
    constant: bool = False
    """Whether there is no table, but one gamma at every batch."""


_VLLM_RULES = "vllm/v1/spec_decode/dynamic/utils.py, 0.24-0.33"
_SGLANG_RULES = "sglang/srt/speculative/adaptive_spec_params.py, 0.5.23"
_TRT_RULES = "tensorrt_llm/llmapi/llm_args.py"
_SGLANG_GLOBAL = frozenset(
    ("up_hysteresis", "down_hysteresis", "ceiling_coeff", "ema_alpha", "update_interval", "warmup_batches", "strategy")
)


def _rejected(source: str, code: str, message: str) -> ReadTable:
    return ReadTable(None, (Note("refusal", code, message, source),), 0)


def _constant(gamma: int, key: str, source: str, method: str | None) -> ReadTable:
    note = Note("note", "constant", f"there is no table in it: {key} is drafted at every batch", source)
    return ReadTable(lambda batch: gamma, (note,), 1, max_gamma=gamma, method=method, constant=True)


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_vllm(data: Any, max_gamma: int | None) -> ReadTable:
    method: str | None = None
    if isinstance(data, Mapping):
        config = data.get("speculative_config", data)
        if not isinstance(config, Mapping) or vllm.TABLE_KEY not in config:
            if data and all(not isinstance(v, Mapping) for v in data.values()) and any(_bound(k) for k in data):
                return _rejected(
                    _VLLM_RULES,
                    "dict_form",
                    'a mapping such as {"1-16": 3} is not accepted; write a list of [first batch, last batch, K]',
                )
            maximum = config.get(vllm.CONSTANT_KEY) if isinstance(config, Mapping) else None
            if isinstance(config, Mapping) and _whole(maximum) and maximum >= 1:
                method = "p-eagle" if config.get("parallel_drafting") else config.get("method")
                return _constant(maximum, vllm.CONSTANT_KEY, _VLLM_RULES, method)
            return _rejected(_VLLM_RULES, "no_table", f"there is no {vllm.TABLE_KEY} in it")
        given = config.get("num_speculative_tokens")
        max_gamma = given if _whole(given) else max_gamma
        method = "p-eagle" if config.get("parallel_drafting") else config.get("method")
        data = config[vllm.TABLE_KEY]
    if not isinstance(data, list) or not data:
        return _rejected(_VLLM_RULES, "not_a_list", "expected a list, not empty, of [first batch, last batch, K]")
    for entry in data:
        if not isinstance(entry, list) or len(entry) != 3:
            hint = "; five items (with contexts) are not known up to 0.33" if _five(entry) else ""
            return _rejected(_VLLM_RULES, "entry", f"expected [first batch, last batch, K], not {entry!r}{hint}")
        if not all(_whole(v) for v in entry):
            return _rejected(_VLLM_RULES, "entry", f"expected whole numbers, not {entry!r}")
        first, last, gamma = entry
        if first < 1 or last < first:
            return _rejected(_VLLM_RULES, "entry", f"expected 1 <= first <= last, not {entry!r}")
        if gamma < 0:
            return _rejected(_VLLM_RULES, "entry", f"K must be >= 0, not {gamma} in {entry!r}")
    ranges = sorted(data)
    notes: list[Note] = []
    if ranges != data:
        notes.append(Note("note", "unsorted", "the ranges are not in order; the server sorts them", _VLLM_RULES))
    if ranges[0][0] != 1:
        return _rejected(_VLLM_RULES, "start", f"the first range must start at batch 1, not {ranges[0][0]}")
    for before, after in pairwise(ranges):
        if after[0] <= before[1]:
            return _rejected(_VLLM_RULES, "overlap", f"the ranges {before} and {after} overlap")
        if after[0] > before[1] + 1:
            notes.append(
                Note(
                    "warning",
                    "gap",
                    f"batches {before[1] + 1}..{after[0] - 1} are in no range; they take the K before them "
                    f"({before[2]})",
                    _VLLM_RULES,
                )
            )
    if max_gamma is not None:
        notes += _maximum(max_gamma, max(r[2] for r in ranges), "num_speculative_tokens", "K", _VLLM_RULES)

    firsts = [entry[0] for entry in ranges]

    def gamma_at(batch: int) -> int:
        gamma: int = ranges[bisect_right(firsts, batch) - 1][2]
        return gamma if max_gamma is None else min(gamma, max_gamma)

    return ReadTable(gamma_at, tuple(notes), ranges[-1][1], tuple(firsts), max_gamma=max_gamma, method=method)


def _maximum(maximum: int, largest: int, name: str, what: str, source: str) -> list[Note]:
    if largest > maximum:
        return [Note("warning", "clamped", f"{what}={largest} is cut to {name} ({maximum})", source)]
    if largest < maximum:
        return [
            Note(
                "warning",
                "maximum_too_large",
                f"{name} is {maximum}, but no range uses more than {largest}: buffers, graphs and KV look-ahead are "
                f"sized by the maximum",
                source,
            )
        ]
    return []


def _read_sglang(data: Any, max_gamma: int | None) -> ReadTable:
    if not isinstance(data, Mapping):
        return _rejected(_SGLANG_RULES, "not_an_object", "expected a JSON object with batch sizes in quotes as keys")
    fixed = data.get(sglang.CONSTANT_KEY)
    if len(data) == 1 and _whole(fixed) and fixed >= 1:
        return _constant(fixed, sglang.CONSTANT_KEY, _SGLANG_RULES, None)
    slots: dict[int, list[int]] = {}
    notes: list[Note] = []
    for key, entry in data.items():
        if not (isinstance(key, str) and key.isdecimal()):
            if _whole(key):
                return _rejected(_SGLANG_RULES, "key", f"keys stand in quotes: expected {str(key)!r}, not {key!r}")
            if key not in _SGLANG_GLOBAL:
                notes.append(Note("warning", "key_ignored", f"the key {key!r} is ignored in silence", _SGLANG_RULES))
            continue
        steps = entry.get("candidate_steps") if isinstance(entry, Mapping) else None
        if not isinstance(steps, list) or not steps or not all(_whole(s) and s >= 0 for s in steps):
            return _rejected(
                _SGLANG_RULES, "candidate_steps", f"{key!r}: expected candidate_steps, a list of whole numbers >= 0"
            )
        slots[_number(key)] = sorted(set(steps))
    if not slots:
        return _rejected(_SGLANG_RULES, "no_slot", 'expected a slot, such as {"1": {"candidate_steps": [3]}}')
    bounds = sorted(slots)
    if bounds[0] > 1:
        notes.append(
            Note("warning", "start", f"no slot starts at 1; smaller batches take that of {bounds[0]}", _SGLANG_RULES)
        )
    for bound in bounds:
        if slots[bound][0] == 0 and len(slots[bound]) > 1:
            notes.append(
                Note(
                    "warning",
                    "zero_candidate",
                    f"slot {bound}: from 0 the engine steps up at every next update, so a drafter that is never "
                    f"accepted still drafts half of the time",
                    "the engine's AdaptiveStepSlot, run alone",
                )
            )
        if slots[bound] == [0]:
            notes.append(
                Note(
                    "warning",
                    "always_off",
                    f"from batch {bound} speculation is off whatever the acceptance; DSpark still gains 1.54x at 256",
                    "vLLM blog 2026-08-14",
                )
            )
    union = sorted({s for steps in slots.values() for s in steps})
    if max_gamma is not None and max_gamma not in union:
        notes.append(
            Note(
                "refusal",
                "initial_steps",
                f"--speculative-num-steps {max_gamma} is none of the candidates ({', '.join(map(str, union))})",
                _SGLANG_RULES,
            )
        )

    def gamma_at(batch: int) -> int:
        return slots[bounds[max(bisect_right(bounds, batch) - 1, 0)]][-1]

    exact = all(len(steps) == 1 for steps in slots.values())
    return ReadTable(gamma_at, tuple(notes), bounds[-1], tuple(bounds), exact=exact, max_gamma=max_gamma)


def _read_tensorrt_llm(data: Any, max_gamma: int | None) -> ReadTable:
    if not isinstance(data, Mapping):
        return _rejected(_TRT_RULES, "not_a_mapping", "expected a mapping of batch sizes to draft lengths")
    notes: list[Note] = []
    config = data.get("speculative_config", data)
    table: Any = data
    method: str | None = None
    if isinstance(config, Mapping) and tensorrt_llm.TABLE_KEY in config:
        table = config[tensorrt_llm.TABLE_KEY]
        given = config.get("max_draft_len")
        max_gamma = given if _whole(given) else max_gamma
        method = config.get("decoding_type")
        if config.get("max_concurrency") is not None:
            return _rejected(_TRT_RULES, "max_concurrency", "max_concurrency and draft_len_schedule exclude each other")
    elif "speculative_config" in data or "max_draft_len" in data:
        fixed = config.get(tensorrt_llm.CONSTANT_KEY) if isinstance(config, Mapping) else None
        if _whole(fixed) and fixed >= 1:
            return _constant(fixed, tensorrt_llm.CONSTANT_KEY, _TRT_RULES, config.get("decoding_type"))
        return _rejected(_TRT_RULES, "no_table", f"there is no {tensorrt_llm.TABLE_KEY} in it")
    if not isinstance(table, Mapping) or not table:
        return _rejected(_TRT_RULES, "not_a_mapping", "expected a mapping, not empty, of batch sizes to draft lengths")
    lengths: dict[int, int] = {}
    for key, length in table.items():
        bound = key if _whole(key) else _number(key) if isinstance(key, str) and key.isdecimal() else None
        if bound is None or bound < 1:
            return _rejected(_TRT_RULES, "key", f"expected batch sizes >= 1 as keys, not {key!r}")
        if not _whole(length) or length < 0:
            return _rejected(_TRT_RULES, "length", f"{key}: expected a draft length >= 0, not {length!r}")
        lengths[bound] = length
    bounds = sorted(lengths)
    if max_gamma is not None:
        if lengths[bounds[0]] != max_gamma:
            return _rejected(
                _TRT_RULES,
                "smallest_key",
                f"the smallest key ({bounds[0]}) must have max_draft_len ({max_gamma}), not {lengths[bounds[0]]}",
            )
        if max(lengths.values()) > max_gamma:
            return _rejected(_TRT_RULES, "length", f"no draft length may exceed max_draft_len ({max_gamma})")
    elif lengths[bounds[0]] != max(lengths.values()):
        return _rejected(
            _TRT_RULES, "smallest_key", "the smallest key must have the largest draft length, which is max_draft_len"
        )

    def gamma_at(batch: int) -> int:
        place = bisect_left(bounds, batch)
        return lengths[bounds[place]] if place < len(bounds) else 0

    edges = tuple(bound + 1 for bound in bounds)
    return ReadTable(gamma_at, tuple(notes), bounds[-1], edges, max_gamma=max_gamma, method=method)


def _bound(key: object) -> bool:
    return _whole(key) or (isinstance(key, str) and key.replace("-", "").replace(" ", "").isdecimal())


def _number(digits: str) -> int:
    """Of thousands of digits no more are read than it takes to see that no engine holds such a number."""
    return int(digits.lstrip("0")[:40] or "0")


def _five(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 5


READERS: MappingProxyType[str, Callable[[Any, int | None], ReadTable]] = MappingProxyType(
    {"vllm": _read_vllm, "sglang": _read_sglang, "tensorrt-llm": _read_tensorrt_llm}
)
"""By engine: from parsed JSON or YAML, and the engine's maximum gamma where it is known, to a table."""
