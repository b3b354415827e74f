"""What an engine says of itself: the settings that bear on speed, picked out of the pages where it states them.

Only named settings are taken, never a whole page: such pages also hold keys, environment variables and templates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["CONFIGURATION_PAGES", "drafter_of", "owner_of", "reported_settings", "version_of"]

CONFIGURATION_PAGES = ("/v1/models", "/version", "/props", "/slots", "/server_info?config_format=json", "/server_info")
"""Pages on which engines state their settings; each engine has some of them."""

_SETTINGS = frozenset(
    re.findall(
        r"\w+",
        """
    owned_by version build_info total_slots n_ctx speculative model_alias model_path max_model_len n_params size
    method num_speculative_tokens num_speculative_tokens_per_batch_size prompt_lookup_max prompt_lookup_min
    enable_adaptive_verification draft_tensor_parallel_size draft_model
    tensor_parallel_size pipeline_parallel_size data_parallel_size tp_size dp_size
    max_num_seqs max_num_batched_tokens enable_chunked_prefill enable_prefix_caching async_scheduling
    cudagraph_mode max_cudagraph_capture_size enforce_eager cuda_graph_max_bs disable_cuda_graph attention_backend
    dtype quantization cache_dtype kv_cache_dtype gpu_memory_utilization num_gpu_blocks block_size mem_fraction_static
    speculative_algorithm speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens
    speculative_draft_model_path speculative_adaptive max_running_requests schedule_policy
    spec_enabled spec_method spec_num_tokens spec_draft_model
""",
    )
)
_MODEL_UNDER_SPECULATION = "speculative_config.model"
_LONGEST_TEXT = 200
_LONGEST_LIST = 64
_DEEPEST = 6
_MOST_SETTINGS = 200


def reported_settings(pages: Mapping[str, bytes]) -> dict[str, Any]:
    """The settings on pages (path -> body), as ``page: dotted.name`` -> value; what is no JSON object is left out.

    Of a list of objects (the slots of a server) the settings of each element are joined where they are the same, and
    listed where they are not.
    """
    found: dict[str, Any] = {}
    for path, body in pages.items():
        try:
            page = json.loads(body)
        except (ValueError, RecursionError):
            continue
        for name, value in _walk(_merged(page), "", 0):
            if len(found) < _MOST_SETTINGS:
                found[f"{path.partition('?')[0]} {name}"] = value
    return found


def _merged(page: object) -> object:
    if isinstance(page, dict) and isinstance(page.get("data"), list):
        page = page["data"]
    if not isinstance(page, list):
        return page
    objects = [item for item in page if isinstance(item, dict)]
    merged: dict[str, Any] = {"count": len(page)}
    for key in dict.fromkeys(key for item in objects for key in item):
        values = [item.get(key) for item in objects]
        merged[key] = values[0] if all(value == values[0] for value in values) else values
    return merged


def _walk(value: object, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or depth > _DEEPEST:
        return
    for key, item in value.items():
        if not isinstance(key, str):
            continue
        inner = f"{name}.{key}" if name else key
        if isinstance(item, dict):
            yield from _walk(item, inner, depth + 1)
        elif (key in _SETTINGS or inner.endswith(_MODEL_UNDER_SPECULATION) or inner == "count") and _is_plain(item):
            yield inner, item


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= _LONGEST_LIST and all(_is_plain(item) for item in value)
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT and value.isprintable()
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def _first(settings: Mapping[str, Any], *endings: str) -> str | None:
    for ending in endings:
        for name, value in settings.items():
            if name.endswith(ending) and isinstance(value, str) and value:
                return value
    return None


def owner_of(settings: Mapping[str, Any]) -> str | None:
    """Whose the models are by the engine's own list: on most engines, its name."""
    return _first(settings, "/v1/models owned_by")


def version_of(settings: Mapping[str, Any]) -> str | None:
    """The engine's version, where a page states one."""
    return _first(settings, "/version version", "/props build_info", "/server_info version")


def drafter_of(settings: Mapping[str, Any]) -> str | None:
    """The drafter, where a page states it: its model, else its method."""
    return _first(
        settings,
        "speculative_config.model",
        "speculative_draft_model_path",
        "spec_draft_model",
        "speculative_config.method",
        "speculative_algorithm",
        "spec_method",
    )
