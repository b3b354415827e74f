"""Why a fit is refused."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.roofline.calibrate.parameter import Parameter

__all__ = ["UnderDetermined"]


class UnderDetermined(ConfigurationError):
    """The observations cannot tell the parameters of the model asked for; it says which, and what would tell them."""

    def __init__(self, model: str, problem: str, parameters: Sequence[Parameter] = ()) -> None:
        self.model = model
        self.parameters = tuple(p.name for p in parameters)
        needed = "; ".join(dict.fromkeys(f"{p.name} needs {p.told_by}" for p in parameters))
        super().__init__("calibration", model, f"{problem}{': ' if needed else ''}{needed}")
