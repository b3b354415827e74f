"""``adaptive-gamma policy``: build, show and check policy files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy import (
    CLASS_ALIASES,
    FAMILIES,
    DrafterFamily,
    family_named,
    find_policy,
    lint_policy,
    load_policy,
    policy_yaml,
    read_policy_file,
    rebuild_policy,
    starter_policy,
)
from adaptive_gamma.policy.document import parse_section
from adaptive_gamma.policy.render import policy_summary, policy_tables
from adaptive_gamma.policy.schema import Limits
from adaptive_gamma.policy.starter import MEASURED_ZERO_GAMMA_TAX
from adaptive_gamma.roofline import (
    HARDWARE,
    KNOWN_MODELS,
    Hardware,
    ModelShape,
    NumberFormat,
    hardware_named,
    model_named,
)

__all__ = ["command"]


@click.group("policy", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Build, check and show policy tables.

    A POLICY is a file, or the name of one that ships with the package, such as article-h100-27b.
    """


@command.command("build")
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
        hardware, shape, family = _hardware(gpu), _model(model), _family(drafter)
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


@command.command("show")
@click.argument("policy_file", metavar="POLICY")
@click.option("--class", "request_class", metavar="NAME", help="Only this class.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
def show_command(policy_file: str, request_class: str | None, as_json: bool) -> None:
    """Print a policy's table: best gamma by load, and what each gamma gains over plain decoding."""
    policy = load_policy(policy_file)
    classes = policy.classes
    if request_class is not None:
        known = CLASS_ALIASES.get(request_class, request_class)
        if request_class not in policy.classes and known not in policy.classes:
            raise ConfigurationError(
                "--class",
                "",
                f"no class {request_class!r}; there are {', '.join(policy.classes)}",
                nearest(request_class, policy.classes),
            )
        classes = (policy.class_for(request_class),)
    if as_json:
        stored = policy.table.model_dump()
        stored["classes"] = {c: stored["classes"][c] for c in classes}
        click.echo(json.dumps({"name": policy.name, "default_class": policy.default_class, **stored}, indent=2))
        return
    from rich.console import Console

    console = Console()
    console.print(f"{policy.name}: {policy_summary(policy)}", highlight=False, soft_wrap=True)
    for table in policy_tables(policy, classes):
        console.print(table)


@command.command("check")
@click.argument("policy_file", metavar="POLICY")
@click.option("--median-load", type=click.IntRange(1), help="Usual sequences on a replica; edges on it are reported.")
@click.option("--strict", is_flag=True, help="Remarks fail the check as well.")
def check_command(policy_file: str, median_load: int | None, strict: bool) -> None:
    """Prove that a policy's table follows from its inputs, and remark on what is legal but odd."""
    policy = load_policy(policy_file)
    findings = lint_policy(policy, median_load)
    click.echo(f"ok: the table follows from the inputs ({policy_summary(policy)})")
    for finding in findings:
        click.echo(f"note: {finding}")
    if strict and findings:
        raise click.exceptions.Exit(1)


def whole_numbers(text: str, option: str, most: int = 100_000_000) -> list[int]:
    """Comma-separated whole numbers in 1..most. Raises ConfigurationError that names the option."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 9 and 1 <= int(part) <= most for part in parts):
        raise ConfigurationError(option, "", f"expected whole numbers in 1..{most} between commas, not {text!r}")
    return [int(part) for part in parts]


def _hardware(name: str) -> Hardware:
    found = hardware_named(name)
    if found is None:
        names = [h.name for h in HARDWARE]
        raise ConfigurationError(
            "--gpu", "", f"no accelerator {name!r}; there are {', '.join(names)}", _nearest_folded(name, names)
        )
    return found


def _model(name: str) -> ModelShape:
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(str(path), "", f"cannot be read as JSON: {error}") from error
        if not isinstance(config, dict):
            raise ConfigurationError(str(path), "", "expected a JSON object, as in a Hugging Face config.json")
        try:
            shape = ModelShape.from_hf_config(config)
        except ValueError as error:
            raise ConfigurationError(str(path), "", str(error)) from error
    else:
        known = model_named(name)
        if known is None:
            names = list(KNOWN_MODELS)
            raise ConfigurationError(
                "--model",
                "",
                f"no file {name!r} and no known model; known are {', '.join(names)}",
                _nearest_folded(name, names),
            )
        shape = known
    if shape.mixture_of_experts:
        raise ConfigurationError(
            "--model",
            "",
            f"{shape.name} is a mixture of experts; write a policy with a linear step_time",
        )
    return shape


def _family(name: str) -> DrafterFamily:
    found = family_named(name)
    if found is None:
        raise ConfigurationError(
            "--drafter",
            "",
            f"no drafter family {name!r}; there are {', '.join(FAMILIES)}",
            _nearest_folded(name, FAMILIES),
        )
    return found


def _nearest_folded(word: str, choices: Iterable[str]) -> str | None:
    by_lower = {c.lower(): c for c in choices}
    found = nearest(word.lower(), by_lower)
    return by_lower[found] if found is not None else None
