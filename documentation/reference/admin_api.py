"""The HTTP interface of the admin ports, from what FastAPI says of itself, and the paths of the data port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.testclient import TestClient

from adaptive_gamma.routing.endpoints import Endpoint, EndpointTable, Handling
from documentation.reference.bodies import admin_apps
from documentation.reference.markdown import code, page, table

__all__ = ["admin_api_page", "operations"]

_ADMIN = {
    "serve": "The admin port of `adaptive-gamma serve`.",
    "envoy": "The admin port of `adaptive-gamma envoy`, beside Envoy's own.",
    "picker": "The admin port of `adaptive-gamma picker`.",
}
_HANDLING = {
    Handling.DECIDE: "by the decision",
    Handling.MODELS: "answered from the lists of the replicas",
    Handling.SEARCH: "asked of each healthy replica in turn",
}


def operations(app: FastAPI) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and OpenAPI description of everything that can be asked for."""
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def admin_api_page() -> str:
    """The page."""
    parts = [
        "The admin port has no login and listens on this machine only, unless `admin` of the "
        "[configuration](configuration.md) says otherwise. It shows replicas, decisions and classes, no text "
        "of prompts "
        "or answers. `/openapi.json` is its description for machines, `/docs` a page about it (that page "
        "alone, made by "
        "FastAPI, loads scripts from elsewhere).",
    ]
    for command, app in admin_apps().items():
        parts += [f"## {command}", _ADMIN[command], _admin_table(app)]
        pages = _pages(app)
        if pages:
            parts.append("The JSON pages have these fields at the top, here before anything has been read:")
            parts.append(table(("path", "fields"), pages))
    parts += [
        "## Data port",
        "What `serve`, `envoy` and `picker` take for the engines. Everything else is 404, unless "
        "`allow_paths` names it. "
        "Bodies and answers are the engines' own.",
        table(
            ("path", "methods", "body", "goes to a replica"),
            [_data_row(path, each) for path, each in EndpointTable().fixed()],
        ),
        "And `/v1/models/NAME`, `/v1/responses/ID` (GET, DELETE) and `/v1/responses/ID/cancel` (POST), by the replica "
        "that stores the response, else by asking each.",
    ]
    return page("HTTP interfaces", *parts)


def _admin_table(app: FastAPI) -> str:
    rows = []
    for path, method, operation in operations(app):
        parameters = "; ".join(_parameter(each) for each in operation.get("parameters", ()) if each["in"] != "header")
        form = next(iter(operation["responses"].get("200", {}).get("content", ())), "")
        rows.append((f"`{method} {path}`", operation.get("summary", ""), parameters, form))
    described = {path for path, _, _ in operations(app)}
    for route in app.routes:
        if (
            isinstance(route, Route)
            and route.path not in described
            and not route.path.startswith(("/docs", "/openapi"))
        ):
            rows.append((f"`{', '.join(sorted((route.methods or set()) - {'HEAD'}))} {route.path}`", "", "", ""))
    return table(("request", "what", "query", "answer"), rows)


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    bounds = [f"{word} {schema[key]:g}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    default = f", {schema['default']:g} by default" if isinstance(schema.get("default"), int | float) else ""
    return f"{code(parameter['name'])} ({' '.join([schema.get('type', 'text'), *bounds])}{default})"


def _pages(app: FastAPI) -> list[tuple[str, str]]:
    """The JSON pages that can be asked for without a stream and their fields."""
    client = TestClient(app)
    rows = []
    for path, method, operation in operations(app):
        answer = operation["responses"].get("200", {}).get("content", {})
        if method == "GET" and "application/json" in answer and "{" not in path:
            body = client.get(path).json()
            fields = [code(name) for name in body]
            for name, value in body.items():
                if isinstance(value, list) and value and isinstance(value[0], dict):
                    fields.append(f"each of {code(name)}: " + ", ".join(code(key) for key in value[0]))
            rows.append((f"`{path}`", "; ".join([", ".join(fields[: len(body)]), *fields[len(body) :]])))
    return rows


def _data_row(path: str, endpoint: Endpoint) -> tuple[str, str, str, str]:
    methods = ", ".join(sorted(method.decode() for method in endpoint.methods))
    return f"`{path}`", methods, "JSON" if endpoint.json else "as it comes", _HANDLING[endpoint.handling]
