"""Describes the paths of the server to programs (OpenAPI 3.1), made of the routes and their types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from penstock.actors.web.route import Route

_NAME = re.compile(r"{([a-z]+)}")
_REFERENCE = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
    "required": ["errors"],
}


def describe_routes(routes: Iterable[Route]) -> dict[str, Any]:
    """The description of these routes, as plain values that JSON carries."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Errors": _ERROR}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": "v1",
            "description": "Jobs of a cluster. Requests that change one need the header `X-Penstock: 1`.",
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "penstock-PORT"},
            },
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        answer["content"] = {"application/json": {"schema": _schema(route.answer, schemas)}}
    problem = {
        "description": "Why not",
        "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model="Errors")}}},
    }
    text = {"type": "string"}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in _NAME.findall(route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": means, "schema": text}
        for name, means in route.query.items()
    ]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}-{route.handler.__name__.replace('_', '-')}"
        + ("-of-savepoint" if "/savepoints/" in route.path else ""),
        "responses": {str(route.status): answer, "default": problem},
    }
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(route.body, schemas)}},
        }
    if route.is_open:
        operation["security"] = []
    return operation


def _schema(form: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    made = TypeAdapter(form).json_schema(ref_template=_REFERENCE)
    schemas.update(made.pop("$defs", {}))
    schemas[form.__name__] = made
    return {"$ref": _REFERENCE.format(model=form.__name__)}
