"""Learning from a live fleet: who hears what, when the table is rebuilt, and what survives a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from adaptive_gamma.config.settings import LearnSettings
from adaptive_gamma.engines.reading import RequestAcceptance
from adaptive_gamma.fleet.draft_ledger import DraftLedger, drafts_behind
from adaptive_gamma.fleet.families import FamilyPrior, family_of, family_prior, policy_identity
from adaptive_gamma.fleet.state_file import StateFile
from adaptive_gamma.fleet.window import DraftCounts
from adaptive_gamma.policy import Policy, with_curves
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn import AcceptanceLearner, LearnedCurve, table_change
from adaptive_gamma.routing.replica import GammaSetting

if TYPE_CHECKING:
    from adaptive_gamma.fleet.replica import FleetReplica

__all__ = ["STATE_FORMAT", "FleetLearning"]

_log = logging.getLogger("adaptive_gamma.learning")

STATE_FORMAT = "adaptive-gamma/learned/v1"
_REVIEW_S = 1.0
_REPORTING_S = 60.0
"""A replica whose requests reported acceptance by position this lately needs no taking apart of its counters."""
_FAULTS = (ArithmeticError, ValueError, LookupError)


class FleetLearning:
    """Learns the acceptance of each drafter family, and has the policy follow.

    While every class stays within what the policy file leaves room for, the file's table is in force. When one leaves
    it, a table is built in a worker thread from what was learned of all classes and handed to ``swap``; so it is again
    when a drifted class has moved on, and the file's own table comes back when none is off any more. Only the policy's
    own family makes the table; the acceptance of replicas with another drafter is learned and shown, and their prices
    follow by what each of them accepts against the table (``ReplicaState.acceptance_ratio``).

    Args:
        settings: the section ``learn``.
        policy: as the file has it.
        drafters: families of the replicas that have another one than the policy.
        swap: puts another policy in force, from the next request on.
        clock: the fleet's: monotonic seconds.
    """

    def __init__(
        self,
        settings: LearnSettings,
        policy: Policy,
        drafters: Iterable[str] = (),
        *,
        swap: Callable[[Policy], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rebuilds = 0
        """Tables built from what was learned and put in force."""
        self.state_failures = 0
        """Reads and writes of the state file that failed or were refused."""
        self._settings = settings
        self._policy = policy
        self._in_force = policy
        self._swap = swap
        self._clock = clock
        self._family = family_of(policy)
        self._drafters = tuple(drafters)
        self._priors: dict[str, FamilyPrior] = {}
        self._learners: dict[str, AcceptanceLearner] = {}
        self._exclude = frozenset(settings.exclude)
        self._file = None if settings.state_file is None else StateFile(settings.state_file)
        self._kept: Mapping[str, Any] = {}
        """Families of the state file that no replica has shown yet."""
        self._known: dict[str, dict[str, LearnedCurve]] = {}
        self._gammas: dict[str, GammaSetting] = {}
        self._ledgers: dict[str, DraftLedger] = {}
        self._by_position_at: dict[str, float] = {}
        self._drifted: dict[tuple[str, str], bool] = {}
        self._drifted_in_force: frozenset[str] = frozenset()
        self._built_at = self._saved_at = float("-inf")
        self._heard = False
        self._building: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None

    # -- what is heard ------------------------------------------------------------------------------------------------

    def note_acceptance(self, replica: FleetReplica, request_class: str, acceptance: RequestAcceptance) -> None:
        """A request of this class was answered by the replica, its drafts faring so."""
        name = replica.name
        if name in self._exclude:
            return
        at, known = self._clock(), self._policy.class_for(request_class)
        learner = self.learner(self._family_of(replica))
        self._heard = True
        trials = acceptance.position_counts()
        if trials is not None:
            learner.observe_trials(known, trials, at, source=name)
            self._by_position_at[name] = at
        elif acceptance.histogram is not None:
            tokens = acceptance.draft_tokens
            learner.observe_histogram(known, acceptance.histogram, at, draft_tokens=tokens, source=name)
            self._by_position_at[name] = at
        else:
            self._ledger(name).report(known, acceptance.draft_tokens)
            self._note_totals(learner, replica, known, acceptance, at)

    def note_drafts(self, replica: FleetReplica, counts: DraftCounts, at: float) -> None:
        """A scrape that started at ``at`` counted so much since the one before."""
        name, gamma = replica.name, replica.state.gamma
        if name in self._exclude:
            return
        learner = self.learner(self._family_of(replica))
        before = self._gammas.get(name)
        if gamma is not None:
            self._gammas[name] = gamma
            if before is not None and before != gamma:
                learner.note_gamma_change(at, name)
        by_position_at = self._by_position_at.get(name)
        if by_position_at is not None and at - by_position_at <= _REPORTING_S:
            return
        told = self._ledger(name).count(counts)
        if told is None:
            return
        counts, by_class = told
        shares: dict[str, float] = {}
        for request_class, drafts in by_class.items():
            if request_class is None:
                return  # whose drafts they were is not known
            known = self._policy.class_for(request_class)
            shares[known] = shares.get(known, 0.0) + drafts
        self._heard = True
        accepted, tokens = counts.full_drafts()
        learner.observe_counters(shares, counts.drafts, accepted, at, draft_tokens=tokens, source=name)

    def note_gamma_change(self, replica: FleetReplica) -> None:
        """The replica was told another gamma: what it accepts until it has settled is not believed."""
        self.learner(self._family_of(replica)).note_gamma_change(self._clock(), replica.name)

    def forget(self, name: str) -> None:
        """The replica of this name is gone; what was learned from it stays."""
        self._gammas.pop(name, None)
        self._ledgers.pop(name, None)
        self._by_position_at.pop(name, None)
        for learner in self._learners.values():
            learner.forget_source(name)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def family(self) -> str:
        """The drafter family of the policy."""
        return self._family

    @property
    def in_force(self) -> Policy:
        """The policy decided by: the file's, or the one built last."""
        return self._in_force

    @property
    def file_policy(self) -> Policy:
        """The policy as the file has it."""
        return self._policy

    def known(self, family: str) -> Mapping[str, LearnedCurve]:
        """What the last look knew of each class under a family of :attr:`families`; costs no work."""
        return self._known.get(family) or self.curves(family)

    def learner(self, family: str) -> AcceptanceLearner:
        """The learner of a family, made when it is first asked for."""
        found = self._learners.get(family)
        if found is None:
            prior = self._priors[family] = family_prior(self._policy, family)
            found = self._learners[family] = AcceptanceLearner(
                prior.curves,
                pseudo_drafts=prior.pseudo_drafts,
                half_life_s=self._settings.half_life_s,
                settle_s=self._settings.settle_s,
            )
            self._restore(family, found, prior)
        return found

    def curves(self, family: str | None = None) -> dict[str, LearnedCurve]:
        """What is known of each class under a drafter family, the policy's own by default."""
        return self.learner(family or self._family).curves(self._clock())

    @property
    def families(self) -> tuple[str, ...]:
        """The families heard of, the policy's own first."""
        return (self._family, *(family for family in self._learners if family != self._family))

    # -- the loop -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the state file, and look at what is learned once a second from now on. Needs the running event loop."""
        if self._file is not None:
            self._load(self._file)
        for family in (self._family, *self._drafters):
            self.learner(family)
        self._loop = asyncio.create_task(self._run(), name="learning")

    async def stop(self) -> None:
        """End the loop and write the state file."""
        tasks = [task for task in (self._loop, self._building) if task is not None]
        self._loop = self._building = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._save()

    async def review(self) -> None:
        """One look: drift, the table, the state file. Returns when a file that was due is written."""
        now = self._clock()
        for family in self.families:
            self._known[family] = self.learner(family).curves(now)
            for name, learned in self._known[family].items():
                self._tell_drift(family, name, learned)
        self._follow(now)
        if self._heard and now - self._saved_at >= self._settings.save_s:
            await self._save()

    async def rebuilt(self) -> None:
        """Wait for the table that is being built, if one is."""
        if self._building is not None:
            await asyncio.shield(self._building)

    def reconfigure(self, settings: LearnSettings, policy: Policy, drafters: Iterable[str] = ()) -> None:
        """Go on with other settings or another policy file, whose table is in force already.

        What was learned stays where drafter and classes are believed to be the same as before.
        """
        snapshots = {family: self._family_state(family) for family in self._learners}
        same = policy_identity(policy) == policy_identity(self._policy)
        if self._building is not None:
            self._building.cancel()
            self._building = None
        self._kept = {**self._kept, **snapshots} if same else {}
        if not same:
            if any(curve.trials for curve in self.curves().values()):
                _log.info("learning begins anew: the policy's name, model, drafter or classes are others now")
            if self._file is not None:
                self._file.ours = False
        self._policy = self._in_force = policy
        self._family = family_of(policy)
        self._learners, self._priors, self._known, self._drifted = {}, {}, {}, {} if not same else self._drifted
        self._drifted_in_force, self._built_at = frozenset(), float("-inf")
        if settings.state_file != self._settings.state_file:
            self._file = None if settings.state_file is None else StateFile(settings.state_file)
        self._settings, self._exclude = settings, frozenset(settings.exclude)
        self._drafters = tuple(drafters)
        for family in (self._family, *self._drafters):
            self.learner(family)
        self._gammas, self._ledgers, self._by_position_at = {}, {}, {}
        self._heard = True

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_REVIEW_S)
            try:
                await self.review()
            except _FAULTS as fault:
                _log.error("a look at what was learned met a fault and is lost", exc_info=fault)

    def _ledger(self, name: str) -> DraftLedger:
        return self._ledgers.setdefault(name, DraftLedger())

    def _family_of(self, replica: FleetReplica) -> str:
        return replica.settings.drafter or self._family

    def _note_totals(
        self, learner: AcceptanceLearner, replica: FleetReplica, known: str, acceptance: RequestAcceptance, at: float
    ) -> None:
        """Totals of a request, the number of its drafts estimated where the engine does not tell it."""
        gamma = acceptance.gamma
        if gamma is None:
            setting = replica.state.gamma
            gamma = setting if isinstance(setting, int) else None
        if not gamma:
            return
        tokens, drafts = float(acceptance.draft_tokens), drafts_behind(acceptance, gamma)
        if tokens <= drafts * gamma:
            learner.observe_mean(
                known, drafts, acceptance.accepted_tokens, gamma, at, draft_tokens=tokens, source=replica.name
            )

    def _tell_drift(self, family: str, name: str, learned: LearnedCurve) -> None:
        key = (family, name)
        if learned.drifted == self._drifted.get(key, False):
            return
        self._drifted[key] = learned.drifted
        gamma = max(len(learned.trials), 1)
        tell, what = (_log.warning, "has left") if learned.drifted else (_log.info, "is back within")
        tell(
            "acceptance of class %s with drafter %s %s what the policy leaves room for: %.2f tokens per step of gamma "
            "%d, %.2f believed%s",
            name, family, what, learned.curve.expected_tokens(gamma), gamma, learned.prior.expected_tokens(gamma),
            " (inferred from counters)" if learned.inferred else "",
        )  # fmt: skip

    # -- the table ----------------------------------------------------------------------------------------------------

    def _follow(self, now: float) -> None:
        """Build another table if the one in force is off."""
        if self._building is not None or now - self._built_at < self._settings.rebuild_s:
            return
        learned = self.learner(self._family).curves(now)
        change = table_change(learned, self._in_force.curves, self._drifted_in_force)
        if change is None:
            return
        self._built_at = now
        if change.curves is None:
            self._drifted_in_force = change.drifted
            self._put_in_force(self._policy)
            _log.info("no class is off any more: the table of the policy file is in force again")
            return
        self._building = asyncio.get_running_loop().create_task(
            self._build(self._policy, change.curves, change.drifted)
        )
        self._building.add_done_callback(self._built)

    async def _build(self, base: Policy, curves: Mapping[str, AcceptanceCurve], drifted: frozenset[str]) -> None:
        policy = await asyncio.to_thread(with_curves, base, curves)
        if self._policy is base:
            self._drifted_in_force = drifted
            self.rebuilds += 1
            self._put_in_force(policy)
            _log.warning("the table is built anew from learned acceptance: %s", ", ".join(sorted(drifted)))

    def _built(self, task: asyncio.Task[None]) -> None:
        if self._building is task:
            self._building = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("no table could be built from what was learned", exc_info=task.exception())

    def _put_in_force(self, policy: Policy) -> None:
        self._in_force = policy
        self._swap(policy)

    # -- the state file -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the state file holds."""
        families = {**self._kept, **{family: self._family_state(family) for family in self._learners}}
        return {"format": STATE_FORMAT, "identity": policy_identity(self._policy), "families": families}

    def _family_state(self, family: str) -> dict[str, Any]:
        return {"prior": self._priors[family].digest, "learned": self._learners[family].snapshot()}

    async def _save(self) -> None:
        if self._file is None or not self._heard:
            return
        self._saved_at, self._heard, written = self._clock(), False, False
        try:
            await asyncio.to_thread(self._file.write, self.state())
            written = True
        except OSError as error:
            self._state_failed("cannot be written", error)
        finally:
            self._heard = self._heard or not written

    def _load(self, file: StateFile) -> None:
        try:
            state = file.read()
        except (OSError, ValueError) as error:
            self._state_failed("cannot be read", error)
            return
        if state is None:
            return
        if state.get("format") != STATE_FORMAT:
            self._state_failed("is refused", f"expected the format {STATE_FORMAT}")
        elif state.get("identity") != policy_identity(self._policy):
            self._state_failed("is kept beside", "it is of another policy or drafter", logging.INFO)
        elif isinstance(families := state.get("families"), dict):
            self._kept, file.ours = families, True
            for family in list(self._learners):
                self._restore(family, self._learners[family], self._priors[family])
            _log.info("what was learned before is read from %s", file.path)
        else:
            self._state_failed("is refused", "it holds no families")

    def _restore(self, family: str, learner: AcceptanceLearner, prior: FamilyPrior) -> None:
        """Go on from what the state file holds of a family, if it does."""
        if (state := self._kept.get(family)) is None:
            return
        self._kept = {name: kept for name, kept in self._kept.items() if name != family}
        try:
            if not isinstance(state, dict) or state.get("prior") != prior.digest:
                raise ValueError("another prior was believed of it")
            learner.restore(state["learned"])
        except (ValueError, LookupError, TypeError) as error:
            self._state_failed(f"is refused for the drafter {family}", error)

    def _state_failed(self, what: str, why: object, level: int = logging.WARNING) -> None:
        self.state_failures += 1
        _log.log(level, "the state file %s %s: %s", self._settings.state_file, what, why)
