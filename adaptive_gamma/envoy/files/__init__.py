"""Files mode: Envoy's configuration is written, and its weights rewritten as the decision changes."""

from adaptive_gamma.envoy.files.admin import EnvoyAdmin, EnvoyLoad, read_clusters
from adaptive_gamma.envoy.files.admin_app import controller_app
from adaptive_gamma.envoy.files.class_filter import LOOKED_AT, class_filter
from adaptive_gamma.envoy.files.controller import FilesController
from adaptive_gamma.envoy.files.names import BOOTSTRAP_FILE, OUT_FILES
from adaptive_gamma.envoy.files.plan import ClusterPlan, Plan, make_plan
from adaptive_gamma.envoy.files.refusals import refuse_settings
from adaptive_gamma.envoy.files.render import (
    DEFAULT_CA_FILE,
    Place,
    render_endpoints,
    render_frame,
    whole_configuration,
)

__all__ = [
    "BOOTSTRAP_FILE",
    "DEFAULT_CA_FILE",
    "LOOKED_AT",
    "OUT_FILES",
    "ClusterPlan",
    "EnvoyAdmin",
    "EnvoyLoad",
    "FilesController",
    "Place",
    "Plan",
    "class_filter",
    "controller_app",
    "make_plan",
    "read_clusters",
    "refuse_settings",
    "render_endpoints",
    "render_frame",
    "whole_configuration",
]
