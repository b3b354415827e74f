"""vLLM's own load tool, with prompts of ours."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.vllm.server import MODEL_NAME

__all__ = ["bench_serve"]


def bench_serve(
    environment: Path, url: str, tokenizer: Path, result: Path, prompts: Sequence[str], *, at_once: int, tokens: int
) -> dict[str, Any]:
    """``vllm bench serve``: all prompts, so many at once, greedy; what it wrote into ``result``."""
    result.parent.mkdir(parents=True, exist_ok=True)
    dataset = result.with_suffix(".prompts")
    talks = [{"conversations": [{"value": prompt}, {"value": "an answer " * 4}]} for prompt in prompts]
    dataset.write_text(json.dumps(talks))
    command = [
        str(environment / "bin" / "vllm"), "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions",
        "--base-url", url, "--model", MODEL_NAME, "--tokenizer", str(tokenizer), "--dataset-name", "sharegpt",
        "--dataset-path", str(dataset), "--sharegpt-output-len", str(tokens),
        "--num-prompts", str(len(prompts)), "--max-concurrency", str(at_once), "--temperature", "0", "--ignore-eos",
        "--save-result", "--result-dir", str(result.parent), "--result-filename", result.name,
    ]  # fmt: skip
    variables = {
        **os.environ, "LD_PRELOAD": str(environment / "lib" / "libiomp5.so"), "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    dataset.unlink()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    written: dict[str, Any] = json.loads(result.read_text())
    return written
