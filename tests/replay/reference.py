"""One replica, as plainly as it can be written: every step, every sequence, every token."""

from __future__ import annotations

import numpy as np

from adaptive_gamma.simulation.replay.gamma_choice import GammaChoice
from adaptive_gamma.simulation.replay.pricing import StepPrices
from adaptive_gamma.simulation.replay.replica import RunLog
from adaptive_gamma.simulation.replay.workload import AcceptanceDraws, Workload


def run_reference(
    workload: Workload, draws: AcceptanceDraws, prices: StepPrices, choice: GammaChoice, max_num_seqs: int, longest: int
) -> tuple[RunLog, int]:
    """(times, output tokens given)."""
    accepted = np.diff(draws.prefix(longest)) - 1
    log = RunLog.empty(len(workload))
    waiting = list(range(len(workload)))
    prompts: dict[int, int] = {}
    decoding: dict[int, int] = {}
    given = 0
    clock = 0.0
    key = choice.at(1, [0] * len(workload.classes), None)
    while waiting or prompts or decoding:
        if not prompts and not decoding:
            clock = max(clock, workload.arrival_s[waiting[0]])
        while waiting and workload.arrival_s[waiting[0]] <= clock and len(prompts) + len(decoding) < max_num_seqs:
            request = waiting.pop(0)
            prompts[request] = max(workload.prompt_tokens[request], 1)
        batch = len(decoding)
        if batch:
            counts = [0] * len(workload.classes)
            context = 0
            for request in decoding:
                counts[workload.class_of[request]] += 1
                context += workload.prompt_tokens[request] + workload.output_tokens[request] // 2
            mean = context / batch if prices.by_context else None
            key = choice.at(batch, counts, mean)
            seconds = prices.seconds(key, batch, mean)
        else:
            mean = None
            seconds = prices.seconds(min(key, 0), 1, None)
        budget = prices.prefill_budget
        read: list[int] = []
        for request in list(prompts):
            part = min(budget, prompts[request])
            budget -= part
            prompts[request] -= part
            if prompts[request] == 0 and part:
                read.append(request)
        tokens = prices.prefill_budget - budget
        extra = prices.prefill_seconds(key if batch else min(key, 0), max(batch, 1), mean, tokens) if tokens else 0.0
        clock += seconds + extra
        for request in list(decoding):
            tokens = 1
            if key > 0:
                tokens += min(int(accepted[draws.start[request] + log.decode_steps[request]]), key)
            tokens = min(tokens, decoding[request])
            given += tokens
            decoding[request] -= tokens
            log.decode_steps[request] += 1
            if not decoding[request]:
                del decoding[request]
                log.finished_s[request] = clock
        for request in read:
            del prompts[request]
            log.first_token_s[request] = clock
            given += min(workload.output_tokens[request], 1)
            if workload.output_tokens[request] > 1:
                decoding[request] = workload.output_tokens[request] - 1
            else:
                log.finished_s[request] = clock
    return log, given
