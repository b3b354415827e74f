"""``adaptive-gamma policy build``: write a policy."""

from __future__ import annotations

import click

from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.cli.policy.options import family_option, given_flags, hardware_option, model_option, whole_numbers
from adaptive_gamma.cli.whole_file import refuse_input, write_whole
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError
from adaptive_gamma.policy import (
    Policy,
    find_policy,
    lint_policy,
    policy_yaml,
    read_policy_file,
    rebuild_policy,
    starter_policy,
)
from adaptive_gamma.policy.document import parse_section
from adaptive_gamma.policy.render import policy_summary
from adaptive_gamma.policy.schema import Limits
from adaptive_gamma.policy.starter import MEASURED_ZERO_GAMMA_TAX
from adaptive_gamma.roofline import NumberFormat

__all__ = ["build_command"]


@click.command("build")
@click.option(
    "--from",
    "sweep",
    multiple=True,
    metavar="SWEEP",
    help="Result file or folder of a benchmark, of any tool known; repeat it for more.",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    metavar="LABEL=GAMMA",
    help="With --from: the gamma of an arm by its label, file or folder name; LABEL=plain has no drafter.",
)
@click.option("--only-model", metavar="NAME", help="With --from: leave out the rows of other models.")
@click.option("--force-random", is_flag=True, help="With --from: believe acceptance measured on made-up prompts.")
@click.option("--fit-acceptance", is_flag=True, help="With --from: fit acceptance that no counter tells.")
@click.option("--all-findings", is_flag=True, help="With --from: list every remark on the files, each by itself.")
@click.option("--prompts-cached", is_flag=True, help="With --from: the prompts lay in the engine's prefix cache.")
@click.option(
    "--prompt-share",
    type=FiniteFloat(0, 1e5),
    help="With --from: prompt tokens computed per output token in your traffic; the default is the sweep's.",
)
@click.option(
    "--step-time",
    type=click.Choice(["linear", "roofline", "moe", "plain_pool", "table"]),
    help="With --from: the step-time model; the default predicts left-out loads best.",
)
@click.option(
    "--allow-poor-fit", is_flag=True, help="With --from: build from a model more than 30 % off the measurements too."
)
@click.option(
    "--without-plain",
    is_flag=True,
    help="With --from: build although no engine without a drafter was measured; speed-ups over plain are extrapolated.",
)
@click.option(
    "--slo-tpot-ms",
    type=FiniteFloat(0.01, 60_000),
    metavar="MS",
    help="Time per output token that must hold; the table says up to which batch it does.",
)
@click.option("--inputs", "inputs_file", metavar="FILE", help="Rebuild the table of a policy file from its inputs.")
@click.option("--gpu", metavar="NAME", help="Accelerator, such as H100.")
@click.option("--model", metavar="CONFIG_JSON|NAME", help="A Hugging Face config.json, or a known name (Llama-3.1-8B).")
@click.option("--drafter", metavar="FAMILY", help="eagle3, eagle1, dflash, dspark, p-eagle, mtp or ngram.")
@click.option("--weights", type=click.Choice(["bf16", "fp8"]), default="bf16", show_default=True, help="Their format.")
@click.option("--max-gamma", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--min-gamma", type=click.IntRange(0, 64), default=1, show_default=True)
@click.option(
    "--max-batch",
    type=click.IntRange(1, 8192),
    default=256,
    show_default="256; with --from the largest measured",
    help="Where the table ends; an exported schedule caps the engine there.",
)
@click.option("--context", default="512,2048,8192", show_default=True, help="Context buckets in tokens, rising.")
@click.option(
    "--capture-limit",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Most tokens in a captured step; vLLM: max_cudagraph_capture_size.",
)
@click.option("--no-capture-limit", is_flag=True, help="The engine has no such limit.")
@click.option("--name", help="Name in the file; the default is made of GPU, model and drafter.")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of to standard output.")
@click.pass_context
def build_command(
    context_: click.Context,
    sweep: tuple[str, ...],
    arms: tuple[str, ...],
    only_model: str | None,
    force_random: bool,
    fit_acceptance: bool,
    all_findings: bool,
    prompts_cached: bool,
    prompt_share: float | None,
    step_time: str | None,
    allow_poor_fit: bool,
    without_plain: bool,
    slo_tpot_ms: float | None,
    inputs_file: str | None,
    gpu: str | None,
    model: str | None,
    drafter: str | None,
    weights: NumberFormat,
    max_gamma: int,
    min_gamma: int,
    max_batch: int,
    context: str,
    capture_limit: int,
    no_capture_limit: bool,
    name: str | None,
    output: str | None,
) -> None:
    """Write a policy: from a measured sweep, from hardware, model and drafter, or anew from a file's inputs."""
    slo = None if slo_tpot_ms is None else slo_tpot_ms * 1e-3
    given = given_flags(context_)
    if no_capture_limit and "capture_limit" in given:
        raise click.UsageError("--no-capture-limit goes without --capture-limit")
    if not sweep:
        for flag, present in (
            ("--arm", arms), ("--only-model", only_model), ("--force-random", force_random),
            ("--fit-acceptance", fit_acceptance), ("--prompts-cached", prompts_cached), ("--step-time", step_time),
            ("--prompt-share", prompt_share is not None), ("--all-findings", all_findings),
            ("--allow-poor-fit", allow_poor_fit), ("--without-plain", without_plain),
        ):  # fmt: skip
            if present:
                raise click.UsageError(f"{flag} goes with --from")
    # --inputs may be written anew in its place: it is the same policy with the table that follows from it.
    refuse_input("--output", output, (*sweep, model))
    if inputs_file is not None:
        ignored = [flag for name_, flag in given.items() if name_ not in ("inputs_file", "output")]
        if ignored:
            raise click.UsageError(
                f"--inputs goes without {', '.join(ignored)}: the file's inputs and limits decide; change them there"
            )
        path = find_policy(inputs_file)
        policy = rebuild_policy(read_policy_file(path), str(path))
    elif sweep:
        # Here and not above: calibration brings scipy's optimisers, and no other command should wait for them. The
        # container image leaves them out.
        try:
            from adaptive_gamma.cli.policy.from_sweep import PolicyWishes, build_from_sweep, machine_of, numbers_of
        except ModuleNotFoundError as error:
            raise ConfigurationError("--from", "", f"needs {error.name}, which is not installed here") from error

        if gpu and not model:
            raise click.UsageError("--gpu needs --model: peaks say nothing without the model's sizes")
        if prompts_cached and prompt_share is not None:
            click.echo(
                "note: --prompts-cached is what was measured, --prompt-share is your traffic: the table counts "
                f"{prompt_share:g} prompt tokens per output token",
                err=True,
            )
        if step_time == "roofline" and not (gpu and model):
            raise click.UsageError("--step-time roofline needs --gpu and --model: peaks and the model's sizes")
        shape = None if model is None else model_option(model, experts=True)
        wishes = PolicyWishes(
            name=name,
            max_gamma=max_gamma if "max_gamma" in given else None,
            min_gamma=min_gamma,
            max_batch=max_batch if "max_batch" in given else None,
            contexts=whole_numbers(context, "--context") if "context" in given else None,
            capture_limit=capture_limit if "capture_limit" in given else None,
            no_capture_limit=no_capture_limit,
            slo_tpot_seconds=slo,
            hardware_name=gpu,
            machine=machine_of(gpu, weights),
            model_name=None if shape is None else shape.name,
            numbers=numbers_of(shape, weights),
            family=None if drafter is None else family_option(drafter),
            step_time=step_time,
            allow_poor_fit=allow_poor_fit,
            without_plain=without_plain,
            prompts_cached=prompts_cached,
            prompt_share=prompt_share,
            fit_acceptance=fit_acceptance,
        )
        try:
            policy = build_from_sweep(
                sweep,
                wishes,
                arms=arms,
                force_random=force_random,
                only_model=only_model,
                all_findings=all_findings,
                output=output,
                say=lambda line: click.echo(line, err=output is None),
            )
        except AdaptiveGammaError:
            if output is not None:
                click.echo(f"{output}: nothing was written", err=True)
            raise
    else:
        if not (gpu and model and drafter):
            raise click.UsageError("give --from SWEEP, or --gpu, --model and --drafter, or --inputs FILE")
        hardware, dense, family = hardware_option(gpu), model_option(model), family_option(drafter)
        limits = parse_section(
            Limits,
            {
                "max_gamma": max_gamma,
                "min_gamma": min_gamma,
                "max_batch": max_batch,
                "context_buckets": whole_numbers(context, "--context"),
                "capture_limit_tokens": None if no_capture_limit else capture_limit,
                "zero_gamma_tax": MEASURED_ZERO_GAMMA_TAX,
                **({} if slo is None else {"slo_tpot_seconds": slo}),
            },
            "policy build",
            "limits",
        )
        policy = starter_policy(hardware, dense, family, weights, limits, name)
        for finding in lint_policy(policy):
            if finding.key.startswith("inputs."):
                click.echo(f"note: {finding}", err=True)
    text = policy_yaml(policy)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            write_whole(output, text)
        except AdaptiveGammaError:
            click.echo(f"{output}: nothing was written", err=True)
            raise
        click.echo(f"{output}: {policy_summary(policy)}")
    if sweep and "max_batch" not in given:
        click.echo(
            f"note: the table ends at batch {policy.max_batch}, the largest measured, and an exported schedule caps "
            "the engine there; measure up to its max_num_seqs, or give --max-batch",
            err=True,
        )
    if without_plain:
        if _plain_measured(policy):
            click.echo("note: --without-plain was not needed: plain runs are among the measurements", err=True)
        else:
            click.echo("WARNING: no plain run was usable: every speed-up over plain is extrapolated", err=True)


def _plain_measured(policy: Policy) -> bool:
    return policy.evidence is not None and any(arms.get("plain") for arms in policy.evidence.points.values())
