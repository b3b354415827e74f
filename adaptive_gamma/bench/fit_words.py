"""What a fit is worth, and what to measure where there is none, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adaptive_gamma.roofline.calibrate import FAR, POOR_FIT, Calibration, Observation, UnderDetermined

__all__ = ["contradictions", "error_words", "no_model", "no_plain_words", "poor_fit_words"]

MOST_POINTS = 5
"""Measured points named where a model contradicts many."""


def error_words(found: Calibration) -> str:
    """The mean error, over how many observations, and how many of them the model rests on."""
    count = len(found.residuals)
    return f"mean error {found.mean_error:.1%} over all observations ({found.reached} of {count} fitted)"


def contradictions(found: Calibration, *, places: bool = False) -> str | None:
    """Where the model is more than 10 % off a measured point, the worst first; None where it is not.

    Args:
        found: the model.
        places: whether to name file and line.
    """
    far = found.contradicted
    if not far:
        return None
    named = [
        f"{one.relative_error:+.0%} at batch {one.observation.batch:.3g}, "
        f"{f'gamma {one.observation.gamma}' if one.observation.speculative else 'plain'}"
        + (f" ({one.observation.label})" if places and one.observation.label else "")
        for one in far[:MOST_POINTS]
    ]
    more = f"; and {len(far) - MOST_POINTS} more" if len(far) > MOST_POINTS else ""
    return (
        f"the time per token is more than {FAR:.0%} off {len(far)} of {len(found.residuals)} measured points: "
        f"{'; '.join(named)}{more}"
    )


def poor_fit_words(found: Calibration) -> str | None:
    """Why a fit is too poor to build a policy from; None where it is good enough."""
    if found.mean_error <= POOR_FIT:
        return None
    return (
        f"the {found.family} model is {found.mean_error:.0%} off the measurements in the mean, more than "
        f"{POOR_FIT:.0%}: {contradictions(found, places=True)}. Check that these runs are of one engine and its gammas "
        "are right, or choose another --step-time; --allow-poor-fit builds from it all the same"
    )


def no_plain_words(observations: Sequence[Observation]) -> str:
    """Why a sweep without a plain arm is no ground for a policy, and what to do."""
    gammas = sorted({one.gamma for one in observations})
    arms = f"gamma {', '.join(map(str, gammas))} of an engine with a drafter"
    zero = ", and gamma 0 there is slower than plain decoding" if 0 in gammas else ""
    loads = sorted({one.load or one.batch for one in observations})
    at = f"{loads[0]:g}" if len(loads) == 1 else f"{loads[0]:g} to {loads[-1]:g}"
    return (
        f"no plain run is usable: {arms} was measured{zero}, and no engine started without a drafter, which every "
        f"speed-up is held against. Measure one at loads {at}; where a file has one and does not say so, name it with "
        "--arm LABEL=plain; --without-plain extrapolates plain decoding from the others"
    )


def no_model(observations: Sequence[Observation], reasons: Mapping[str, str]) -> UnderDetermined:
    """What to measure first, then the reason of each model."""
    listed = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    which = "any" if len(reasons) > 1 else "the"
    return UnderDetermined(
        "",
        f"these measurements are too few for {which} step-time model; {_to_measure(observations)}. In detail:{listed}",
    )


def _to_measure(observations: Sequence[Observation]) -> str:
    plain = {one.load or one.batch for one in observations if not one.speculative}
    drafting = [one for one in observations if one.gamma > 0]
    missing = []
    if len(plain) < 2:
        missing.append("the plain engine (without a drafter) at two loads or more")
    if len({one.load or one.batch for one in drafting}) < 2:
        missing.append("the engine with its drafter at two loads or more")
    if len({one.gamma for one in drafting}) < 2:
        missing.append("a second gamma" if drafting else "two gammas")
    if not missing:
        return "measure more loads, further apart, on the plain engine too"
    return f"measure {', and '.join(missing)}"
