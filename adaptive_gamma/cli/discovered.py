"""Replicas that are found, handed to whatever serves them: as a reload does it, without a file being read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from adaptive_gamma.config import ReplicaSettings, Settings
from adaptive_gamma.discovery import Discovery
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import Policy

__all__ = ["Body", "DiscoveredReplicas", "first_replicas"]


class Body(Protocol):
    """What a configuration and its replicas are handed to: the proxy, the files of an Envoy, the picker."""

    settings: Settings
    """What is in force, with the replicas of now."""
    draining: bool
    discovery: Callable[[], list[dict[str, Any]]]
    """What is known of the places where replicas are found, a row for each."""

    def apply(
        self,
        settings: Settings,
        policy: Policy,
        origin: Callable[[str], str],
        *,
        not_ready: Collection[str],
    ) -> None:
        """Go on with another configuration. All or nothing; ``origin`` names who gave a key.

        Raises ConfigurationError where it cannot, having counted that.
        """

    def take_replicas(self, replicas: Sequence[ReplicaSettings], not_ready: Collection[str]) -> None:
        """Go on with other replicas: those ``not_ready`` get nothing new, and do not join if they are new."""

    def reload_failed(self) -> None:
        """Count a configuration that was refused before it came here."""


def first_replicas(settings: Settings, discovery: Discovery) -> Settings:
    """The settings with the replicas that are known and ready now, for a fleet that is about to be made."""
    found = discovery.replicas(settings.replicas)
    ready = [replica for replica in found.replicas if replica.name not in found.not_ready]
    return settings.model_copy(update={"replicas": ready})


class DiscoveredReplicas:
    """Keeps the replicas of a body those that are configured and those that are found.

    Args:
        settings: as configured; ``replicas`` are those that need not be found.
        discovery: is started, and stopped, by whoever made it.
        body: gets the replicas.
    """

    def __init__(self, settings: Settings, discovery: Discovery, body: Body) -> None:
        self.body = body
        self._static = settings.replicas
        self._discovery = discovery
        self._due = False
        discovery.changed = self._changed
        body.discovery = discovery.status
        self._changed()  # what was found since the fleet was made

    def reload(self, settings: Settings, policy: Policy, origin: Callable[[str], str]) -> None:
        """Go on with another configuration, its section ``discovery`` included. All or nothing.

        What is known of a place that stays in the section is kept, so that its replicas do not go and come again.

        Raises ConfigurationError; nothing has changed then, except that the refusal is counted.
        """
        try:
            prepared = self._discovery.prepared(settings.discovery, origin)
        except ConfigurationError:
            self.body.reload_failed()
            raise
        found = prepared.replicas(settings.replicas)
        whole = settings.model_copy(update={"replicas": list(found.replicas)})
        self.body.apply(whole, policy, origin, not_ready=found.not_ready)
        self._static = settings.replicas
        self._discovery.take(prepared)
        self._changed()

    def _changed(self) -> None:
        """Several changes of one moment are taken at once."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        self._due = False
        if not self.body.draining:
            found = self._discovery.replicas(self._static)
            self.body.take_replicas(found.replicas, found.not_ready)
