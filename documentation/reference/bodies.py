"""A proxy, an Envoy controller and a picker as they are right after their start; nothing listens."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from fastapi import FastAPI

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files import FilesController, Place
from adaptive_gamma.envoy.files.admin_app import controller_app, controller_families
from adaptive_gamma.envoy.picker.admin_app import picker_app, picker_families
from adaptive_gamma.envoy.picker.picker import Picker
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.fleet.exposition import Family
from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.proxy import DataPlane
from adaptive_gamma.proxy.admin_app import admin_app

__all__ = ["POLICY", "admin_apps", "published_families"]

POLICY = "h100-llama3-8b-eagle3"


@cache
def _policy() -> Policy:
    return load_policy(POLICY)


def _settings() -> Settings:
    """With everything switched on that makes series of its own."""
    return Settings.model_validate(
        {
            "policy": POLICY,
            "replicas": [
                {"name": "spec-0", "url": "http://127.0.0.1:1", "gamma": "auto", "set_gamma": "vllm_schedule",
                 "gamma_control": {"token": "x" * 32}},
                {"name": "plain-0", "url": "http://127.0.0.1:2", "gamma": 0},
            ],
        }
    )  # fmt: skip


def _fleet(settings: Settings) -> Fleet:
    return Fleet(settings.replicas, scrape=settings.scrape, health=settings.health, api_key=None, policy=_policy())


def proxy() -> DataPlane:
    """What ``serve`` serves by. Two places of discovery are pretended, as their series are there only with them."""
    settings = _settings()
    plane = DataPlane(settings, _fleet(settings), _policy())
    plane.discovery = lambda: [
        {"name": name, "ready": 0, "not_ready": [], "age_s": None, "error": None, "failures": {}}
        for name in ("spec", "plain")
    ]
    return plane


def admin_apps() -> dict[str, FastAPI]:
    """The application of each admin port, by command."""
    return {"serve": admin_app(proxy()), "envoy": controller_app(_controller()), "picker": picker_app(_picker())}


def published_families() -> dict[str, list[Family]]:
    """The families on the metrics page of each, by command."""
    return {
        "serve": list(proxy().metrics.families()),
        "envoy": list(controller_families(_controller())),
        "picker": list(picker_families(_picker())),
    }


def _controller() -> FilesController:
    settings = _settings()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder) / "envoy", "127.0.0.1:3", "127.0.0.1:4")
        return FilesController(settings, _fleet(settings), _policy(), place, interval_s=0.1)


def _picker() -> Picker:
    settings = _settings()
    return Picker(settings, _fleet(settings), _policy())
