"""Whether the classes that the settings name are classes of the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from adaptive_gamma.config.settings import Settings
from adaptive_gamma.errors import ConfigurationError, nearest

__all__ = ["check_class_names"]


def check_class_names(settings: Settings, known: Iterable[str], origin: Callable[[str], str]) -> None:
    """Raise ConfigurationError for the first class in ``classify`` that is not among ``known``.

    ``origin`` names the file or variable that gave a dotted key.
    """
    choices = sorted(set(known))
    named = [("classify.default", settings.classify.default)]
    named += [(f"classify.rules[{n}].class", rule.request_class) for n, rule in enumerate(settings.classify.rules)]
    for key, name in named:
        if name not in choices:
            shown = repr(name if len(name) <= 60 else name[:57] + "...")
            problem = f"expected a class of the policy ({', '.join(choices)}), not {shown}"
            raise ConfigurationError(origin(key), key, problem, nearest(name, choices))
