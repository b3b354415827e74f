"""The reverse proxy: a data port that passes bytes and an admin port that says what it knows."""

from adaptive_gamma.proxy.admin_app import admin_app
from adaptive_gamma.proxy.choice import Choice, Chooser, ServedPolicy
from adaptive_gamma.proxy.data_app import DataApp
from adaptive_gamma.proxy.data_plane import DataPlane
from adaptive_gamma.proxy.decision_log import DecisionLog, DecisionRecord
from adaptive_gamma.proxy.http_server import Listener, ProxyServer
from adaptive_gamma.proxy.metrics import ProxyMetrics
from adaptive_gamma.proxy.upstream import Upstream, UpstreamLimits, UpstreamResponse

__all__ = [
    "Choice",
    "Chooser",
    "DataApp",
    "DataPlane",
    "DecisionLog",
    "DecisionRecord",
    "Listener",
    "ProxyMetrics",
    "ProxyServer",
    "ServedPolicy",
    "Upstream",
    "UpstreamLimits",
    "UpstreamResponse",
    "admin_app",
]
