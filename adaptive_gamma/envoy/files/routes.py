"""The routes file: which paths there are, and what is added to and taken off a request and its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files.names import (
    CLUSTER_HEADER,
    LUA_FILTER,
    METADATA,
    SEARCH_CLUSTER,
    TYPE,
    duration,
    silence,
)
from adaptive_gamma.envoy.files.plan import Plan
from adaptive_gamma.envoy.files.replies import direct_reply, error_text
from adaptive_gamma.routing.endpoints import Endpoint, EndpointTable, Handling

__all__ = ["ROUTES_NAME", "routes_file"]

ROUTES_NAME = "adaptive-gamma"
_SHOWN = ("replica", "pool", "gamma", "class", "reason")
_STEP_UP = r".*(?:\.|%2[eE])(?:\.|%2[eE]).*"
"""Two dots, however they are written."""
_ONE_MODEL = r"/v1/models/[^?#\x00-\x1f]{1,256}"
_STORED = r"/v1/responses/[A-Za-z0-9._-]{1,256}"
_MOST_REPLICAS_SEARCHED = 64
_SAFETY = 65_536
"""Bytes that a list of models may be longer than the one it replaces."""


def routes_file(plan: Plan, settings: Settings, models_page: dict[str, Any] | None) -> dict[str, Any]:
    """The one set of routes.

    Args:
        plan: names the clusters.
        settings: paths, timeouts, retries, the engines' key.
        models_page: what ``/v1/models`` answers; None, and an engine is asked.
    """
    models = None if models_page is None else json.dumps(models_page)
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": list(_routes(plan, settings, models)),
        "request_body_buffer_limit": settings.limits.body_bytes,
        "response_headers_to_add": [
            _added(f"x-adaptive-gamma-{name}", f"%UPSTREAM_METADATA({METADATA}:{name})%") for name in _SHOWN
        ],
        # An engine may be a proxy of ours itself, whose word is about its own choice.
        "response_headers_to_remove": [f"x-adaptive-gamma-{name}" for name in _SHOWN],
        "request_headers_to_remove": _removed(settings),
    }
    key = settings.engine_api_key
    if key is not None:
        host["request_headers_to_add"] = [
            # In Envoy's formats a percent sign is written twice.
            _added("authorization", f"Bearer {key.get_secret_value().replace('%', '%%')}")
        ]
    return {
        "resources": [
            {
                "@type": TYPE + "envoy.config.route.v3.RouteConfiguration",
                "name": ROUTES_NAME,
                "virtual_hosts": [host],
                "max_direct_response_body_size_bytes": _SAFETY + len((models or "").encode()),
            }
        ]
    }


def _routes(plan: Plan, settings: Settings, models: str | None) -> Iterable[dict[str, Any]]:
    nowhere = direct_reply(404, error_text(404, "there is no such path here", "path_not_found"))
    yield {"match": _path(_STEP_UP), **nowhere}
    to_default = {"route": _route(settings, {"cluster": plan.default})}
    by_methods: dict[tuple[Handling, frozenset[bytes]], list[str]] = {}
    for path, endpoint in EndpointTable(settings.allow_paths).fixed():
        by_methods.setdefault((endpoint.handling, endpoint.methods), []).append(re.escape(path))
    told = {"metadata": {"filter_metadata": {LUA_FILTER: plan.lookup}}}
    for (handling, methods), paths in by_methods.items():
        pattern, allow = "|".join(sorted(paths)), Endpoint(methods).allow.decode("ascii")
        if handling is Handling.MODELS and models is not None:
            yield {"match": _path(pattern, methods), **direct_reply(200, models)}
        elif handling is Handling.DECIDE:
            chosen = _route(settings, {"cluster_header": CLUSTER_HEADER})
            yield {"match": _path(pattern, methods), "route": chosen, **told}
        else:
            yield {"match": _path(pattern, methods), **to_default}
        yield {"match": _path(pattern, {b"OPTIONS"}), **to_default}
        yield {"match": _path(pattern), **told, **_not_allowed(allow)}
    search = {"route": _route(settings, {"cluster": SEARCH_CLUSTER}, search=True)}
    get, post = frozenset({b"GET", b"HEAD"}), frozenset({b"POST"})
    for pattern, searched in ((_ONE_MODEL, get), (_STORED, get), (_STORED + "/cancel", post)):
        yield {"match": _path(pattern, searched), **search}
        yield {"match": _path(pattern, {b"OPTIONS"}), **to_default}
        yield {"match": _path(pattern), **_not_allowed(Endpoint(searched).allow.decode("ascii"))}
    yield {"match": {"prefix": "/"}, **nowhere}


def _not_allowed(allow: str) -> dict[str, Any]:
    text = error_text(405, "this method is not allowed here", "method_not_allowed")
    return direct_reply(405, text, {"allow": allow})


def _path(pattern: str, methods: Iterable[bytes] = ()) -> dict[str, Any]:
    match: dict[str, Any] = {"safe_regex": {"regex": pattern}}
    names = "|".join(sorted(method.decode("ascii") for method in methods))
    if names:
        match["headers"] = [{"name": ":method", "string_match": {"safe_regex": {"regex": names}}}]
    return match


def _route(settings: Settings, chosen: dict[str, str], *, search: bool = False) -> dict[str, Any]:
    """No limit on the whole of an answer, which streams for as long as it does; one on its first byte and one on
    silence."""
    limits = settings.limits
    return {
        **chosen,
        "timeout": "0s",
        "idle_timeout": silence(limits),
        "auto_host_rewrite": True,
        "retry_policy": _retries(settings, search=search),
    }


def _retries(settings: Settings, *, search: bool) -> dict[str, Any]:
    """Another replica is tried when the first could not be reached, or said at once that it is busy."""
    attempts = min(max(len(settings.replicas) - 1, 0), _MOST_REPLICAS_SEARCHED) if search else settings.retry.attempts
    policy: dict[str, Any] = {
        "num_retries": attempts,
        "per_try_timeout": duration(settings.limits.first_byte_timeout_s),
    }
    if attempts:
        policy |= {
            "retry_on": "connect-failure,refused-stream,reset-before-request,retriable-status-codes",
            "retriable_status_codes": [404, 429, 503] if search else [429, 503],
            "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.01s"},
            "host_selection_retry_max_attempts": 16 if search else 5,
            "retry_host_predicate": [
                {
                    "name": "envoy.retry_host_predicates.previous_hosts",
                    "typed_config": {
                        "@type": TYPE + "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                    },
                }
            ],
        }
    if attempts and not search:
        policy["retry_priority"] = {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": TYPE + "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
                "update_frequency": 1,
            },
        }
    return policy


def _removed(settings: Settings) -> list[str]:
    """What an engine does not get: our own fields, and with a key of ours the client's."""
    names = [CLUSTER_HEADER, "x-envoy-external-address", "x-envoy-internal"]
    header = settings.classify.header
    if header is not None:
        names.append(header)
    if settings.engine_api_key is not None:
        names.append("x-api-key")
    return names


def _added(key: str, value: str) -> dict[str, Any]:
    return {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
