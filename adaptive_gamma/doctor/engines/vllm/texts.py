"""The lines of a vLLM log that mean something here, by version.

Read from vLLM 0.8.5, 0.9.2, 0.10.2, 0.11 to 0.33 and from logs that people published. Lines are searched, not matched:
before them stand process names, time stamps of whatever collected the log, and remains of progress bars.

======================  ==========  ==================================================================================
what                    version     text
======================  ==========  ==================================================================================
no graphs captured      to 0.8      ``Skipping CUDA graph capture. Please add -O 3 to use CUDA graphs.``
                        0.9-0.10.1  ``Skipping CUDA graph capture. To turn on CUDA graph capture, set -O ...``
                        from 0.10.2 ``Skipping CUDA graph capture. ... ensure `cudagraph_mode` was not ...``
                        V2, 0.28+   ``Skipping encoder and decoder CUDA graph capture. ...``
graphs captured         all         ``Graph capturing finished in``: of any kind, an image encoder's too
bars                    0.9         ``Capturing CUDA graph shapes``
                        V1 runner   ``Capturing CUDA graphs (decode, FULL)``, ``(mixed prefill-decode, PIECEWISE)``
                        V2 runner   ``Capturing CUDA graphs (FULL)``, ``(PIECEWISE)``; the drafter's have a word
                                    between: ``Capturing decode CUDA graphs (FULL)`` is none of the target's
KV cache                to 0.20     two lines, size and concurrency; later one
======================  ==========  ==================================================================================
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ANY",
    "ARGUMENTS",
    "BACKEND",
    "CAPTURE_FINISHED",
    "CAPTURE_SKIPPED",
    "CAPTURE_SKIPPED_V2",
    "CONFIG",
    "DIED",
    "DIED_OF",
    "DRAFTER_BAR",
    "DRAFTER_EAGER",
    "DRAFTER_SHORT",
    "DRAFTS",
    "DYNAMIC_PIECEWISE",
    "EAGER",
    "ENCODER_CAPTURE",
    "EXCLUSIVE",
    "ITERATION",
    "KV_TOKENS",
    "LOAD",
    "MODES_BY_NUMBER",
    "OLD_BAR",
    "PLATFORM_NONE",
    "PROFILED",
    "PROFILED_PART",
    "PROGRESS",
    "READY",
    "REQUIRES_PIECEWISE",
    "RUNNER_FILE_V2",
    "RUNNER_V1",
    "RUNNER_V2",
    "RUNTIME_ROW",
    "SCHEDULED_CUT",
    "SHUT_DOWN",
    "SPLITTING_MODE",
    "TABLE_DROPPED_DP",
    "TABLE_DROPPED_METHOD",
    "TARGET_BAR",
    "UNSUPPORTED",
]

CONFIG: Final = re.compile(
    r"Initializing an? (?:(?P<generation>V[01]) )?LLM engine \(v(?P<version>[^)\s]{1,40})\) with config: (?P<config>.*)"
)
ARGUMENTS: Final = re.compile(r"(?:non-default args: |\bargs: Namespace\()(?P<arguments>.*)")
RUNNER_V1: Final = re.compile(r"Model Runner V2 .{1,200}?; using the V1 model runner instead")
RUNNER_V2: Final = re.compile(r"Using V2 Model Runner")
RUNNER_FILE_V2: Final = re.compile(r"\[model_runner\.py:\d+\]")
"""The file of that name is the V2 runner's; long before, it was the V0 engine's."""

EAGER: Final = re.compile(r"Enforce eager set, disabling torch\.compile|Cudagraph is disabled under eager mode")
UNSUPPORTED: Final = re.compile(
    r"CUDAGraphMode\.(?P<before>\w+) is not supported with (?P<spec>spec-decode for (?:attention backend )?)?"
    r"(?P<backend>\w+)(?: backend)?(?: ?\(support: ?(?:AttentionCGSupport\.)?(?P<support>\w+)[^)]*\))?"
    r" ?; ?setting cudagraph_mode=(?P<after>\w+)"
)
DYNAMIC_PIECEWISE: Final = re.compile(
    r"Dynamic speculative decoding changes .{1,120}? Overriding cudagraph_mode from (?P<before>\w+) to (?P<after>\w+)"
)
REQUIRES_PIECEWISE: Final = re.compile(
    r"Cudagraph mode (?:CUDAGraphMode\.)?(?P<before>\w+) (?:requires piecewise capture|is not compatible with "
    r"compilation"
    r" mode).{1,300}?Overriding to (?:CUDAGraphMode\.)?(?P<after>\w+)"
)
SPLITTING_MODE: Final = re.compile(
    r"Piecewise compilation with empty splitting_ops .{1,120}?[Ss]etting cudagraph_mode to NONE"
)
PLATFORM_NONE: Final = re.compile(r"DeepEP: Disabling CUDA Graphs|CUDA graph is not supported for .{1,80}? on ROCm yet")

CAPTURE_SKIPPED: Final = re.compile(r"Skipping CUDA graph capture\.")
CAPTURE_SKIPPED_V2: Final = re.compile(r"Skipping encoder and decoder CUDA graph capture\.")
CAPTURE_FINISHED: Final = re.compile(r"Graph capturing finished in (?P<seconds>\d+) secs?")
TARGET_BAR: Final = re.compile(
    r"Capturing CUDA graphs \((?:(?P<routine>decode|mixed prefill-decode), )?(?P<mode>[A-Z_]+)\)"
)
OLD_BAR: Final = re.compile(r"Capturing CUDA graph shapes: ")
ENCODER_CAPTURE: Final = re.compile(r"Capturing \d+ encoder CUDA graphs")
DRAFTER_BAR: Final = re.compile(
    r"Capturing (?P<name>(?!CUDA\b)[\w-]{1,40}(?: [\w-]{1,40}){0,2}) CUDA graphs \((?P<mode>[A-Z_]+)\)"
)
PROFILED: Final = re.compile(r"Profiling CUDA graph memory: (?P<modes>.{1,200})")
PROFILED_PART: Final = re.compile(r"(?P<mode>[A-Z_]+)=\d{1,6} \(largest=(?P<largest>\d{1,7})\)")
PROGRESS: Final = re.compile(r"(?:Loading safetensors checkpoint shards|Capturing .{1,60}): +\d{1,3}% ?")
DRAFTER_EAGER: Final = re.compile(r"draft attention \(\w+\) does not support full CUDA graphs")
RUNTIME_ROW: Final = re.compile(
    r"\| *\d{1,9} *\| *\d{1,9} *\| *-?\d{1,9} *\| *(?:CUDAGraphMode\.)?(?P<mode>NONE|PIECEWISE|FULL) *\| "
    r"*(?P<count>\d{1,12}) *\|"
)

BACKEND: Final = re.compile(
    r"Using (?:AttentionBackendEnum\.)?(?P<name>[A-Z][A-Z0-9_]{2,60}) (?:attention )?backend(?: out of potential "
    r"backends|\.|$)"
    r"|Using (?P<words>(?:Flash ?Attention|FlashInfer|Triton|FlashMLA|CUTLASS MLA|Triton MLA|XFormers)(?:[- ]2)?) "
    r"backend"
    r"(?: on V1 engine)?(?: \(only supports v1\))?\.?$"
)
KV_TOKENS: Final = re.compile(r"KV cache size: (?P<tokens>[\d,]{1,20}) tokens")
DRAFTER_SHORT: Final = re.compile(
    r"draft model's max_model_len \((?P<draft>\d{1,9})\) is smaller than the target model's "
    r"\((?P<target>\d{1,9})\).{1,200}?"
    r"reducing max_model_len to (?P<to>\d{1,9})"
)
TABLE_DROPPED_DP: Final = re.compile(r"Dynamic speculative decoding is not supported with data parallelism")
TABLE_DROPPED_METHOD: Final = re.compile(
    r"Dynamic speculative decoding is not supported with the '(?P<method>[^']{1,60})' speculative method on Model "
    r"Runner V1"
)
SCHEDULED_CUT: Final = re.compile(r"max_num_scheduled_tokens is set to \d+ based on the speculative decoding settings")

READY: Final = re.compile(r"Application startup complete")
SHUT_DOWN: Final = re.compile(r"shutdown triggered|Shutting down$|Received signal|Gracefully stopping")
DIED: Final = re.compile(
    r"EngineCore failed to start|Engine core initialization failed|EngineCore encountered a fatal error"
    r"|WorkerProc hit an exception|EngineCore died unexpectedly|EngineDeadError|AsyncLLM output_handler failed"
)
DIED_OF: Final = re.compile(r"(?:^|\] )\s*(?P<error>(?:\w+\.)*\w*(?:Error|Exception): .{1,300})$")

ITERATION: Final = re.compile(
    r"Iteration\(\d+\): (?P<context>\d{1,9}) context requests, \d{1,9} context tokens, (?P<sequences>\d{1,9}) "
    r"generation "
    r"requests, (?P<tokens>\d{1,9}) generation tokens, iteration elapsed time: (?P<ms>\d{1,12}(?:\.\d{1,9})?) ms"
)
LOAD: Final = re.compile(
    r"Engine \d{1,6}: Avg prompt throughput: (?P<prompt>[\d.]{1,20}) tokens/s, Avg generation throughput: "
    r"(?P<generation>[\d.]{1,20}) tokens/s, Running: (?P<running>\d{1,9}) reqs"
)
DRAFTS: Final = re.compile(
    r"SpecDecoding metrics: .{0,20}?(?:Mean acceptance length: (?P<length>[\d.]{1,20}), )"
    r".{0,120}?Accepted: (?P<accepted>\d{1,15}) tokens, Drafted: (?P<drafted>\d{1,15}) tokens, "
    r"Per-position acceptance rate: (?P<rates>[\d., ]{1,2000}), "
)

MODES_BY_NUMBER: Final = {
    "0": "NONE",
    "1": "PIECEWISE",
    "2": "FULL",
    "2,0": "FULL_DECODE_ONLY",
    "2,1": "FULL_AND_PIECEWISE",
}
"""As JSON prints the mode: a number, or a pair for decode and mixed steps."""

EXCLUSIVE: Final = re.compile(
    rb"LLM engine \(v|vLLM API server version|non-default args: \{|VLLM::|"
    rb"\[(?:core|loggers|gpu_model_runner|gpu_worker|kv_cache_utils|api_utils|cli_args)\.py:\d+\]"
)
"""What no other engine writes."""

ANY: Final = re.compile(
    b"|".join(
        (
            rb"LLM engine \(v",
            rb"non-default args",
            rb"args: Namespace",
            rb"CUDA [Gg]raph",
            rb"CUDAGraph",
            rb"udagraph",
            rb"KV cache size",
            rb"Graph capturing",
            rb"peculative",
            rb"SpecDecoding",
            rb"Iteration\(",
            rb"Engine \d+: Avg",
            rb"startup complete",
            rb" backend",
            rb"Model Runner",
            rb"Enforce eager",
            rb"checkpoint shards",
            rb"draft model's",
            rb"hutdown",
            rb"Shutting down",
            rb"EngineCore",
            rb"EngineDeadError",
            rb"Engine core init",
            rb"WorkerProc hit",
            rb"output_handler failed",
            rb"Error: ",
            rb"Exception: ",
            rb"\| *(?:NONE|PIECEWISE|FULL) *\|",
            rb"vLLM API server",
        )
    )
)
"""A line that holds none of these is not looked at."""
