"""Loaded inside of vLLM's CPU build, for tests only: sampling under speculation as the GPU's kernels have it.

vLLM 0.32 on a CPU refuses ``rejection_sample_method: synthetic``, and drops what it expands for buffers that are not
int64, so that sampled requests under speculation get temperatures out of unused memory (vLLM issue #55005).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

KERNELS = "vllm.v1.sample.rejection_sampler."


def accept_by_rate(
    output: Any, ends: Any, drafts: Any, rejected: Any, bonus: Any, left_out: Any, uniform: Any, rates: Any
) -> None:
    """Accept each draft token with its position's conditional rate. All per request: a row of ``output``."""
    bounds = [0, *ends.tolist()]
    chances, tokens, instead, extra = uniform.tolist(), drafts.tolist(), rejected.tolist(), bonus.flatten().tolist()
    rate_of = rates.tolist()
    for row, (start, end) in enumerate(pairwise(bounds)):
        if left_out is not None and left_out[row]:
            continue
        for position in range(end - start):
            at = start + position
            if tokens[at] >= 0 and chances[at] < rate_of[position]:
                output[row, position] = tokens[at]
            else:
                output[row, position] = instead[at]
                break
        else:
            output[row, end - start] = extra[row]


def register() -> None:
    """Put the three kernels in the place of vLLM's. Loaded once in each process; a second time does nothing."""
    from vllm.triton_utils import dispatcher
    from vllm.utils import cpu_triton_utils as kernels

    greedy_before, random_before = (
        kernels._rejection_greedy_sample_kernel_impl,
        kernels._rejection_random_sample_kernel_impl,
    )
    if getattr(greedy_before, "for_tests", False):
        return

    def greedy(
        output_token_ids: Any, cu_num_draft_tokens: Any, draft_token_ids: Any, target_argmax: Any,
        bonus_token_ids: Any, is_greedy: Any, max_spec_len: Any, uniform_probs: Any = None,
        synthetic_conditional_rates: Any = None, SYNTHETIC_MODE: bool = False,
    ) -> None:  # fmt: skip
        if synthetic_conditional_rates is None:
            greedy_before(
                output_token_ids, cu_num_draft_tokens, draft_token_ids, target_argmax, bonus_token_ids, is_greedy,
                max_spec_len,
            )  # fmt: skip
            return
        accept_by_rate(
            output_token_ids, cu_num_draft_tokens, draft_token_ids, target_argmax, bonus_token_ids,
            None if is_greedy is None else ~is_greedy, uniform_probs, synthetic_conditional_rates,
        )  # fmt: skip

    def random(
        output_token_ids: Any, cu_num_draft_tokens: Any, draft_token_ids: Any, draft_probs: Any, target_probs: Any,
        bonus_token_ids: Any, recovered_token_ids: Any, uniform_probs: Any, is_greedy: Any, max_spec_len: Any,
        vocab_size: Any, synthetic_conditional_rates: Any = None, NO_DRAFT_PROBS: bool = False,
        SYNTHETIC_MODE: bool = False,
    ) -> None:  # fmt: skip
        if synthetic_conditional_rates is None:
            random_before(
                output_token_ids, cu_num_draft_tokens, draft_token_ids, draft_probs, target_probs, bonus_token_ids,
                recovered_token_ids, uniform_probs, is_greedy, max_spec_len, vocab_size, None, NO_DRAFT_PROBS, False,
            )  # fmt: skip
            return
        accept_by_rate(
            output_token_ids, cu_num_draft_tokens, draft_token_ids, recovered_token_ids, bonus_token_ids, is_greedy,
            uniform_probs, synthetic_conditional_rates,
        )  # fmt: skip

    def expand(
        output: Any, input_val: Any, cu_num_tokens: Any, replace_from: Any, replace_to: Any, MAX_NUM_TOKENS: Any = None
    ) -> None:
        ends = cu_num_tokens.to(torch.int64)
        counts = torch.diff(ends, prepend=ends.new_zeros(1))
        there = torch.as_tensor(replace_to, dtype=input_val.dtype)
        values = torch.where(input_val == replace_from, there, input_val)
        output.copy_(values.repeat_interleave(counts).to(output.dtype))

    greedy.for_tests = True  # type: ignore[attr-defined]  # a mark on a function
    kernels._rejection_greedy_sample_kernel_impl = greedy
    kernels._rejection_random_sample_kernel_impl = random
    kernels._expand_kernel_impl = expand
    if KERNELS + "expand_kernel" in dispatcher._registry:
        dispatcher.register_kernels(
            {
                KERNELS + "expand_kernel": expand,
                KERNELS + "rejection_greedy_sample_kernel": greedy,
                KERNELS + "rejection_random_sample_kernel": random,
            }
        )
