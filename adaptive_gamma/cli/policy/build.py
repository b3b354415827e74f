"""``adaptive-gamma policy build``: write a policy."""

from __future__ import annotations

from pathlib import Path

import click

from adaptive_gamma.cli.policy.options import family_option, hardware_option, model_option, whole_numbers
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import (
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
@click.option("--inputs", "inputs_file", metavar="FILE", help="Rebuild the table of a policy file from its inputs.")
@click.option("--gpu", metavar="NAME", help="Accelerator, such as H100.")
@click.option("--model", metavar="CONFIG_JSON|NAME", help="A Hugging Face config.json, or a known name (Llama-3.1-8B).")
@click.option("--drafter", metavar="FAMILY", help="eagle3, eagle1, dflash, dspark, p-eagle, mtp or ngram.")
@click.option("--weights", type=click.Choice(["bf16", "fp8"]), default="bf16", show_default=True, help="Their format.")
@click.option("--max-gamma", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--min-gamma", type=click.IntRange(0, 64), default=1, show_default=True)
@click.option("--max-batch", type=click.IntRange(1, 8192), default=256, show_default=True)
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
def build_command(
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
    """Write a policy from hardware, model and drafter, or rebuild one from the inputs in its file."""
    if inputs_file is not None:
        if gpu or model or drafter:
            raise click.UsageError("--inputs goes without --gpu, --model and --drafter")
        path = find_policy(inputs_file)
        policy = rebuild_policy(read_policy_file(path), str(path))
    else:
        if not (gpu and model and drafter):
            raise click.UsageError("give --gpu, --model and --drafter, or --inputs FILE")
        hardware, shape, family = hardware_option(gpu), model_option(model), family_option(drafter)
        limits = parse_section(
            Limits,
            {
                "max_gamma": max_gamma,
                "min_gamma": min_gamma,
                "max_batch": max_batch,
                "context_buckets": whole_numbers(context, "--context"),
                "capture_limit_tokens": None if no_capture_limit else capture_limit,
                "zero_gamma_tax": MEASURED_ZERO_GAMMA_TAX,
            },
            "policy build",
            "limits",
        )
        policy = starter_policy(hardware, shape, family, weights, limits, name)
        for finding in lint_policy(policy):
            if finding.key.startswith("inputs."):
                click.echo(f"note: {finding}", err=True)
    text = policy_yaml(policy)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(output, "", f"cannot be written: {error.strerror}") from error
    click.echo(f"{output}: {policy_summary(policy)}")
