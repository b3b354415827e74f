"""Drafter families of a fleet: what is believed of each, and by what it is known again after a restart."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.policy import Policy, family_named
from adaptive_gamma.policy.physics import curve_of
from adaptive_gamma.roofline import AcceptanceCurve

__all__ = ["FamilyPrior", "family_of", "family_prior", "policy_identity"]


@dataclass(frozen=True, slots=True)
class FamilyPrior:
    """What is believed of a family's acceptance, by class of the policy."""

    curves: dict[str, AcceptanceCurve]
    pseudo_drafts: dict[str, float]

    @property
    def digest(self) -> str:
        """Changes with anything in it."""
        return _digest(
            {
                name: [list(curve.conditional), curve.plateau, self.pseudo_drafts[name]]
                for name, curve in self.curves.items()
            }
        )


def family_of(policy: Policy) -> str:
    """The drafter family a policy is made for: its name, or its kind where it has none."""
    drafter = policy.inputs.drafter
    return drafter.family or drafter.kind


def family_prior(policy: Policy, family: str) -> FamilyPrior:
    """The policy's own classes for its family. For another one the shipped library's figures, where it has that family
    and class, else the policy's too."""
    curves = dict(policy.curves)
    pseudo = {name: prior.pseudo_drafts for name, prior in policy.inputs.classes.items()}
    known = None if family == family_of(policy) else family_named(family)
    if known is not None:
        for name, prior in known.classes().items():
            if name in curves:
                curves[name] = curve_of(prior, family, name)
                pseudo[name] = prior.pseudo_drafts
    return FamilyPrior(curves, pseudo)


def policy_identity(policy: Policy) -> dict[str, str]:
    """By what a policy is known again: its name, its model, and what it says of drafter and classes.

    Hardware, step times and limits are left out, as acceptance does not hang on them.
    """
    inputs = policy.inputs.model_dump(mode="json")
    return {
        "policy": policy.name,
        "model": "" if policy.inputs.model is None else policy.inputs.model.name,
        "drafter": _digest(inputs["drafter"]),
        "classes": _digest([inputs["classes"], inputs["default_class"]]),
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
