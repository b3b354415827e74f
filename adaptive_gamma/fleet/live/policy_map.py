"""The policy's table as the live page shows it: by class and context, ranges of batches with their best gamma."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adaptive_gamma.policy import Policy

if TYPE_CHECKING:
    from adaptive_gamma.fleet.choice import ServedPolicy

__all__ = ["policy_page"]


def policy_page(policy: ServedPolicy) -> dict[str, Any]:
    """``contexts`` are the table's, the one that prices are shown at first; a policy that is no file has None."""
    page: dict[str, Any] = {
        "name": policy.name,
        "classes": list(policy.classes),
        "default_class": policy.default_class,
        "max_gamma": policy.max_gamma,
        "max_batch": policy.max_batch,
    }
    if isinstance(policy, Policy):
        middle = policy.context_buckets[policy.context_bucket(None)]
        page["contexts"] = [middle, *(context for context in policy.context_buckets if context != middle)]
        page["map"] = {
            name: [
                {"ranges": cells[context].best_gamma, "plain_wins_from": cells[context].plain_wins_from}
                for context in page["contexts"]
            ]
            for name, cells in policy.table.classes.items()
        }
        return page
    page["contexts"] = [None]
    page["map"] = {name: [_cell(policy, name)] for name in policy.classes}
    return page


def _cell(policy: ServedPolicy, name: str) -> dict[str, Any]:
    ranges: list[list[int]] = []
    for batch in range(1, policy.max_batch + 1):
        gamma = policy.best_gamma(name, batch)
        if ranges and ranges[-1][2] == gamma:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch, gamma])
    return {"ranges": ranges, "plain_wins_from": policy.plain_wins_from(name)}
