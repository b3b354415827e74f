"""Why a fit is refused."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.roofline.calibrate.parameter import Parameter

__all__ = ["UnderDetermined"]

_MOST_NAMED = 4


class UnderDetermined(ConfigurationError):
    """The observations cannot tell the parameters of the model asked for; it says which, and what would tell them."""

    def __init__(self, model: str, problem: str, parameters: Sequence[Parameter] = ()) -> None:
        self.model = model
        self.parameters = tuple(p.name for p in parameters)
        groups: dict[str, list[str]] = {}
        for parameter in parameters:
            groups.setdefault(parameter.told_by, []).append(parameter.name)
        needed = "; ".join(
            f"{_listed(names)} {'needs' if len(names) == 1 else 'need'} {told_by}" for told_by, names in groups.items()
        )
        super().__init__("calibration", model, f"{problem}{': ' if needed else ''}{needed}")


def _listed(names: list[str]) -> str:
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
