"""What each engine accepts, written from descriptions of the engines and not from the code under test.

Each function raises ValueError as the engine would at start-up, and returns the draft length at batch 1 .. ``largest``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any


def vllm_draft_lengths(config: dict[str, Any], largest: int) -> list[int]:
    """vLLM 0.24-0.33: list of [start, end, K]; starts at 1, no overlap; gaps and the tail inherit; K is clamped."""
    maximum = config["num_speculative_tokens"]
    if "num_speculative_tokens_per_batch_size" not in config:
        if type(maximum) is not int or maximum < 1:
            raise ValueError("num_speculative_tokens must be > 0")
        return [maximum] * largest
    table = config["num_speculative_tokens_per_batch_size"]
    if not isinstance(table, list) or not table:
        raise ValueError("not a non-empty list")
    for entry in table:
        if not isinstance(entry, list) or len(entry) != 3 or any(type(v) is not int for v in entry):
            raise ValueError(f"not [start, end, K]: {entry}")
        if entry[0] < 1 or entry[1] < entry[0] or entry[2] < 0:
            raise ValueError(f"bad range: {entry}")
    ordered = sorted(table)
    if ordered[0][0] != 1:
        raise ValueError("the first range must start at 1")
    if any(b[0] <= a[1] for a, b in pairwise(ordered)):
        raise ValueError("ranges overlap")
    if maximum < 1:
        raise ValueError("num_speculative_tokens must be > 0")
    found: list[int] = []
    for batch in range(1, largest + 1):
        inside = [k for start, end, k in ordered if start <= batch <= end]
        found.append(min(inside[0] if inside else found[-1], maximum))
    return found


def vllm_decode_graphs(config: dict[str, Any], largest: int, sizes: list[int] | None) -> set[tuple[int, int]]:
    """vLLM 0.32, Model Runner V2: (K, requests) of the decode graphs it captures.

    A size is rounded up to a multiple of K + 1 and dropped where that exceeds the largest size or the largest batch.
    Without sizes of the user's own the server takes its grid up to min(batches x (K + 1) x 2, 512), and for each K of
    the table, where there is one, the multiples for 1, 2, 4, every eighth and the widest batch that runs at it.
    """
    widths: dict[int, int] = {}
    for batch, k in enumerate(vllm_draft_lengths(config, largest), 1):
        widths[k] = batch
    if sizes is None:
        ceiling = min(largest * (config["num_speculative_tokens"] + 1) * 2, 512)
        grid = [s for s in (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)) if s <= ceiling]
        for k, widest in widths.items() if "num_speculative_tokens_per_batch_size" in config else ():
            requests = [n for n in (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16), widest) if n <= widest]
            grid += [n * (k + 1) for n in requests if n * (k + 1) <= ceiling]
        sizes = grid
    top = max(sizes)
    found = set()
    for size in sizes:
        for k in widths:
            rounded = -(-size // (k + 1)) * (k + 1)
            if rounded <= top and rounded // (k + 1) <= largest:
                found.add((k, rounded // (k + 1)))
    return found


def sglang_draft_lengths(config: dict[str, Any], num_steps: int, largest: int) -> list[int]:
    """SGLang 0.5.23: integer-string keys are lower bounds, candidate_steps of ints >= 0; num_steps is a candidate.

    With several candidates the largest one is returned: the engine may take any.
    """
    slots: dict[int, list[int]] = {}
    for key, entry in config.items():
        if not key.isdigit():
            continue
        steps = entry.get("candidate_steps")
        if not isinstance(steps, list) or not steps or not all(type(s) is int and s >= 0 for s in steps):
            raise ValueError(f"candidate_steps of {key}")
        slots[int(key)] = steps
    if not slots:
        raise ValueError("no slot")
    if num_steps not in {s for steps in slots.values() for s in steps}:
        raise ValueError("--speculative-num-steps is no candidate")
    if min(slots) != 1:
        raise ValueError("batch 1 has no slot")
    return [max(slots[max(b for b in slots if b <= batch)]) for batch in range(1, largest + 1)]


def tensorrt_llm_draft_lengths(speculative: dict[str, Any], largest: int) -> list[int]:
    """TensorRT-LLM 1.3: keys are upper bounds >= 1; the smallest has max_draft_len, none more; 0 beyond the last."""
    maximum = speculative["max_draft_len"]
    if "draft_len_schedule" not in speculative:
        return [maximum] * largest
    schedule = speculative["draft_len_schedule"]
    if "max_concurrency" in speculative:
        raise ValueError("max_concurrency excludes draft_len_schedule")
    for key, length in schedule.items():
        if type(key) is not int or key < 1 or type(length) is not int or length < 0 or length > maximum:
            raise ValueError(f"bad entry {key}: {length}")
    if schedule[min(schedule)] != maximum:
        raise ValueError("the smallest key must have max_draft_len")
    return [next((schedule[key] for key in sorted(schedule) if batch <= key), 0) for batch in range(1, largest + 1)]
