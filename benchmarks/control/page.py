"""The page: the claims with their figures first, then every table, then what the simulation leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adaptive_gamma.policy.export import ScheduleOptions, ServerOptions, export_policy
from adaptive_gamma.simulation.control import CONTROL, ORACLE, ControlRules, contestants, start_gamma

from .claims import claims_of, spread
from .plan import TraceCase
from .results import Results, mean
from .work import BELIEVED, LATER_S, MARGINS, POLICY, REPLICAS, SEQUENCES, TRUTH, policy

__all__ = ["page_of"]


def page_of(results: Results) -> str:
    """The page as Markdown; the same results give the same page."""
    parts = [_head(results), _verdict(results), _losses(results)]
    parts += [_trace(results, case) for case in results.plan.traces]
    parts += [_held(results), _fall(results), _edges(results), _recovery(results), _margin(results)]
    parts += [_contestants(), _LIMITS]
    return "\n\n".join(parts) + "\n"


def _head(results: Results) -> str:
    rules, learning = ControlRules().gamma, ControlRules().learning
    lines = [
        "# The closed loop in simulation",
        "",
        "Written by `make control`; the same code and traces write the same page. Nothing here was measured on a GPU.",
        "",
        f"The fleet is {REPLICAS} simulated replicas of `{POLICY}` ({SEQUENCES} sequences each at most), started with"
        f" gamma {start_gamma(policy())}, what a model card would advise. The loop is the code that serves traffic:"
        " `decide` routes each request, `choose_schedule` looks at each replica once a second, `AcceptanceLearner`"
        " hears from each finished request. Its rules are the defaults of `serve`:"
        f" dwell {rules.dwell_s:g} s, half-life {learning.half_life_s:g} s, at most one table built in"
        f" {learning.rebuild_s:g} s, and a schedule or gamma changes for a gain of {rules.min_gain:.0%} or twice the"
        " noise that is measured, whichever is more. It knows what a sidecar knows: gauges and counters once a second,"
        " its own open requests, and what finished requests report. `control` sets a schedule, as vLLM with the plugin"
        " takes it; `control, one gamma` sets one gamma for all batches by `choose_gamma`, which is what an engine"
        " without the plugin can take.",
    ]
    synthetic = [case.title for case in results.plan.traces if any(s.file is None for s in case.sources)]
    if synthetic:
        lines += [
            "",
            f"The public traces are not beside the checkout; synthetic ones stand in: {', '.join(synthetic)}.",
        ]
    return "\n".join(lines)


def _verdict(results: Results) -> str:
    claims = claims_of(results)
    met = sum(claim.met for claim in claims)
    rows = [[claim.where, claim.text, "met" if claim.met else "**not met**"] for claim in claims]
    return (
        f"## Claims: {met} of {len(claims)} met\n\n"
        "Compared before rounding; a difference of a thousandth counts, in either direction. A claim is met when it"
        " holds with every seed; in brackets the seeds' least and greatest difference.\n\n"
        + _table(["where", "claim", ""], rows)
    )


def _losses(results: Results) -> str:
    """What is known of each comparison that is lost."""
    lost = dict.fromkeys(each for claim in claims_of(results) for each in claim.lost)
    rows = [
        [
            each.case.title,
            f"{each.one} against {each.other}",
            spread(results.over(each.case, each.one, each.other, "latency_s"), 2),
            spread(results.over(each.case, each.one, each.other, "later_s"), 2),
            spread(results.over(each.case, ORACLE, each.other, "latency_s"), 2),
        ]
        for each in lost
    ]
    heads = ["", "mean latency of", "", f"after the first {LATER_S:g} s", "the oracle against the same"]
    found = _table(heads, rows) if rows else "No comparison of latencies is lost."
    return (
        "## Where it is not better, and why\n\n" + found + "\n\n"
        "Where the oracle does not win either, no choice of gamma can: the load hardly leaves the range of "
        "one gamma, and a server that happens to be started with it is as good as it gets. The loop starts "
        f"with gamma {start_gamma(policy())} like every server that nobody has tuned, and has to find that "
        "one. It changes nothing before the gain is twice the noise of what it has seen, which takes minutes while "
        "there is little traffic. The schedule for vLLM is our own export, made with the very mix of classes and mean "
        "context that the trace will have, of which the loop sees the mix as it comes. The context makes no "
        f"difference here: its mean is {_contexts(results)} tokens by trace, all in the policy's middle bucket (2,048 "
        "tokens; from 1,024 to 4,096), which is what the loop takes. Nor do prompts: their work is the same per output "
        "token whatever gamma is, so that they thin the gain of a gamma over another and do not turn it round, but "
        "for what a step bound by memory takes for nothing.\n\n"
        "With one gamma for all batches, gamma follows the load by dwell and margin, and replicas that change one "
        "after the other differ meanwhile, in price too. What schedules are worth, and what routing by price does "
        "among equal replicas, is in the rows `one gamma` and `no routing` of the tables below. In runs beside this "
        "page, of the load-swinging trace with seed 1, four replicas that all keep gamma 3 gave 8.984 s by `decide` "
        "and 8.983 s by the least load, and the loop with schedules 8.985 s, with a margin of 0.01 % too; with a dwell "
        "of 10 s and the least load 8.971 s. On held loads the oracle "
        "is given more than the load: it takes another gamma for each mix of classes in a batch, from one "
        "step to the next, which tells most where a batch is a single request; what the best single gamma of "
        "the load makes is named beside it."
    )


def _contexts(results: Results) -> str:
    """Mean prompt and half the output, of the traces that differ in it."""
    found = {round(results.rows[case.key][0]["context"]) for case in results.plan.traces}
    return ", ".join(f"{each:,}" for each in sorted(found))


def _trace(results: Results, case: TraceCase) -> str:
    table = []
    for name in results.names(case):
        rows = results.runs(case, name)
        row = rows[0]
        shares = results.over(case, name, ORACLE, "tokens_per_second")
        table.append(
            [
                f"**{name}**" if name == CONTROL else name,
                f"{mean(rows, 'tokens_per_second'):,.1f}",
                f"{sum(shares) / len(shares):.2%}",
                f"{mean(rows, 'latency_s'):.3f}",
                "" if name == ORACLE else spread(results.over(case, name, ORACLE, "latency_s")),
                f"{mean(rows, 'p99_s'):.2f}",
                f"{mean(rows, 'tpot_ms'):.2f}",
                "-" if row["gamma"] is None else f"{mean(rows, 'gamma'):.2f}",
                f"{mean(rows, 'batch'):.1f}",
                f"{mean(rows, 'busy'):.0%}",
                "" if row["changes"] is None else f"{mean(rows, 'changes'):.0f}",
                "" if row["rebuilds"] is None else f"{mean(rows, 'rebuilds'):.1f}",
            ]
        )
    heads = [
        "", "tokens/s", "of oracle", "mean latency s", "vs oracle", "p99 s", "TPOT ms", "gamma", "batch", "busy",
        "changes", "tables",
    ]  # fmt: skip
    seeds = ", ".join(str(seed) for seed in case.seeds)
    several = (
        f"Means over seeds {seeds}; what no claim is about ran with seed {case.seeds[0]} only."
        if len(case.seeds) > 1
        else f"Seed {seeds}."
    )
    return (
        f"## {case.title}\n\n"
        f"{_capital(case.text)}; {results.rows[case.key][0]['requests']:,} requests. {several} Changes of gamma or"
        " schedule in the whole fleet; tables built from what was learned.\n\n" + _table(heads, table)
    )


def _held(results: Results) -> str:
    plan = results.plan
    loads, names = plan.loads, list(results.held[plan.loads[0], plan.held_seeds[0]])
    rows = []
    for name in names:
        if name == ORACLE:
            tokens = [[results.held[load, seed][ORACLE] for seed in plan.held_seeds] for load in loads]
            rows.append([name, *(f"{sum(each) / len(each):,.0f}" for each in tokens)])
            continue
        shares = [results.held_shares(load, name) for load in loads]
        rows.append(
            [
                f"**{name}**" if name == CONTROL else name,
                *(f"{sum(each) / len(each):.1%}" for each in shares),
            ]
        )
    ours = [results.held_shares(load, CONTROL) for load in loads]
    rows.append([f"{CONTROL}, by seed", *(f"{min(each):.1%} to {max(each):.1%}" for each in ours)])
    seeds = ", ".join(str(seed) for seed in plan.held_seeds)
    return (
        "## Held loads\n\n"
        "On a trace that the fleet keeps up with, tokens/s is what arrives, whoever serves it. So here the load"
        " is held:"
        " as many requests open for each replica as the column says, half structured and half chat, after"
        f" {plan.held_s * 0.375:.0f} s of warm-up. Share of the oracle's tokens/s; the oracle in tokens/s. Means over"
        f" seeds {seeds} of lengths and luck, good to some tenths of a percent: a share above 100 % is that, or the"
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
                    f"{'schedules set' if set_gamma else 'routing only'}, seed {number}",
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
    gamma, pool = results.gamma_edges[0], results.pool_edges[0]
    rows = [
        [
            "schedules" if schedules else "one gamma",
            f"{margin:.2%}",
            ", ".join(str(edge["most"][schedules][margin]) for edge in results.gamma_edges),
            "; ".join(gamma["changes"][schedules][margin]) or "none",
        ]
        for schedules, by_margin in gamma["most"].items()
        for margin in by_margin
    ]
    sides = [
        [
            name,
            ", ".join(str(edge[name]["switches"]) for edge in results.pool_edges),
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
        + _table(["", "least gain", "most changes in a minute, by seed", "changes, first seed"], rows)
        + "\n\nA table followed to the letter changes 60 times a minute there.\n\n"
        f"A speculative replica (gamma {pool['gamma']}, acceptance such that it pays up to batch 32 and not beyond)"
        " beside a plain one, 62 and 66 requests open in all. Single requests go to both pools, as they must for both"
        " to be used: the price of each falls as the other fills. What must not be is that the class moves to and fro:"
        " \n\n"
        + _table(
            ["", "most switches of the majority of 10 s in a minute, by seed", "share to speculative, by 10 s",
             "in even seconds", "in odd seconds", "changes of gamma (first seed)"],
            sides,
        )
    )  # fmt: skip


def _recovery(results: Results) -> str:
    classes = results.recoveries[0]
    rows = [
        [
            each["name"],
            f"{TRUTH[each['name']][0]:.2f}, then {TRUTH[each['name']][1]:.2f}",
            f"{each['true']:.3f}",
            f"{each['believed']:.3f}",
            *(f"{found[k]['learned']:.3f} ({found[k]['error']:+.1%})" for found in results.recoveries),
        ]
        for k, each in enumerate(classes)
    ]
    seeds = [f"learned, seed {seed}" for seed in results.plan.fact_seeds]
    return (
        "## Classes told apart by counters alone\n\n"
        "Six speculative replicas with gamma 4 serve three classes, 5 requests/s in all, for 240 s. No request reports"
        " anything. What the learner gets are the replicas' totals by draft position once a second and how long"
        f" requests of each class were open there; it believes {BELIEVED[0]:.2f}, then {BELIEVED[1]:.2f} of every class"
        " beforehand. E(4), tokens of a step:\n\n" + _table(["", "true acceptance", "true", "believed", *seeds], rows)
    )


def _margin(results: Results) -> str:
    rows = [
        [f"seed {seed}, {scale:g} times the rate", *(_over(latencies, f"{margin:g}") for margin in MARGINS)]
        for (seed, scale), latencies in results.margins.items()
    ]
    return (
        "## How the least gain was chosen\n\n"
        "On swinging traces of other seeds and rates than the one above, with one gamma for all batches."
        " Mean latency over the oracle's, by least gain (the policy file is right there, so nothing is learned):\n\n"
        + _table(["", *(f"{margin:.1%}" for margin in MARGINS)], rows)
        + "\n\nTwice the measured noise is the margin where that is more, so that a smaller least gain changes little"
        " once a replica has been looked at for some minutes: 1 % and 2 % come out alike here. 1 % was settled on in"
        " runs without measured noise, and after the traces above had been seen to lose up to 11 % with 5 %."
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

- Step times are those of the policy, to which loop, schedule and oracle are privy: no error of the model. The noise
  that the loop measures is that of drafts, prompts and loads.
- A change of gamma or schedule costs nothing and holds from the next step on for every sequence of the replica. Engines
  that take gamma with each request change as requests come and go, and acceptance dips after a raise on some of them.
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
