"""A gamma knob inside of vLLM, as a plugin: sets the schedule that its running scheduler uses.

Loaded by vLLM itself, in every one of its processes. It imports nothing but the standard library and, once it is
switched on, parts of vLLM; the other dependencies of ``adaptive_gamma`` are not needed beside it
(``pip install --no-deps``).

Without ``ADAPTIVE_GAMMA_PLUGIN_FILE`` or ``ADAPTIVE_GAMMA_PLUGIN_TOKEN`` in the environment it changes nothing at all.

    settings    what the environment says
    version     the vLLM versions this was run against
    schedule    what a schedule must be
    files       the two files: the schedule that is wanted, and what became of it
    governor    engine side: takes a schedule between two steps, counts what is scheduled, reports
    hooks       where vLLM is taken hold of, and let go of again
    metrics     server side: drafts by position, gamma of the last step
    endpoint    server side: the route, guarded by a token
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from adaptive_gamma.vllm_plugin.settings import PluginSettings, SettingsError
from adaptive_gamma.vllm_plugin.version import unsupported_reason

if TYPE_CHECKING:
    from adaptive_gamma.vllm_plugin.endpoint import ScheduleEndpoint

__all__ = ["endpoint", "register"]

_log = logging.getLogger("vllm.adaptive_gamma")


def register() -> None:
    """Entry point of ``vllm.general_plugins``: takes hold of the scheduler and of the counters, where switched on.

    Never raises for what the environment holds or which vLLM this is: it says what is wrong, in the log and in the
    state file, and leaves vLLM as it is.
    """
    try:
        settings = PluginSettings.from_environment(os.environ)
    except SettingsError as error:
        _log.error("adaptive-gamma: %s; nothing is changed", error)
        return
    if not settings.active:
        return
    from adaptive_gamma.vllm_plugin.hooks import install
    from adaptive_gamma.vllm_plugin.run_directory import schedule_file_of

    path = schedule_file_of(settings, os.environ)
    problem = unsupported_reason(settings.untested)
    if problem is None:
        problem = install(path)
    if problem is not None:
        from adaptive_gamma.vllm_plugin.files import refuse

        _log.error("adaptive-gamma: %s; nothing is changed", problem)
        refuse(path, problem)


def endpoint() -> ScheduleEndpoint:
    """Entry point of ``vllm.endpoint_plugins``: the route. vLLM asks for it only if ``VLLM_PLUGINS`` names it."""
    from adaptive_gamma.vllm_plugin.endpoint import ScheduleEndpoint

    return ScheduleEndpoint(PluginSettings.from_environment(os.environ))
