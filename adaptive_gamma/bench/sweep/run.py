"""The sweep itself: open the arms, warm them alike, go through the runs, put each on disk."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from pydantic import SecretStr

from adaptive_gamma._version import __version__
from adaptive_gamma.bench.row import Source, SweepRow
from adaptive_gamma.bench.sweep.arm import KEY_REFUSED, Arm, ArmSpec, open_arm
from adaptive_gamma.bench.sweep.asking import Asked, RequestForm, RequestOutcome, Slot
from adaptive_gamma.bench.sweep.counters import counter_gain, fell
from adaptive_gamma.bench.sweep.http import Clock
from adaptive_gamma.bench.sweep.journal import PLAN_SCHEMA, Journal
from adaptive_gamma.bench.sweep.load import run_load
from adaptive_gamma.bench.sweep.measured import run_detail, run_row
from adaptive_gamma.bench.sweep.settings import RunKey, SweepSettings
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError, ConnectError, SweepError

__all__ = ["Observer", "Sweep", "utc_now"]

_PROBE_TOKENS = 24
_REFUSED_FIELD = ("status_400", "status_422")


def utc_now() -> str:
    """The wall clock, for the record."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Observer(Protocol):
    """Who is told how a sweep goes."""

    def planned(self, total: int, finished: int) -> None:
        """So many runs make the sweep, of which so many were on disk before."""

    def stage(self, text: str) -> None:
        """What is done now."""

    def ran(self, row: SweepRow) -> None:
        """A run is on disk."""

    def remark(self, text: str) -> None:
        """Something the user should know."""


@dataclass
class _Member:
    arm: Arm
    form: RequestForm


class Sweep:
    """One sweep into one journal. ``run`` continues where the journal ends and may be cancelled at any moment."""

    def __init__(
        self,
        settings: SweepSettings,
        journal: Journal,
        observer: Observer,
        *,
        clock: Clock,
        now: Callable[[], str] = utc_now,
        api_key: SecretStr | None = None,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._observer = observer
        self._clock = clock
        self._now = now
        self._api_key = api_key

    async def run(self) -> None:
        """Measure what is not on disk yet.

        Raises:
            SweepError: the journal holds a sweep of other settings.
            ConfigurationError: an arm is not what it was said to be, or the arms do not compare.
            AdaptiveGammaError: an arm cannot be reached, refuses the requests, or changed under way.
        """
        identity = self._settings.identity()
        if self._journal.plan is not None:
            self._same(self._journal.plan.get("identity"), identity)
        if self._journal.cut_bytes:
            self._observer.remark("half a line at the end of the journal was cut off: that run is measured again")
        total = sum(1 for _ in self._settings.schedule())
        missing = self._missing()
        if missing is not None and not missing:
            self._observer.planned(total, total)
            return
        members = [await self._open(spec) for spec in self._settings.arms]
        self._name(members)
        self._comparable(members)
        self._plan(members, identity)
        missing = self._missing()
        assert missing is not None
        self._observer.planned(total, total - len(missing))
        await self._warm_up(members, missing)
        for key in missing:
            await self._measure(members[key.arm], key)

    # -- before the first run -----------------------------------------------------------------------------------------

    def _same(self, planned: object, asked: dict[str, Any]) -> None:
        before = planned if isinstance(planned, dict) else {}
        for key, value in asked.items():
            if before.get(key) != value:
                raise SweepError(
                    str(self._journal.folder),
                    key,
                    f"holds a sweep with {before.get(key)!r}, and {value!r} is asked for; choose another folder with "
                    "--output, or ask for the same",
                )

    def _missing(self) -> list[RunKey] | None:
        """The runs that are not on disk; None while the plan, which names the arms, is not made."""
        plan = self._journal.plan
        if plan is None:
            return None
        names = [arm["name"] for arm in plan["arms"]]
        finished = self._journal.finished()
        return [
            key
            for key in self._settings.schedule()
            if (names[key.arm], key.concurrency, key.request_class, self._run_id(key)) not in finished
        ]

    def _run_id(self, key: RunKey) -> str:
        assert self._journal.plan is not None
        return f"{self._journal.plan['id']}-{key.repeat:03d}"

    async def _open(self, spec: ArmSpec) -> _Member:
        self._observer.stage(f"asking {spec.url}")
        arm = await open_arm(spec, clock=self._clock, api_key=self._api_key)
        settings = self._settings
        form = RequestForm(
            endpoint=settings.endpoint,
            model=arm.report.served_model,
            output_tokens=settings.output_tokens,
            fixed_length=True,
            temperature=settings.temperature,
            seed=settings.seed,
        )
        before = await arm.reading()
        outcome = await self._probe(arm, form)
        if outcome.failure in _REFUSED_FIELD:
            # Perhaps a server that does not know ignore_eos: answers end by themselves, and their lengths are compared.
            free = replace(form, fixed_length=False)
            second = await self._probe(arm, free)
            if second.failure is None:
                form, outcome = free, second
                self._observer.remark(f"{arm.described} takes no ignore_eos: the lengths of its answers are its own")
        if outcome.failure is not None:
            raise AdaptiveGammaError(_refusal(arm, outcome, settings))
        arm.learn(await arm.settled_reading(before, outcome.output_tokens or 0), outcome.closing)
        remark = arm.check_gamma()
        if remark is not None:
            self._observer.remark(remark)
        if arm.dialect is None:
            self._observer.remark(
                f"{arm.described} has no metrics page that is known: gamma and acceptance stay unknown"
            )
        return _Member(arm, form)

    async def _probe(self, arm: Arm, form: RequestForm) -> RequestOutcome:
        short = replace(form, output_tokens=_PROBE_TOKENS)
        slot = Slot(arm.address, self._clock, self._settings.timeout_s)
        try:
            return await slot.ask(short, self._settings.probe())
        finally:
            slot.close()

    def _name(self, members: list[_Member]) -> None:
        """Name the arms that have no name by what they report."""
        taken = {member.arm.spec.name for member in members}
        for place, member in enumerate(members, start=1):
            arm, report = member.arm, member.arm.report
            if arm.name:
                continue
            if report.speculative is False:
                name = "plain"
            elif report.gamma is not None:
                name = f"gamma-{report.gamma}"
            else:
                name = "speculative" if report.speculative else f"arm-{place}"
            arm.name = name if name not in taken else f"{name}-{place}"
            taken.add(arm.name)

    def _comparable(self, members: list[_Member]) -> None:
        models = {member.arm.report.model for member in members}
        if len(models) > 1 and self._settings.model_name is None:
            listed = ", ".join(f"{member.arm.name}: {member.arm.report.model}" for member in members)
            raise ConfigurationError(
                "sweep",
                "model",
                f"the arms serve different models ({listed}), so nothing can be said of their speeds; where it is one "
                "model under several names, give it one with --model-name",
            )

    def _plan(self, members: list[_Member], identity: dict[str, Any]) -> None:
        arms = [
            {
                "name": member.arm.name,
                "url": member.arm.spec.url,
                "fixed_length": member.form.fixed_length,
                "reported": member.arm.report.identity(),
                "asserted_gamma": member.arm.spec.gamma,
                "settings": dict(member.arm.report.settings),
            }
            for member in members
        ]
        plan = self._journal.plan
        if plan is None:
            self._journal.write_plan(
                {
                    "schema": PLAN_SCHEMA,
                    "id": secrets.token_hex(4),
                    "made_at": self._now(),
                    "version": __version__,
                    "identity": identity,
                    "arms": arms,
                }
            )
            return
        for planned, found in zip(plan["arms"], arms, strict=True):
            for part in ("name", "fixed_length"):
                if planned[part] != found[part]:
                    raise SweepError(str(self._journal.folder), part, f"was {planned[part]!r}, is {found[part]!r}")
        for planned, member in zip(plan["arms"], members, strict=True):
            self._unchanged(member.arm, planned["reported"])

    def _unchanged(self, arm: Arm, planned: dict[str, Any]) -> None:
        for part, value in arm.report.identity().items():
            if planned[part] != value:
                raise AdaptiveGammaError(
                    f"{arm.described} is not what it was when the sweep began: {part} was {planned[part]!r} and is "
                    f"{value!r}; measure it in another folder (--output)"
                )

    async def _warm_up(self, members: list[_Member], missing: list[RunKey]) -> None:
        """The same requests at the same load on each arm, for each load still to be measured."""
        for load in dict.fromkeys(key.concurrency for key in missing):
            for member in members:
                self._observer.stage(f"warming up {member.arm.name}, {load} at a time")
                await self._load(member, self._settings.warm_up(load), load)
        assert self._journal.plan is not None
        for planned, member in zip(self._journal.plan["arms"], members, strict=True):
            member.arm.learn(await member.arm.reading())
            self._unchanged(member.arm, planned["reported"])

    # -- a run --------------------------------------------------------------------------------------------------------

    async def _load(self, member: _Member, work: list[Asked], concurrency: int) -> Any:
        try:
            return await run_load(
                member.arm.address,
                member.form,
                work,
                concurrency,
                clock=self._clock,
                timeout_s=self._settings.timeout_s,
                look=member.arm.reading if member.arm.dialect is not None else None,
            )
        except ConnectError as error:
            raise ConnectError(f"{member.arm.described} has become unreachable: {error}") from error

    async def _measure(self, member: _Member, key: RunKey) -> None:
        arm, settings, journal = member.arm, self._settings, self._journal
        assert journal.plan is not None
        self._observer.stage(
            f"repeat {key.repeat} of {settings.repeats}: {key.request_class}, {key.concurrency} at a time, {arm.name}"
        )
        started_at = self._now()
        before = await arm.reading()
        result = await self._load(member, settings.work(key), key.concurrency)
        tokens = sum(outcome.output_tokens or 0 for outcome in result.whole)
        after = await arm.settled_reading(before, tokens)
        gain = None
        if before is not None and after is not None:
            if fell(before, after):
                raise AdaptiveGammaError(f"{arm.described} was started anew during a run, which is not kept")
            gain = counter_gain(before, after)
        arm.learn(after)
        self._unchanged(arm, journal.plan["arms"][key.arm]["reported"])
        row = run_row(
            result,
            gain,
            arm.report,
            arm=arm.name,
            model=settings.model_name or arm.report.model,
            dataset=settings.prompts.name,
            request_class=key.request_class,
            concurrency=key.concurrency,
            run=self._run_id(key),
            source=Source(str(journal.rows_file), len(journal.rows) + 1),
        )
        detail = run_detail(
            result,
            gain,
            asked_tokens=settings.output_tokens,
            fixed_length=member.form.fixed_length,
            started_at=started_at,
        )
        journal.record(row, detail)
        self._observer.ran(row)


def _refusal(arm: Arm, outcome: RequestOutcome, settings: SweepSettings) -> str:
    hint = ""
    if outcome.failure in ("status_401", "status_403"):
        hint = f"; it {KEY_REFUSED}"
    elif outcome.failure in ("status_400", "status_404", "status_422") and settings.endpoint == "chat":
        hint = "; a model without a chat template takes --endpoint completions"
    elif outcome.failure == "no_usage":
        hint = "; without it tokens cannot be counted, as with speculation an event holds several"
    return f"{arm.described} does not answer the first request ({outcome.failure}): {outcome.detail}{hint}"
