"""``GET /server_info?config_format=json`` of a vLLM server, kept beside its results: version, drafter, gamma.

It holds for the results in its folder and below. ``speculative_config: null`` in it says that there is no drafter.
"""

from __future__ import annotations

from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.raw import ServerFacts, Stated
from adaptive_gamma.bench.row import SweepRow

__all__ = ["is_server_info", "server_facts"]


def is_server_info(value: Any) -> bool:
    """Whether a document is vLLM's ``server_info``."""
    return isinstance(value, dict) and isinstance(value.get("vllm_config"), dict)


def server_facts(document: Document, findings: Findings) -> ServerFacts:
    """What the page says. Raises SweepError where it makes no sense."""
    page = Fields(document.value, document.source)
    config = page.object("vllm_config") or page
    speculative = config.object("speculative_config")
    environment = page.object("system_env")
    stated: Stated | None = None
    drafter = None
    if speculative is not None:
        stated = Stated(speculative.required_count("num_speculative_tokens"), True, str(document.source))
        drafter = speculative.text("method")
        if speculative.values.get("num_speculative_tokens_per_batch_size"):
            findings.note(document.source, "drafts by a schedule; gamma is its maximum", "speculative_config")
    elif "speculative_config" in config.values:
        stated = Stated(0, False, str(document.source))
    row = SweepRow(
        source=document.source,
        format="vllm-server-info",
        engine="vllm",
        engine_version=environment.text("vllm_version") if environment is not None else None,
        drafter=drafter,
    )
    return ServerFacts(document, row, stated, below=True)
