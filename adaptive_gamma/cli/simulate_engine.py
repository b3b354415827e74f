"""``adaptive-gamma simulate-engine``: a simulated vLLM server on a socket."""

from __future__ import annotations

import re
from typing import Any

import click

from adaptive_gamma.cli.numbers import FiniteFloat
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.engine import (
    DEFAULT_STEP,
    GENERATION_FAULTS,
    METRICS_FAULTS,
    CoreLimits,
    EngineSettings,
    Faults,
    LinearStepClock,
    PolicyStepClock,
    ScriptedAcceptance,
    SimulatedEngine,
    StepClock,
    run_engine,
)

__all__ = ["command"]

_RANGE = re.compile(r"(\d+)-(\d*):(\d+)")
_ENDLESS = 2**31 - 1


def _schedule(ctx: click.Context, parameter: click.Parameter, value: str | None) -> GammaSchedule | None:
    if value is None:
        return None
    ranges = []
    for part in value.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise click.BadParameter(f"{part!r} is not FIRST-LAST:GAMMA; the last range may leave LAST out")
        first, last, gamma = match.groups()
        ranges.append((int(first), int(last) if last else _ENDLESS, int(gamma)))
    try:
        return GammaSchedule(ranges)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _acceptance(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[float, ...]]:
    script = {}
    for value in values:
        name, _, rates = value.partition("=")
        try:
            script[name] = tuple(float(rate) for rate in rates.split(","))
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is not CLASS=RATE,RATE,...") from error
    if script:
        try:
            ScriptedAcceptance(script)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return script


def _step_time(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, float, float] | None:
    if value is None:
        return None
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 3 or not all(0 <= number < 1e6 for number in numbers) or numbers[0] + numbers[1] <= 0:
        raise click.BadParameter(f"{value!r} is not T0_MS,C_MS or T0_MS,C_MS,DRAFT_PASS_MS")
    t0_ms, c_ms, draft_ms = (*numbers, 0.12 * numbers[0])[:3]
    return t0_ms / 1e3, c_ms / 1e3, draft_ms / 1e3


def _clock(step_time: tuple[float, float, float] | None, policy: str | None, *, speculative: bool) -> StepClock:
    if policy is not None:
        from adaptive_gamma.policy import load_policy

        return PolicyStepClock(load_policy(policy), speculative=speculative)
    if step_time is None:
        step_time = (DEFAULT_STEP.base_s, DEFAULT_STEP.token_s, DEFAULT_STEP.draft_pass_s)
    base_s, token_s, draft_pass_s = step_time
    return LinearStepClock(base_s, token_s, draft_pass_s, speculative=speculative)


@click.command("simulate-engine")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8001, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option("--model", default="simulated", show_default=True, help="Model name.")
@click.option("--plain", is_flag=True, help="A plain engine, which is what neither --gamma nor --schedule means too.")
@click.option("--gamma", type=click.IntRange(0, 64), help="Draft tokens per step; 0 is a drafter that never drafts.")
@click.option("--schedule", callback=_schedule, help="Gamma by batch size, such as 1-4:5,5-:1.")
@click.option(
    "--acceptance",
    multiple=True,
    callback=_acceptance,
    metavar="CLASS=RATES",
    help="Conditional acceptance by position, the last rate holding beyond, such as structured=0.84,0.83. Repeatable.",
)
@click.option("--policy", help="Take step times from a policy: a file or the name of a shipped one.")
@click.option(
    "--step-time", callback=_step_time, metavar="T0_MS,C_MS[,DRAFT_MS]", help="Step times of a straight line."
)
@click.option(
    "--time-scale", type=FiniteFloat(0, 1e6, min_open=True), default=1.0, show_default=True,
    help="Simulated seconds per real second.",
)  # fmt: skip
@click.option("--max-num-seqs", default=64, show_default=True, type=click.IntRange(1), help="Largest batch.")
@click.option("--max-num-batched-tokens", default=8192, show_default=True, type=click.IntRange(1), help="Per step.")
@click.option("--max-model-len", default=8192, show_default=True, type=click.IntRange(2), help="Context in tokens.")
@click.option("--kv-tokens", default=524_288, show_default=True, type=click.IntRange(16), help="Size of the KV cache.")
@click.option("--answer-tokens", default=256, show_default=True, type=click.IntRange(2), help="Mean length of answers.")
@click.option("--seed", default=0, show_default=True, help="Seeds acceptance and answer lengths.")
@click.option("--engines", default=1, show_default=True, type=click.IntRange(1, 64), help="Data-parallel ranks.")
@click.option("--api-key", help="Bearer token that /v1 asks for.")
@click.option("--per-request-metrics", is_flag=True, help="Put timings into responses.")
@click.option(
    "--per-request-spec-decode-metrics",
    type=click.Choice(["none", "summary", "detailed"]),
    default="none",
    show_default=True,
    help="Put acceptance into responses: totals and a histogram, or each step too.",
)
@click.option("--without-created", is_flag=True, help="Metrics as several API server processes print them.")
@click.option("--disable-log-stats", is_flag=True, help="Print no engine metrics.")
@click.option("--fail-metrics", type=click.Choice(METRICS_FAULTS), help="Break /metrics.")
@click.option("--fail-generation", type=click.Choice(GENERATION_FAULTS), help="Break generation.")
def command(**options: Any) -> None:
    """Run a simulated vLLM server: its HTTP API and metrics page, with no model and no GPU.

    Answers are filler words. How fast they come follows the policy's physics (or a straight line), and how many draft
    tokens are accepted is scripted by the class of the prompt. Faults and acceptance change at run time by POST to
    /simulate/faults and /simulate/acceptance. It says of itself that it is simulated: in the Server header, in /version
    and in system_fingerprint.
    """
    gamma, schedule = options["gamma"], options["schedule"]
    if (gamma is not None) + (schedule is not None) + options["plain"] > 1:
        raise click.UsageError("--plain, --gamma and --schedule exclude each other")
    if options["policy"] is not None and options["step_time"] is not None:
        raise click.UsageError("--policy and --step-time exclude each other")
    setting = schedule if schedule is not None else gamma
    try:
        settings = EngineSettings(
            model=options["model"],
            gamma=setting,
            step_clock=_clock(options["step_time"], options["policy"], speculative=setting is not None),
            limits=CoreLimits(
                max_num_seqs=options["max_num_seqs"],
                max_num_batched_tokens=options["max_num_batched_tokens"],
                max_model_len=options["max_model_len"],
                kv_blocks=options["kv_tokens"] // 16,
            ),
            engines=options["engines"],
            time_scale=options["time_scale"],
            seed=options["seed"],
            answer_tokens=options["answer_tokens"],
            api_key=options["api_key"],
            created_series=not options["without_created"],
            statistics=not options["disable_log_stats"],
            per_request_metrics=options["per_request_metrics"],
            acceptance_report=options["per_request_spec_decode_metrics"],
            **({"acceptance": options["acceptance"]} if options["acceptance"] else {}),
        )
    except ValueError as error:
        raise ConfigurationError("simulate-engine", "", str(error)) from error
    faults = Faults(metrics=options["fail_metrics"], generation=options["fail_generation"])
    try:
        run_engine(
            SimulatedEngine(settings, faults=faults),
            options["host"],
            options["port"],
            listening=lambda url: click.echo(f"simulated engine listening on {url}"),
        )
    except OSError as error:
        place = f"{options['host']}:{options['port']}"
        raise ConfigurationError("--port", "", f"cannot listen on {place}: {error.strerror or error}") from error
