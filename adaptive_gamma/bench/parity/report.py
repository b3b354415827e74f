"""The comparison in words, and as a document for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adaptive_gamma.bench.parity.asking import Form, Replica
from adaptive_gamma.bench.parity.run import Comparison, Example, Runs
from adaptive_gamma.bench.parity.verdict import CandidateVerdict, TestResult, outcome_of, unfinished
from adaptive_gamma.bench.sweep.words import fit_to_show

__all__ = ["PARITY_SCHEMA", "parity_document", "parity_lines"]

PARITY_SCHEMA = "adaptive-gamma/parity/v1"
_PROMPT = 100


def parity_document(
    comparison: Comparison,
    replicas: Sequence[Replica],
    verdicts: Sequence[CandidateVerdict],
    *,
    form: Form,
    at_once: int,
    alpha: float,
    tolerance: float,
    remarks: Sequence[str],
) -> dict[str, Any]:
    """Everything, for ``--json``. ``replicas`` are the reference and the candidates in their order."""
    return {
        "schema": PARITY_SCHEMA,
        "outcome": outcome_of(comparison, verdicts),
        "settings": {
            "endpoint": form.endpoint,
            "output_tokens": form.output_tokens,
            "likeliest_tokens": form.likeliest,
            "concurrency": at_once,
            "alpha": alpha,
            "tolerance_nats": tolerance,
        },
        "prompts": {
            "asked": comparison.prompts,
            "done": comparison.done,
            "whole": comparison.floor_prompts,
            "partial": unfinished(comparison, comparison.floor_prompts),
        },
        "remarks": list(remarks),
        "failures": [
            {"replica": name, "reason": reason, "count": count, "detail": comparison.failure_detail[name, reason]}
            for (name, reason), count in sorted(comparison.failures.items())
        ],
        "reference": {**_replica(replicas[0]), "noise_floor": _runs(comparison.floor, comparison.floor_prompts)},
        "candidates": [
            {
                **_replica(replica),
                **_runs(compared.runs, len(compared.pairs)),
                "outcome": verdict.outcome,
                "verdict": verdict.why,
                "tests": [_test(test) for test in verdict.tests],
                "parted": compared.parted,
                "parted_with_known_margin": compared.parted_known,
                "parted_at_near_ties": compared.parted_near,
                "divergences": [_example(example) for example in compared.examples],
            }
            for replica, compared, verdict in zip(replicas[1:], comparison.candidates, verdicts, strict=True)
        ],
    }


def parity_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The document as lines to read."""
    reference, settings, prompts = document["reference"], document["settings"], document["prompts"]
    yield f"reference  {_described(reference)}"
    for candidate in document["candidates"]:
        yield f"candidate  {_described(candidate)}"
    yield from (f"note: {remark}" for remark in document["remarks"])
    for failure in document["failures"]:
        yield f"failed: {failure['count']} requests to {failure['replica']}: {failure['reason']}: {failure['detail']}"
    if prompts["partial"]:
        yield f"partial: {prompts['partial']}"
    yield ""
    floor = reference["noise_floor"]
    yield (
        f"noise floor, {reference['name']} against itself, {floor['prompts']} prompts: the same text again in "
        f"{floor['same_alone']} one at a time, in {floor['same_at_once']} with {settings['concurrency']} at once"
    )
    for candidate in document["candidates"]:
        yield ""
        yield (
            f"{candidate['name']} against {reference['name']}, {candidate['prompts']} prompts: the same text in "
            f"{candidate['same_alone']} one at a time, in {candidate['same_at_once']} with {settings['concurrency']} "
            "at once"
        )
        if candidate["divergences"]:
            yield from _divergence_lines(candidate["divergences"][0])
        yield from (_test_line(test) for test in candidate["tests"])
        yield f"{candidate['name']}: {candidate['verdict']}"


def _divergence_lines(first: Mapping[str, Any]) -> Iterator[str]:
    token = "" if first["token"] is None else f", token {first['token']}"
    where = " (with several at once only)" if first["at_once"] else ""
    yield f"  first divergence: prompt {first['prompt']} ({first['class']}) {_quoted(first['prompt_text'])}{where}"
    yield f"    at character {first['character']}{token}, after {_quoted(first['before'])}"
    yield f"    reference: {_quoted(first['reference'])}"
    yield f"    candidate: {_quoted(first['candidate'])}"
    if first["margin"] is not None:
        least = "at least " if first["margin_at_least"] else ""
        yield f"    the reference holds its own token {least}{first['margin']:.3g} nats likelier than the other"


def _test_line(test: Mapping[str, Any]) -> str:
    if test["not_made"] is not None:
        return f"  {test['name']}: not tested, {test['not_made']}"
    detectable = "none" if test["detectable"] is None else f"{test['detectable']:.3g}"
    found = "; DIFFERENT" if test["found"] else ""
    return (
        f"  {test['name']}: {test['candidate']:.3g} against a floor of {test['floor']:.3g} {test['unit']} "
        f"({test['prompts']} prompts), p {test['p_adjusted']:.2g}, detectable {detectable}{found}"
    )


def _described(replica: Mapping[str, Any]) -> str:
    gamma = replica["gamma"]
    kind = {True: "speculative", False: "plain", None: "speculation unknown"}[replica["speculative"]]
    shown = f", gamma {gamma}" if gamma else ""
    return (
        f"{replica['name']}: {replica['url']}, {replica['engine'] or 'engine unknown'}, model {replica['model']}, "
        + (kind + shown)
    )


def _replica(replica: Replica) -> dict[str, Any]:
    report = replica.arm.report
    return {
        "name": replica.name,
        "url": replica.arm.spec.url,
        "engine": report.engine,
        "engine_version": report.engine_version,
        "model": report.model,
        "speculative": report.speculative,
        "gamma": report.gamma,
    }


def _runs(runs: Runs, prompts: int) -> dict[str, Any]:
    return {
        "prompts": prompts,
        "same_alone": runs.same_alone,
        "same_at_once": runs.same_at_once,
        "tokens_listed": runs.tokens,
        "tokens_with_logprob": runs.figures,
    }


def _test(test: TestResult) -> dict[str, Any]:
    return {
        "name": test.name,
        "question": test.question,
        "unit": test.unit,
        "method": "exact sign test (McNemar)" if test.name == "texts" else "sign-flip permutation of the mean",
        "prompts": test.prompts,
        "candidate": test.candidate,
        "floor": test.floor,
        "effect": test.effect,
        "p": test.p,
        "p_adjusted": test.p_adjusted,
        "detectable": test.detectable,
        "found": test.found,
        "not_made": test.not_made,
    }


def _example(example: Example) -> dict[str, Any]:
    prompt, divergence = example.prompt, example.divergence
    text = prompt.text if prompt.text is not None else json.dumps(prompt.messages, ensure_ascii=False)
    return {
        "prompt": example.number,
        "class": prompt.request_class,
        "prompt_text": text[:_PROMPT],
        "at_once": example.at_once,
        "character": divergence.character,
        "token": divergence.token,
        "before": divergence.before,
        "reference": divergence.reference,
        "candidate": divergence.candidate,
        "margin": divergence.margin,
        "margin_at_least": divergence.margin_at_least,
    }


def _quoted(text: str) -> str:
    """Quoted, with line breaks as escapes and nothing that moves a cursor."""
    return fit_to_show(json.dumps(text, ensure_ascii=False), 2 * _PROMPT)
