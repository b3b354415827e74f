"""Whether the model that a policy is asked for is the one that the files say was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence

from adaptive_gamma.bench.importers import ImportFinding
from adaptive_gamma.bench.row import SweepRow
from adaptive_gamma.errors import SweepError
from adaptive_gamma.policy import model_named
from adaptive_gamma.roofline import ModelShape
from adaptive_gamma.roofline.calibrate import ModelNumbers

__all__ = ["model_measured", "told_model"]

_SAME_SIZE = 1.1
"""Factor between two counts of a model's parameters up to which they may mean the same model."""


def told_model(name: str) -> ModelShape | None:
    """The known model that a served name means: by its name, or by the known name within it, as in ``org/NAME-FP8``."""
    parts = re.split(r"[-_]", name.rstrip("/").rsplit("/", 1)[-1])
    for length in range(len(parts), 0, -1):
        for first in range(len(parts) - length + 1):
            known = model_named("-".join(parts[first : first + length]))
            if known is not None:
                return known
    return None


def model_measured(
    rows: Sequence[SweepRow], model_name: str | None, numbers: ModelNumbers | None
) -> tuple[ImportFinding, ...]:
    """A remark where the files call the asked model by a name that tells nothing.

    Args:
        rows: of one model, as the import leaves them.
        model_name: what ``--model`` named; None where nothing was asked.
        numbers: its sizes.

    Raises SweepError where the files name another model.
    """
    row = next((row for row in rows if row.model), None)
    if row is None or row.model is None or model_name is None or _squeezed(row.model) == _squeezed(model_name):
        return ()
    told, asked = told_model(row.model), told_model(model_name)
    if told is None:
        words = f"the files call the model {row.model!r}; that it is {model_name}, and its sizes, rest on --model alone"
        return (ImportFinding(row.source, "model", words, "note"),)
    if asked is not None:
        same = asked.name == told.name
    else:
        # A config.json may well lack a name; its sizes tell.
        same = numbers is None or told.active_parameters is None or _near(numbers, told.active_parameters)
    if not same:
        raise SweepError(
            str(row.source),
            "model",
            f"the files were measured on {row.model!r}, but --model is {model_name}; a policy is of one model: "
            f"give --model {told.name}",
        )
    return ()


def _near(numbers: ModelNumbers, parameters: float) -> bool:
    return max(numbers.flops_per_token, 2.0 * parameters) <= _SAME_SIZE * min(numbers.flops_per_token, 2.0 * parameters)


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
