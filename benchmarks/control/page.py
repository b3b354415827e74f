"""The page: the claims with their figures first, then every table, then what the simulation leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adaptive_gamma.policy.export import ScheduleOptions, ServerOptions, export_policy
from adaptive_gamma.routing import GammaRules
from adaptive_gamma.simulation.control import CHOSEN, CONTROL, DEFAULTS, ORACLE, contestants, start_gamma

from .cases import MARGINS, POLICY, REPLICAS, SEQUENCES, TraceCase, policy
from .claims import claims_of
from .results import Results

__all__ = ["page_of"]


def page_of(results: Results) -> str:
    """The page as Markdown; the same results give the same page."""
    parts = [_head(results), _verdict(results)]
    parts += [_trace(results, case) for case in results.cases]
    parts += [_held(results), _fall(results), _edges(results), _margin(results), _contestants(), _LIMITS]
    return "\n\n".join(parts) + "\n"


def _head(results: Results) -> str:
    rules, learning = CHOSEN.gamma, CHOSEN.learning
    lines = [
        "# The closed loop in simulation",
        "",
        "Written by `make control`; the same code and traces write the same page. Nothing here was measured on a GPU.",
        "",
        f"The fleet is {REPLICAS} simulated replicas of `{POLICY}` ({SEQUENCES} sequences each at most), started with"
        f" gamma {start_gamma(policy())}, what a model card would advise. The loop is the code that serves traffic:"
        " `decide` routes each request, `choose_gamma` looks at each replica once a second, `AcceptanceLearner` hears"
        f" from each finished request. Its rules are the defaults of `serve` (dwell {rules.dwell_s:g} s, half-life"
        f" {learning.half_life_s:g} s, at most one table built in {learning.rebuild_s:g} s) but for the least gain that"
        f" changes a gamma, {rules.min_gain:.0%} instead of {GammaRules().min_gain:.0%}; how that was chosen stands"
        f" below, and `{DEFAULTS}` is the loop without it.",
    ]
    for case in results.left_out:
        lines += ["", f"Left out, because the public file is not beside the checkout: {case.title}."]
    return "\n".join(lines)


def _verdict(results: Results) -> str:
    claims = claims_of(results)
    met = sum(claim.met for claim in claims)
    rows = [[claim.where, claim.text, "met" if claim.met else "**not met**"] for claim in claims]
    return (
        f"## Claims: {met} of {len(claims)} met\n\n"
        "Compared before rounding; a difference of a thousandth counts, in either direction.\n\n"
        + _table(["where", "claim", ""], rows)
    )


def _trace(results: Results, case: TraceCase) -> str:
    oracle, rows = results.oracle(case), results.rows[case.key]
    table = [
        [
            f"**{row['name']}**" if row["name"] == CONTROL else row["name"],
            f"{row['latency_s']:.3f}",
            f"{row['latency_s'] / oracle['latency_s'] - 1.0:+.1%}",
            f"{row['p99_s']:.2f}",
            f"{row['tokens_per_second']:,.1f}",
            f"{row['tokens_per_second'] / oracle['tokens_per_second']:.2%}",
            "-" if row["gamma"] is None else f"{row['gamma']:.2f}",
            f"{row['batch']:.1f}",
            "" if row["changes"] is None else str(row["changes"]),
            "" if row["rebuilds"] is None else str(row["rebuilds"]),
        ]
        for row in rows
    ]
    heads = ["", "mean latency s", "vs oracle", "p99 s", "tokens/s", "of oracle", "gamma", "batch", "changes", "tables"]
    return (
        f"## {case.title}\n\n"
        f"{_capital(case.text)}; {rows[0]['requests']:,} requests, seed {case.seed}. Changes of gamma in the whole"
        " fleet; tables built from what was learned.\n\n" + _table(heads, table)
    )


def _held(results: Results) -> str:
    loads = list(results.held)
    names = list(results.held[loads[0]])
    rows = [
        [
            f"**{name}**" if name == CONTROL else name,
            *(
                f"{results.held[load][name]:,.0f}"
                if name == ORACLE
                else f"{results.held[load][name] / results.held[load][ORACLE]:.1%}"
                for load in loads
            ),
        ]
        for name in names
    ]
    return (
        "## Held loads\n\n"
        "On a trace that the fleet keeps up with, tokens/s is what arrives, whoever serves it. So here the load"
        " is held:"
        " as many requests open for each replica as the column says, half structured and half chat, after"
        f" {results.plan.held_s * 0.375:.0f} s of warm-up. Share of the oracle's tokens/s; the oracle in tokens/s. Each"
        " column is one draw of lengths and luck, good to some tenths of a percent: a share above 100 % is that, or the"
        " oracle's own short sight (it picks the best gamma for the batch as it is, not for the prompts to come).\n\n"
        + _table(["open per replica", *(str(load) for load in loads)], rows)
    )


def _fall(results: Results) -> str:
    rows = []
    for set_gamma, falls in results.falls.items():
        for number, fall in enumerate(falls, 1):
            settled = fall["settled_s"]
            rows.append(
                [
                    f"{'gammas set' if set_gamma else 'routing only'}, seed {number}",
                    f"{fall['learned_10']:.3f}",
                    f"{fall['learned_30']:.3f}",
                    "never" if settled is None else f"{settled:.0f} s",
                    f"{fall['share_before']:.0%} to {fall['share_after']:.0%}",
                    f"{fall['other_before']:.0%} to {fall['other_after']:.0%}",
                    "; ".join(fall["changes"]) or "none",
                ]
            )
    heads = [
        "", "learned after 10 s", "after 30 s", "within 0.05 from", "structured to speculative", "chat to speculative",
        "gamma",
    ]  # fmt: skip
    return (
        "## Acceptance of one class falls\n\n"
        "Two speculative and two plain replicas, 5 requests/s of structured and 5 of chat. Structured requests that"
        " arrive after 60 s are accepted with 0.45 at every position instead of 0.85. Learned is the conditional"
        " rate at"
        " the first position. Shares are of the requests in the 30 s before, and in 60 s from half a minute after.\n\n"
        + _table(heads, rows)
    )


def _edges(results: Results) -> str:
    gamma, pool = results.gamma_edge, results.pool_edge
    rows = [
        [f"{margin:.2%}", str(most), "; ".join(gamma["changes"][margin]) or "none"]
        for margin, most in gamma["most"].items()
    ]
    sides = [
        [
            name,
            str(pool[name]["switches"]),
            f"{pool[name]['least']:.0%} to {pool[name]['most']:.0%}",
            f"{pool[name]['low']:.1%}",
            f"{pool[name]['high']:.1%}",
            "; ".join(pool[name]["changes"]) or "none",
        ]
        for name in ("routing only", CONTROL)
    ]
    return (
        "## Load about an edge of the table\n\n"
        f"One replica, chat only; the table has gamma {gamma['below']} to batch {gamma['edge'] - 1} and"
        f" {gamma['above']} from {gamma['edge']}. 31 requests are open in even seconds and 33 in odd ones, for"
        f" {gamma['seconds']:.0f} s. By least gain:\n\n"
        + _table(["least gain", "most changes in a minute", "changes"], rows)
        + "\n\nA table followed to the letter changes 60 times a minute there.\n\n"
        f"A speculative replica (gamma {pool['gamma']}, acceptance such that it pays up to batch 32 and not beyond)"
        " beside a plain one, 62 and 66 requests open in all. Single requests go to both pools, as they must for both"
        " to be used: the price of each falls as the other fills. What must not be is that the class moves to and fro:"
        " \n\n"
        + _table(
            ["", "most switches of the majority of 10 s in a minute", "share to speculative, by 10 s",
             "in even seconds", "in odd seconds", "changes of gamma"],
            sides,
        )
    )  # fmt: skip


def _margin(results: Results) -> str:
    rows = [
        [f"seed {seed}, {scale:g} times the rate", *(_over(latencies, f"{margin:g}") for margin in MARGINS)]
        for (seed, scale), latencies in results.margins.items()
    ]
    return (
        "## How the least gain was chosen\n\n"
        "On swinging traces of other seeds and rates than the one above; none of the public traces was looked at"
        " for it."
        " Mean latency over the oracle's, by least gain (the policy file is right there, so nothing is learned):\n\n"
        + _table(["", *(f"{margin:.1%}" for margin in MARGINS)], rows)
        + "\n\nGammas are predicted without noise here, so the smaller the better, as far as the dwell lets it."
        " 1 % is the"
        " least noise that benchmarks of speculation report (1-10 %, vLLM PR #52228). In service the margin is"
        " the larger"
        " of this and twice the noise measured."
    )


def _over(latencies: dict[str, float], name: str) -> str:
    return f"{latencies[name] / latencies[ORACLE] - 1.0:+.1%}"


def _contestants() -> str:
    lines = [f"- `{each.name}`: {each.meaning}." for each in contestants(policy(), REPLICAS, SEQUENCES)]
    return (
        "## Who is who\n\n"
        + "\n".join(lines)
        + f"\n\nWith the n-gram drafter replicas are started with gamma {start_gamma(policy('ngram'))}. For half"
        f" structured and half chat the schedules are {_schedules(None)} with the file's drafter and"
        f" {_schedules('ngram')} with the n-gram one. SGLang's table (0.5.23) is"
        ' `{"1": [1, 3, 5, 7], "8": [0, 1, 3], "32": [0, 1], "64": [0]}`. Batches are not padded to captured sizes'
        " before its slots are looked up, and prompts being read do not count towards vLLM's batch: both favour them."
    )


def _schedules(family: str | None) -> str:
    """The tables without and with gamma 0, in words."""
    with_and_without = [
        export_policy(
            policy(family),
            "vllm",
            ServerOptions(version="0.33"),
            ScheduleOptions(mix={"structured": 0.5, "chat": 0.5}, max_batch=SEQUENCES, allow_zero=allow_zero),
        ).table
        for allow_zero in (False, True)
    ]
    without, with_zero = (f"`{table}`" for table in with_and_without)
    return (
        f"{without} (the same where 0 is allowed)"
        if without == with_zero
        else f"{without} ({with_zero} with 0 allowed)"
    )


_LIMITS = """## What the simulation leaves out

- Step times are those of the policy, to which loop, schedule and oracle are privy: no noise, no error of the model.
- A change of gamma costs nothing and holds from the next step on for every sequence of the replica. Engines that take
  gamma with each request change as requests come and go, and acceptance dips after a raise on some of them.
- Requests report acceptance by position when they end, as vLLM does where it is asked to. Where an engine tells less,
  learning is slower.
- Steps beyond the captured graphs cost up to five times as much on real engines; here they cost what the formula says.
  Only gamma 8 above 56 sequences gets there.
- The least loaded of the baselines is picked with the same scrapes and counts as the loop has."""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(_lines(heads, rows))


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
