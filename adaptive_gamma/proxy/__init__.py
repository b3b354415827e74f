"""The reverse proxy: a data port that passes bytes and an admin port that says what it knows."""

from adaptive_gamma.fleet.choice import Choice, Chooser, ServedPolicy
from adaptive_gamma.proxy.admin_app import admin_app
from adaptive_gamma.proxy.data_path import DataPath
from adaptive_gamma.proxy.data_plane import DataPlane
from adaptive_gamma.proxy.decision_log import DecisionLog, DecisionRecord
from adaptive_gamma.proxy.engine_connection import AnswerSink
from adaptive_gamma.proxy.http_server import ProxyServer
from adaptive_gamma.proxy.metrics import ProxyMetrics
from adaptive_gamma.proxy.upstream import Upstream, UpstreamCall, UpstreamLimits

__all__ = [
    "AnswerSink",
    "Choice",
    "Chooser",
    "DataPath",
    "DataPlane",
    "DecisionLog",
    "DecisionRecord",
    "ProxyMetrics",
    "ProxyServer",
    "ServedPolicy",
    "Upstream",
    "UpstreamCall",
    "UpstreamLimits",
    "admin_app",
]
