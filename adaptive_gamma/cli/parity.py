"""``adaptive-gamma parity``: do a plain replica and a speculative one say the same?"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from pydantic import SecretStr

from adaptive_gamma.bench.parity import (
    ALPHA,
    TOLERANCE,
    Compared,
    Comparison,
    Form,
    Replica,
    fewest_prompts,
    judge,
    open_replica,
    outcome_of,
    parity_document,
    parity_lines,
    run_parity,
)
from adaptive_gamma.bench.parity.verdict import NEAR
from adaptive_gamma.bench.sweep import BUILTIN, ArmSpec, Prompt, open_dataset
from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.sweep import api_key_from, arm_specs
from adaptive_gamma.cli.until_signal import until_signal
from adaptive_gamma.engines import DIALECTS
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError

__all__ = ["command"]

API_KEY_VARIABLE = "ADAPTIVE_GAMMA_ENGINE_API_KEY"
_EXIT = {"no_difference_found": 0, "difference_found": 1, "could_not_look": 2}


@click.command(
    "parity",
    short_help="Compare the greedy outputs of a plain and a speculative replica.",
    epilog=f"""\b
The first --url is the reference, and should be plain: it answers each prompt
three times, and what differs then is the noise floor. Alone, it gets just that.
The key for the engines is read from {API_KEY_VARIABLE},
or from the variable named by --api-key-env.

\b
Exit codes: 0 no difference found above the noise floor, 1 a difference found,
2 it could not look (a part of the prompts is no verdict), 130 and 143 ended by
SIGINT and SIGTERM.""",
)
@click.option(
    "--url", "urls", multiple=True, required=True, metavar="[NAME=]URL",
    help="The reference, then each candidate.",
)  # fmt: skip
@click.option(
    "--prompts", "dataset", default=BUILTIN, show_default=True, metavar="FILE|builtin",
    help='Our own of code and prose, or JSON lines {"prompt": ...} or {"messages": [...]}, with "class".',
)  # fmt: skip
@click.option("--class", "classes", multiple=True, metavar="NAME", help="Only prompts of this class. Repeatable.")
@click.option("--count", type=click.IntRange(1, 1_000_000), help="Of each class, at most so many prompts.")
@click.option("--endpoint", type=click.Choice(["chat", "completions"]), default="chat", show_default=True)
@click.option("--output-tokens", type=click.IntRange(1, 8192), default=128, show_default=True, help="Longest answer.")
@click.option(
    "--concurrency", type=click.IntRange(2, 1024), default=8, show_default=True,
    help="Requests at once in the runs that change the batch's shape.",
)  # fmt: skip
@click.option(
    "--logprobs", "likeliest", type=click.IntRange(0, 20), default=5, show_default=True,
    help="Likeliest tokens asked for at each place; 0 compares texts alone.",
)  # fmt: skip
@click.option(
    "--alpha", type=FiniteFloat(0, 0.5, min_open=True, max_open=True), default=ALPHA, show_default=True,
    help="Probability of a false alarm, over all tests of a candidate.",
)  # fmt: skip
@click.option(
    "--tolerance", type=FiniteFloat(0, 10), default=TOLERANCE, show_default=True, metavar="NATS",
    help="Mean difference of log-probabilities beyond the floor that is not called one.",
)  # fmt: skip
@click.option(
    "--model", "models", multiple=True, help="One for all, or one for each --url. Default: the only one served."
)
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(["auto", *sorted(DIALECTS)]),
    help="One for all, or one for each --url. Default: found out.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=FiniteFloat(0, 1e6, min_open=True, max_open=True), default=120.0,
    show_default=True, metavar="S", help="For each request.",
)  # fmt: skip
@click.option("--api-key-env", metavar="VARIABLE", help="Environment variable that holds the engines' key.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def command(**options: Any) -> None:
    """Ask the same prompts of a plain replica and of others, greedily, and say whether their answers differ by more
    than the plain one's own.

    The reference answers every prompt three times, the third time with several open at once, since the shape of a
    batch alone changes floating point. A candidate is different where it is further from the reference than the
    reference from itself, by paired tests over prompts that do not depend on how many drafts were accepted. That
    nothing was found is not said of differences too small or too rare to be seen; how small, is told.
    """
    try:
        code = _compare(options)
    except AdaptiveGammaError as error:
        click.echo(f"adaptive-gamma: {error}", err=True)
        code = _EXIT["could_not_look"]
    sys.exit(code)


def _compare(options: dict[str, Any]) -> int:
    endpoint, alpha, at_once = options["endpoint"], options["alpha"], options["concurrency"]
    specs = arm_specs("parity", options["urls"], options["engines"], options["models"])
    dataset = open_dataset(options["dataset"], endpoint).only(options["classes"])
    prompts = [prompt for group in dataset.by_class.values() for prompt in group[: options["count"]]]
    if len(prompts) < fewest_prompts(alpha):
        raise ConfigurationError(
            "parity",
            "--prompts",
            f"{len(prompts)} prompts can show nothing at --alpha {alpha:g}: were all different, chance would be as "
            f"good an account; it takes {fewest_prompts(alpha)}, and more to see what is rare",
        )
    form = Form(endpoint, options["output_tokens"], options["likeliest"], options["timeout_s"])
    key = api_key_from("parity", options["api_key_env"])
    comparison = Comparison(len(prompts), candidates=[Compared() for _ in specs[1:]])
    display = _Progress()
    work = _Work(specs, form, prompts, comparison, display, at_once, key)
    ended_by = asyncio.run(until_signal(work.run()))
    if ended_by is not None:
        comparison.stopped = signal.Signals(ended_by).name
    if len(work.replicas) < len(specs):  # a signal before the first prompt
        return 128 + (ended_by or signal.SIGINT)
    verdicts = [judge(compared, comparison, alpha, options["tolerance"]) for compared in comparison.candidates]
    document = parity_document(
        comparison, work.replicas, verdicts,
        form=form, at_once=at_once, alpha=alpha, tolerance=options["tolerance"], remarks=work.remarks,
    )  # fmt: skip
    if options["as_json"]:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        for line in parity_lines(document):
            click.echo(line)
    return _EXIT[outcome_of(comparison, verdicts)] if ended_by is None else 128 + ended_by


class _Work:
    """Open the replicas, then compare them."""

    def __init__(
        self,
        specs: Sequence[ArmSpec],
        form: Form,
        prompts: Sequence[Prompt],
        comparison: Comparison,
        display: _Progress,
        at_once: int,
        key: SecretStr | None,
    ) -> None:
        self.replicas: list[Replica] = []
        self.remarks: list[str] = []
        self._specs = specs
        self._form = form
        self._prompts = prompts
        self._comparison = comparison
        self._display = display
        self._at_once = at_once
        self._key = key

    async def run(self) -> None:
        """Raises AdaptiveGammaError where a replica cannot be asked at all."""
        try:
            for place, spec in enumerate(self._specs):
                replica = await open_replica(spec, self._form, clock=time.perf_counter, api_key=self._key)
                replica.arm.name = replica.arm.name or ("reference" if place == 0 else f"candidate-{place}")
                self.replicas.append(replica)
                if (remark := await replica.probe(self._prompts[0])) is not None:
                    self.remarks.append(remark)
                replica.arm.learn(await replica.arm.reading())
            self._remark()
            await run_parity(
                self._comparison, self.replicas[0], self.replicas[1:], self._prompts,
                at_once=self._at_once, near=NEAR, observer=self._display,
            )  # fmt: skip
        finally:
            for replica in self.replicas:
                replica.close()

    def _remark(self) -> None:
        reference, *candidates = self.replicas
        if reference.arm.report.speculative:
            self.remarks.append(
                f"the reference, {reference.arm.described}, speculates: what is called the noise floor holds its own "
                "differences; give a plain replica first"
            )
        for candidate in candidates:
            if candidate.arm.report.model != reference.arm.report.model:
                self.remarks.append(
                    f"{candidate.name} says it serves {candidate.arm.report.model!r} and {reference.name} "
                    f"{reference.arm.report.model!r}: a difference may be that of two models"
                )


class _Progress:
    """A line on standard error after each group of prompts, where that is no terminal's screenful of them."""

    def progressed(self, done: int, total: int) -> None:
        click.echo(f"[{done}/{total}] prompts", err=True)
