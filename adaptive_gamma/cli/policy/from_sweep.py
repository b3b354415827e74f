"""``adaptive-gamma policy build --from``: import a sweep, calibrate, build, and say what it all rests on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from adaptive_gamma.bench import ImportFinding, parse_arms, read_sweep
from adaptive_gamma.bench.build import BuiltPolicy, PolicyWishes, judged_sweep, policy_from_sweep
from adaptive_gamma.bench.fit_words import contradictions, error_words
from adaptive_gamma.bench.measured_points import policy_class
from adaptive_gamma.cli.policy.options import hardware_option
from adaptive_gamma.cli.whole_file import refuse_input
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import Policy
from adaptive_gamma.policy.provenance import PROVENANCES, provenance_ranges
from adaptive_gamma.roofline import ModelShape, NumberFormat
from adaptive_gamma.roofline.calibrate import Calibration, Machine, ModelNumbers, RankedModel

__all__ = ["PolicyWishes", "build_from_sweep", "machine_of", "numbers_of"]

MOST_FINDINGS = 12
"""Kinds of remarks shown; a folder of a thousand files must not hide the first of them."""
_VARIES = re.compile(r"'[^']*'|\d+(?:\.\d+)?")


def machine_of(gpu: str | None, weights: NumberFormat) -> Machine | None:
    """The peaks of the accelerator that ``--gpu`` names."""
    return None if gpu is None else Machine.of(hardware_option(gpu), weights)


def numbers_of(shape: ModelShape | None, weights: NumberFormat) -> ModelNumbers | None:
    """A model's sizes as served. Raises ConfigurationError where its configuration does not tell them."""
    if shape is None:
        return None
    try:
        return ModelNumbers.of(shape, 2.0 if weights == "bf16" else 1.0)
    except ValueError as error:
        raise ConfigurationError("--model", "", str(error)) from error


def build_from_sweep(
    paths: Sequence[str],
    wishes: PolicyWishes,
    *,
    arms: Sequence[str],
    force_random: bool,
    only_model: str | None,
    all_findings: bool = False,
    output: str | None = None,
    say: Callable[[str], None],
) -> Policy:
    """The policy; ``say`` takes the report, line by line.

    Raises ConfigurationError of every kind the parts raise, and where ``output`` is a file that rows were read from.
    """
    sweep = read_sweep(
        [Path(path) for path in paths], force_random=force_random, arms=parse_arms(arms), only_model=only_model
    )
    refuse_input("--output", output, {row.source.file for row in sweep.rows})
    say(f"{len(sweep.rows)} rows from {len({row.source.file for row in sweep.rows})} files")
    judged = judged_sweep(sweep, wishes)
    _say_classes({row.request_class for row in judged.observations.rows}, say)
    _say_findings(judged.findings, say, all_of_them=all_findings)
    built = policy_from_sweep(judged, wishes)
    _say_models(built.ranked, say)
    _say_calibration(built.calibration, say)
    _say_provenance(built, say)
    return built.policy


def _say_classes(named: Iterable[str | None], say: Callable[[str], None]) -> None:
    """Which of the policy's classes those of the files are, where they are called otherwise."""
    for name in sorted(named, key=lambda each: each or ""):
        taken = policy_class(name)
        if name is None:
            say(f"note: runs of no class are class {taken} of the policy")
        elif taken != name:
            say(f"note: runs of class {name} are class {taken} of the policy")


def _say_findings(findings: Sequence[ImportFinding], say: Callable[[str], None], *, all_of_them: bool = False) -> None:
    """Each kind of remark once, with how often it was made and where first, or all of them; the worst first."""
    for kind in ("refused", "note", "skipped"):
        if all_of_them:
            for finding in findings:
                if finding.kind == kind:
                    say(f"{kind}: {finding}")
            continue
        groups: dict[tuple[str, str], list[ImportFinding]] = {}
        for finding in findings:
            if finding.kind == kind:
                groups.setdefault((finding.field, _VARIES.sub("", finding.problem)), []).append(finding)
        for number, group in enumerate(groups.values()):
            if number == MOST_FINDINGS:
                say(f"{kind}: {len(groups) - number} more kinds of remarks (all: --all-findings)")
                break
            more = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
            say(f"{kind}: {group[0]}{more}")


def _say_models(ranked: Sequence[RankedModel], say: Callable[[str], None]) -> None:
    if not ranked:
        return
    say("models by their error on loads left out:")
    refused = set()
    for one in ranked:
        name = f"{one.family.name} with {one.drafter} drafter" if one.drafter else one.family.name
        if one.left_out is not None:
            say(f"  {name}: mean {one.left_out.mean:.1%}, worst {one.left_out.worst:.1%}{_beyond(one)}")
        elif one.calibration is not None:
            error = one.calibration.mean_error
            say(f"  {name}: not judged, mean error of the fit {error:.1%} ({one.refusal}){_beyond(one)}")
        elif one.family.name not in refused:
            refused.add(one.family.name)
            say(f"  {one.family.name}: refused, {one.refusal}")


def _beyond(one: RankedModel) -> str:
    found = one.calibration
    if found is None or found.reached == len(found.residuals):
        return ""
    return f"; reaches {found.reached} of {len(found.residuals)} observations"


def _say_calibration(found: Calibration, say: Callable[[str], None]) -> None:
    drafter = f" with {found.drafter_kind} drafter" if found.drafter_kind else ""
    say(f"{found.family}{drafter}: {len(found.residuals)} observations, {error_words(found)}")
    for one in found.parameters:
        unit = f" {one.unit}" if one.unit else ""
        interval = "held" if one.held else "no interval" if one.low is None else f"{one.low:.4g} .. {one.high:.4g}"
        say(f"  {one.name} {one.value:.4g}{unit} ({interval})")
    worst = sorted(found.residuals, key=lambda one: -abs(one.relative_error))[:3]
    for residual in worst:
        seen = residual.observation
        say(f"  off by {residual.relative_error:+.1%} at batch {seen.batch:.3g}, gamma {seen.gamma} ({seen.label})")
    far = contradictions(found, places=True)
    if far is not None:
        say(f"warning: {far}")
    for note in found.notes:
        say(f"  {note}")


def _say_provenance(built: BuiltPolicy, say: Callable[[str], None]) -> None:
    policy = built.policy
    evidence = policy.evidence
    if evidence is None:
        return
    for name in policy.classes:
        for context in policy.context_buckets:
            cells: Counter[str] = Counter()
            best: Counter[str] = Counter()
            for gamma in policy.table.gammas:
                for first, last, word in provenance_ranges(evidence, name, context, gamma):
                    cells[word] += last - first + 1
                    best[word] += sum(
                        max(min(last, end) - max(first, start) + 1, 0)
                        for start, end, chosen in policy.table.classes[name][context].best_gamma
                        if chosen == gamma
                    )
            of_all = ", ".join(f"{cells[word]} {word}" for word in PROVENANCES)
            of_best = ", ".join(f"{best[word]} {word}" for word in PROVENANCES)
            say(f"{name}, context {context}: cells {of_all}; best gamma of {policy.max_batch} batches {of_best}")
