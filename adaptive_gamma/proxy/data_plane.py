"""What the data port and the admin port share: one object, made at the start from the settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from adaptive_gamma.config.settings import Settings
from adaptive_gamma.proxy.choice import Chooser, ServedPolicy
from adaptive_gamma.proxy.decision_log import DecisionLog
from adaptive_gamma.proxy.endpoints import EndpointTable
from adaptive_gamma.proxy.metrics import ProxyMetrics
from adaptive_gamma.proxy.upstream import Upstream, UpstreamLimits
from adaptive_gamma.routing import ClassRule, DecisionLimits, RequestClassifier

if TYPE_CHECKING:
    from adaptive_gamma.fleet import Fleet

__all__ = ["DataPlane"]


class DataPlane:
    """Settings, fleet, policy, engines' connections, counters and the decision log of one process.

    ``clock`` is the fleet's: monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        policy: ServedPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.fleet = fleet
        self.endpoints = EndpointTable(settings.allow_paths)
        self.metrics = ProxyMetrics(fleet, clock)
        self.decisions = DecisionLog(settings.decision.keep)
        self.chooser = Chooser(
            fleet,
            policy,
            mode=settings.mode,
            limits=DecisionLimits(kv_usage=settings.decision.kv_usage_limit, slo_tpot_s=settings.decision.slo_tpot_s),
            clock=clock,
        )
        self.classifier = self._classifier(policy)
        header = settings.classify.header
        self.class_header = None if header is None else header.lower().encode("ascii")
        key = settings.engine_api_key
        self.engine_key = None if key is None else key.get_secret_value().encode("utf-8")
        self.draining = False
        """Set when the process has been told to stop; it is then not ready."""
        limits = settings.limits
        times = UpstreamLimits(limits.connect_timeout_s, limits.first_byte_timeout_s, limits.idle_timeout_s)
        self.upstreams = {
            replica.name: Upstream(
                replica.url,
                times,
                on_open=self.metrics.connection_opened(replica.name),
                on_resend=lambda: self.metrics.retried("stale_connection"),
            )
            for replica in settings.replicas
        }

    @property
    def policy(self) -> ServedPolicy:
        """The policy in force."""
        return self.chooser.policy

    def replace_policy(self, policy: ServedPolicy) -> None:
        """Decide by another policy from the next request on."""
        self.chooser.policy = policy
        self.classifier = self._classifier(policy)

    @property
    def ready(self) -> bool:
        """Whether requests should come here."""
        return self.not_ready_because is None

    @property
    def not_ready_because(self) -> str | None:
        """Why requests should not come here (yet), or None."""
        if self.draining:
            return "draining"
        if not self.fleet.looked:
            return "the replicas have not been looked at yet"
        if not any(state.healthy and not state.draining for state in self.fleet.states):
            return "no replica is healthy"
        return None

    def close(self) -> None:
        """Drop the idle connections to engines."""
        for upstream in self.upstreams.values():
            upstream.close()

    def _classifier(self, policy: ServedPolicy) -> RequestClassifier:
        classify = self.settings.classify
        rules = [ClassRule(rule.request_class, path=rule.path, model=rule.model) for rule in classify.rules]
        return RequestClassifier(rules, default=classify.default, known=policy.classes)
