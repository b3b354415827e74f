"""A case: servers with what their logs and pages told, joined; pure look-ups over that."""

from __future__ import annotations

from dataclasses import dataclass, field

from adaptive_gamma.doctor.cost import Pace, Span, conditional, pace_of_log, pace_of_server, unconditional
from adaptive_gamma.doctor.evidence import (
    PARALLEL_EAGLE,
    BenchArm,
    BenchRemark,
    Fact,
    ServerEvidence,
    ServerStart,
    Settings,
    Version,
    known,
)
from adaptive_gamma.doctor.finding import Evidence
from adaptive_gamma.engines import SpeculationCounters
from adaptive_gamma.roofline.acceptance import draft_length_varies

__all__ = ["Acceptance", "Case", "Replica"]

_LEAST_DRAFTS = 200.0
_CUT_AT_END = 0.06
"""Share of draft tokens that the ends of requests may cut before drafts count as of several lengths."""
_NO_PASSES = frozenset({"ngram", "ngram_gpu", "suffix"})
_ONE_PASS = frozenset({"dflash", "dspark", "medusa", "mlp_speculator", PARALLEL_EAGLE})


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance by position, of drafts that all had the same length."""

    unconditional: tuple[float, ...]
    drafts: float
    evidence: Evidence

    @property
    def conditional(self) -> tuple[float, ...]:
        """Given that all before were accepted."""
        return conditional(self.unconditional)


@dataclass(frozen=True, slots=True)
class Replica:
    """One server: its last start by its log, those before it, and its pages."""

    name: str
    start: ServerStart | None = None
    earlier: tuple[ServerStart, ...] = ()
    starts_seen: int = 1
    server: ServerEvidence | None = None

    @property
    def asked(self) -> Settings:
        """What its command line asked for."""
        return self.start.asked if self.start is not None else Settings()

    @property
    def _sources(self) -> tuple[Settings, ...]:
        """What is told before what was asked for: the first is what is."""
        info = (self.server.told,) if self.server is not None else ()
        return (*info, *((self.start.told, self.start.asked) if self.start is not None else ()))

    @property
    def engine(self) -> str | None:
        """The engine's name."""
        if self.server is not None and self.server.engine is not None:
            return self.server.engine
        return self.start.engine if self.start is not None else None

    @property
    def version(self) -> Fact[Version] | None:
        """The engine's version."""
        return known(self.server.version if self.server else None, *(source.version for source in self._sources))

    @property
    def speculative(self) -> Fact[bool] | None:
        """Whether it has a drafter."""
        by_metrics = None
        if self.server is not None and self.server.last is not None and self.server.last.speculative is not None:
            value = self.server.last.speculative
            words = "has draft counters" if value else "has no draft counters"
            by_metrics = Fact(value, Evidence("metric", self.server.metrics, words))
        return known(by_metrics, *(source.speculative for source in self._sources))

    @property
    def is_speculative(self) -> bool:
        """It is known to have a drafter."""
        return self.speculative is not None and self.speculative.value

    @property
    def is_plain(self) -> bool:
        """It is known to have none."""
        return self.speculative is not None and not self.speculative.value

    @property
    def gamma_by_labels(self) -> Fact[int] | None:
        """Draft positions that its metrics have series for."""
        if self.server is None or self.server.last is None or self.server.last.gamma is None:
            return None
        gamma = self.server.last.gamma
        return Fact(gamma, Evidence("metric", self.server.metrics, f"{gamma} draft positions"))

    @property
    def gammas(self) -> tuple[Fact[int], ...]:
        """Every source that tells the configured gamma, what is in force first."""
        probe = None
        if self.server is not None and self.server.probe is not None and self.server.probe.gamma is not None:
            probe = Fact(self.server.probe.gamma, self.server.probe.evidence)
        found = (self.gamma_by_labels, probe, *(source.gamma for source in self._sources))
        return tuple(fact for fact in found if fact is not None)

    @property
    def gamma(self) -> Fact[int] | None:
        """The configured gamma, or a schedule's maximum."""
        return next(iter(self.gammas), None)

    @property
    def method(self) -> Fact[str] | None:
        """How it drafts; the line on the configuration calls a parallel drafter by its family's name."""
        found = [source.method for source in self._sources if source.method is not None]
        return next((fact for fact in found if fact.value == PARALLEL_EAGLE), next(iter(found), None))

    @property
    def table(self) -> Fact[object] | None:
        """Its schedule by batch."""
        return known(*(source.table for source in self._sources))

    @property
    def adaptive_verification(self) -> Fact[bool] | None:
        """Whether the engine cuts drafts itself before it verifies them."""
        return known(*(source.adaptive_verification for source in self._sources))

    @property
    def data_parallel(self) -> Fact[int] | None:
        """Ranks with a batch of their own."""
        return known(*(source.data_parallel for source in self._sources))

    @property
    def pipeline_parallel(self) -> Fact[int] | None:
        """Stages of a pipeline."""
        return known(*(source.pipeline_parallel for source in self._sources))

    @property
    def device(self) -> Fact[str] | None:
        """What it computes on."""
        return known(*(source.device for source in self._sources))

    @property
    def max_num_seqs(self) -> Fact[int] | None:
        """Largest batch."""
        return known(*(source.max_num_seqs for source in self._sources))

    @property
    def max_model_len(self) -> Fact[int] | None:
        """Longest context, after whatever cut it."""
        cut = self.start.context_cut.map(lambda lengths: lengths[0]) if self.start and self.start.context_cut else None
        page = self.server.max_model_len if self.server is not None else None
        return known(page, cut, *(source.max_model_len for source in self._sources))

    @property
    def kv_tokens(self) -> Fact[int] | None:
        """Tokens that its KV cache holds."""
        if self.server is not None and self.server.last is not None and self.server.last.kv_tokens is not None:
            tokens = self.server.last.kv_tokens
            return Fact(tokens, Evidence("metric", self.server.metrics, f"KV cache of {tokens:,} tokens"))
        return self.start.kv_tokens if self.start is not None else None

    @property
    def model(self) -> Fact[str] | None:
        """The model, as it was named at the start."""
        return known(*(source.model for source in self._sources))

    @property
    def passes(self) -> int | None:
        """Passes of the drafter in a step, as many as gamma where the method is not known; None where gamma is not."""
        if self.gamma is None:
            return None
        method = self.method.value if self.method is not None else None
        if method in _NO_PASSES:
            return 0
        return 1 if method in _ONE_PASS else self.gamma.value

    @property
    def autoregressive(self) -> bool:
        """Its drafter is known to make one pass for each token."""
        return self.method is not None and self.method.value not in _NO_PASSES | _ONE_PASS

    @property
    def pace(self) -> Pace | None:
        """How fast it goes: by its metrics, else by its log."""
        return pace_of_server(self.server) or pace_of_log(self.start)

    @property
    def pace_where(self) -> str:
        """Where the pace was read."""
        if pace_of_server(self.server) is not None and self.server is not None:
            return self.server.metrics
        return self.start.file if self.start is not None else self.name

    @property
    def most_running(self) -> Fact[int] | None:
        """The most requests that were seen to run at once."""
        if self.server is not None and self.server.most_running:
            most = self.server.most_running
            return Fact(most, Evidence("metric", self.server.metrics, f"{most} requests running"))
        load = self.start.load if self.start is not None else None
        return Fact(load.most_running, load.evidence) if load is not None and load.most_running else None

    @property
    def drafts_vary(self) -> bool:
        """Drafts are known to be of several lengths."""
        if (seen := self._counts) is not None:
            counters, _ = seen
            positions = len(counters.accepted_per_position)
            return bool(draft_length_varies(counters.drafts, counters.draft_tokens, positions, _CUT_AT_END))
        drafts = self.start.drafts if self.start is not None else None
        return drafts is not None and drafts.varying_lines > drafts.lines

    @property
    def _counts(self) -> tuple[SpeculationCounters, Span] | None:
        """Counters over the time it was watched where enough was drafted then, else since its start."""
        server = self.server
        if server is None or server.last is None or server.last.speculation is None:
            return None
        last = server.last.speculation
        first = server.first.speculation if server.first is not None else None
        if first is not None and server.reset_between is None and (watched := _between(first, last)) is not None:
            return watched, "while watched"
        return (last, "since its start") if (last.drafts or 0) >= _LEAST_DRAFTS else None

    @property
    def acceptance(self) -> Acceptance | None:
        """By position, where all drafts had one length and are counted as verified; None else."""
        if self.adaptive_verification is not None and self.adaptive_verification.value:
            return None
        if self.drafts_vary:
            return None
        return self._acceptance_by_metrics() or self._acceptance_by_log()

    def _acceptance_by_metrics(self) -> Acceptance | None:
        if (seen := self._counts) is None or self.server is None:
            return None
        counters, span = seen
        drafts = counters.drafts or 0.0
        rates = unconditional(drafts, counters.accepted_per_position)
        if rates is None:
            return None
        words = f"accepted by position {_percents(rates)} of {drafts:,.0f} drafts, {span}"
        return Acceptance(rates, drafts, Evidence("metric", self.server.metrics, words))

    def _acceptance_by_log(self) -> Acceptance | None:
        seen = self.start.drafts if self.start is not None else None
        if seen is None or seen.drafts < _LEAST_DRAFTS:
            return None
        rates = unconditional(1.0, seen.per_position)
        if rates is None:
            return None
        words = (
            f"accepted by position {_percents(rates)} of {seen.drafts:,.0f} drafts, over {seen.lines} lines like this"
        )
        return Acceptance(rates, seen.drafts, Evidence("line", seen.evidence.where, words))


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that was gathered.

    batch and gamma: what the user says of concurrency and of the gamma meant, where anything was said.
    """

    replicas: tuple[Replica, ...] = ()
    plain: Replica | None = None
    """What the others are compared with."""
    arms: tuple[BenchArm, ...] = ()
    remarks: tuple[BenchRemark, ...] = ()
    batch: int | None = None
    gamma: int | None = None
    looked_at: tuple[str, ...] = field(default=())

    @property
    def everyone(self) -> tuple[Replica, ...]:
        """The plain one too."""
        return self.replicas if self.plain is None or self.plain in self.replicas else (*self.replicas, self.plain)


def _between(first: SpeculationCounters, last: SpeculationCounters) -> SpeculationCounters | None:
    """What was counted between two readings; None where too little was."""
    if first.drafts is None or last.drafts is None or last.drafts - first.drafts < _LEAST_DRAFTS:
        return None
    if len(first.accepted_per_position) != len(last.accepted_per_position):
        return None
    return SpeculationCounters(
        drafts=last.drafts - first.drafts,
        draft_tokens=last.draft_tokens - first.draft_tokens,
        accepted_tokens=last.accepted_tokens - first.accepted_tokens,
        accepted_per_position=tuple(
            after - before
            for before, after in zip(first.accepted_per_position, last.accepted_per_position, strict=True)
        ),
    )


def _percents(rates: tuple[float, ...]) -> str:
    return ", ".join(f"{rate:.1%}" for rate in rates)
