"""Figures of one run held against each other: a run that contradicts itself is refused, whichever figure is wrong."""

from __future__ import annotations

from adaptive_gamma.bench.file_keys import file_key
from adaptive_gamma.bench.row import SweepRow
from adaptive_gamma.errors import SweepError

__all__ = ["check_agreement"]

MOST_THROUGHPUT_GAP = 0.1
MOST_MEDIAN_TO_MEAN = 10.0
MOST_BATCH_TO_ASKED = 1.5
EXACT_THROUGHPUT = {"vllm-bench-serve", "sglang-bench-serving"}
"""Formats that divide the tokens of the completed requests by the run's duration; others count in windows, or only
the answers of known length."""


def check_agreement(row: SweepRow) -> None:
    """Raises SweepError that names two figures of the file which cannot both be true.

    The throughput must be the tokens over the duration; median and mean time per token must be of one size; and
    requests that decode at the measured pace (throughput times time per token) cannot be many more than were let in.
    """
    if row.step is not None:
        return
    _check_throughput(row)
    median, mean = row.tpot_p50_s, row.tpot_mean_s
    if median and mean and max(median / mean, mean / median) >= MOST_MEDIAN_TO_MEAN:
        raise _error(
            row,
            "tpot_p50_s",
            f"{median:g} s a token, but {file_key(row, 'tpot_mean_s')} says {mean:g} s: "
            f"{max(median / mean, mean / median):.3g} times apart",
        )
    if row.output_tokens_per_s is None or row.concurrency_asked is None:
        return
    # The first token of an answer is none of the time per token.
    decoded = 1.0 if row.output_tokens is None else max(1.0 - 1.0 / max(row.output_tokens, 1.0), 0.0)
    for field, seconds in (("tpot_p50_s", median), ("tpot_mean_s", mean)):
        batch = row.output_tokens_per_s * decoded * (seconds or 0.0)
        if batch > MOST_BATCH_TO_ASKED * row.concurrency_asked:
            raise _error(
                row,
                field,
                f"{seconds:g} s a token at {row.output_tokens_per_s:g} tokens a second "
                f"({file_key(row, 'output_tokens_per_s')}) is {batch:.3g} requests decoding at once, but "
                f"{file_key(row, 'concurrency_asked')} let in {row.concurrency_asked}",
            )


def _check_throughput(row: SweepRow) -> None:
    if row.format not in EXACT_THROUGHPUT or not (row.duration_s and row.output_tokens and row.output_tokens_per_s):
        return
    counted = row.output_tokens * row.completed / row.duration_s
    if abs(row.output_tokens_per_s - counted) > MOST_THROUGHPUT_GAP * counted:
        raise _error(
            row,
            "output_tokens_per_s",
            f"{row.output_tokens_per_s:g} tokens a second, but {row.output_tokens * row.completed:.0f} tokens "
            f"({file_key(row, 'output_tokens')}) in {row.duration_s:g} s are {counted:g}",
        )


def _error(row: SweepRow, field: str, problem: str) -> SweepError:
    return SweepError(str(row.source), file_key(row, field), problem)
