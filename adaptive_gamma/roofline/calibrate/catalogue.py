"""The families by name."""

from __future__ import annotations

from adaptive_gamma.roofline.calibrate.family import StepFamily
from adaptive_gamma.roofline.calibrate.known import Machine, ModelNumbers
from adaptive_gamma.roofline.calibrate.measured import PlainPoolFamily, TableFamily
from adaptive_gamma.roofline.calibrate.parametric import LinearFamily, MoeFamily, RooflineFamily

__all__ = ["families_for", "family_named"]


def families_for(hardware: Machine | None, numbers: ModelNumbers | None) -> list[StepFamily]:
    """Every family worth trying with what is known.

    A straight line is for dense models and a mixture of experts is for one; both are tried where it is not known which
    the model is. A roofline is tried where peaks and sizes are known.
    """
    found: list[StepFamily] = []
    if numbers is None or numbers.experts is None:
        found.append(LinearFamily())
    if numbers is None:
        found.append(MoeFamily())
    elif numbers.experts is not None:
        found.append(MoeFamily(numbers.experts.active / numbers.experts.count))
    if hardware is not None and numbers is not None:
        found.append(RooflineFamily(hardware, numbers))
    return [*found, PlainPoolFamily("log"), PlainPoolFamily("linear"), TableFamily()]


def family_named(name: str, hardware: Machine | None, numbers: ModelNumbers | None) -> StepFamily:
    """A family by its name, made with what is known.

    Raises ValueError for a name there is not, and for a roofline without peaks and sizes.
    """
    by_name = {f.name: f for f in families_for(hardware, numbers)}
    by_name.setdefault("linear", LinearFamily())
    by_name.setdefault("moe", MoeFamily())
    by_name["plain_pool"] = by_name["plain_pool/log"]
    by_name["table"] = TableFamily()
    if name == "roofline" and name not in by_name:
        raise ValueError("model 'roofline' needs the peaks of the hardware and the sizes of the model")
    if name not in by_name:
        raise ValueError(f"model must be one of roofline, {', '.join(by_name)}, not {name!r}")
    return by_name[name]
