"""The listeners file: where clients connect, and what their requests pass through."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files.class_filter import class_filter
from adaptive_gamma.envoy.files.names import LUA_FILTER, ROUTES_FILE, STATISTICS, TYPE, address_of, silence
from adaptive_gamma.envoy.files.replies import local_replies
from adaptive_gamma.envoy.files.routes import ROUTES_NAME

__all__ = ["internal_headers", "listeners_file"]

_OWN = "x-adaptive-gamma-"
_HEAD_KB = 64
_HTTP = TYPE + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_EARLY = "envoy.http.early_header_mutation.header_mutation"


def listeners_file(settings: Settings, listen: str, folder: Path) -> dict[str, Any]:
    """One listener at ``listen``; ``folder`` is where Envoy finds the files."""
    manager = {
        "@type": _HTTP,
        "stat_prefix": STATISTICS,
        "codec_type": "AUTO",
        "server_name": "adaptive-gamma",
        "server_header_transformation": "PASS_THROUGH",
        "rds": {
            "route_config_name": ROUTES_NAME,
            "config_source": {
                "path_config_source": {"path": str(folder / ROUTES_FILE)},
                "resource_api_version": "V3",
            },
        },
        "early_header_mutation_extensions": [
            {
                "name": _EARLY,
                "typed_config": {
                    "@type": TYPE + "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                    "mutations": [
                        {"remove_on_match": {"key_matcher": {"safe_regex": {"regex": pattern}}}}
                        for pattern in (internal_headers(settings.classify.header), "x-envoy-.*")
                    ],
                },
            }
        ],
        "http_filters": [
            {
                "name": LUA_FILTER,
                "typed_config": {
                    "@type": TYPE + "envoy.extensions.filters.http.lua.v3.Lua",
                    "default_source_code": {"inline_string": class_filter(settings)},
                },
            },
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": TYPE + "envoy.extensions.filters.http.router.v3.Router",
                    "suppress_envoy_headers": True,
                },
            },
        ],
        "local_reply_config": local_replies(),
        "use_remote_address": True,
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        "normalize_path": True,
        "max_request_headers_kb": _HEAD_KB,
        "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "localhost"},
        "stream_idle_timeout": silence(settings.limits),
        "request_headers_timeout": "75s",
    }
    return {
        "resources": [
            {
                "@type": TYPE + "envoy.config.listener.v3.Listener",
                "name": "data",
                "address": address_of(listen),
                "tcp_backlog_size": 4096,
                "filter_chains": [
                    {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
                ],
            }
        ]
    }


def internal_headers(class_header: str | None) -> str:
    """A pattern for our own request fields, but for the one in which a client may name its class.

    The patterns have no way to say "all but", so that it is spelled out: what departs from the name at its first
    character, at its second, and so on.
    """
    own = re.escape(_OWN)
    if class_header is None or not class_header.startswith(_OWN):
        return f"{own}.*"
    rest = class_header[len(_OWN) :]
    if not rest:
        return f"{own}.+"
    departing = "|".join(f"{re.escape(rest[:i])}(?:[^{re.escape(rest[i])}].*)?" for i in range(len(rest)))
    return f"{own}(?:{departing}|{re.escape(rest)}.+)"
