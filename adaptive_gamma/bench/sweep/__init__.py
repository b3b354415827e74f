"""The sweep of our own: the same prompts to every arm in turn, over and over, against any OpenAI endpoint."""

from adaptive_gamma.bench.sweep.arm import Arm, ArmReport, ArmSpec, open_arm
from adaptive_gamma.bench.sweep.dataset import BUILTIN, Endpoint, Prompt, PromptSet, builtin_prompts, open_dataset
from adaptive_gamma.bench.sweep.journal import JOURNAL_FILES, Journal, run_cell
from adaptive_gamma.bench.sweep.measured import FORMAT
from adaptive_gamma.bench.sweep.report import summary_lines, summary_tables
from adaptive_gamma.bench.sweep.run import Observer, Sweep
from adaptive_gamma.bench.sweep.settings import CLAIM_REPEATS, RunKey, SweepSettings
from adaptive_gamma.bench.sweep.summary import SUMMARY_SCHEMA, median_interval, summarize

__all__ = [
    "BUILTIN",
    "CLAIM_REPEATS",
    "FORMAT",
    "JOURNAL_FILES",
    "SUMMARY_SCHEMA",
    "Arm",
    "ArmReport",
    "ArmSpec",
    "Endpoint",
    "Journal",
    "Observer",
    "Prompt",
    "PromptSet",
    "RunKey",
    "Sweep",
    "SweepSettings",
    "builtin_prompts",
    "median_interval",
    "open_arm",
    "open_dataset",
    "run_cell",
    "summarize",
    "summary_lines",
    "summary_tables",
]
