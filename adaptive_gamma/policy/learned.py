"""The same policy with other acceptance: what was learned in place of what was believed."""

from __future__ import annotations

from collections.abc import Mapping

from adaptive_gamma.errors import PolicyError, nearest
from adaptive_gamma.policy.schema import ClassPrior
from adaptive_gamma.policy.table import Policy, build_policy
from adaptive_gamma.roofline import AcceptanceCurve

__all__ = ["with_curves"]

_LEARNED = "learned from traffic"


def with_curves(policy: Policy, curves: Mapping[str, AcceptanceCurve]) -> Policy:
    """A new policy of the same inputs, but for the curves of some classes, its table built anew.

    Evidence of a sweep stays with the policy given: what it measured is not this policy's acceptance. Building takes
    some milliseconds, and longer for a large table, so a process that serves does it in a worker thread; the policy
    given is only read.

    Raises PolicyError for a class that the policy lacks.
    """
    classes = dict(policy.inputs.classes)
    for name, curve in curves.items():
        if name not in classes:
            raise PolicyError(policy.name, f"inputs.classes.{name}", "no such class", nearest(name, classes))
        rates = list(curve.conditional) or [curve.plateau]
        classes[name] = ClassPrior(
            reading="conditional",
            rates=rates,
            plateau=curve.plateau,
            pseudo_drafts=classes[name].pseudo_drafts,
            source=_LEARNED,
        )
    document = policy.document
    return build_policy(
        policy.inputs.model_copy(update={"classes": classes}),
        name=policy.name,
        description=document.description,
        sources=document.sources,
        measured=[*document.measured, f"acceptance of {', '.join(curves)}: {_LEARNED}"]
        if curves
        else document.measured,
        assumed=document.assumed,
        source=policy.name,
    )
