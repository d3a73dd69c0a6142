"""Describes the paths of the server to programs (OpenAPI 3.1), made of the routes and their types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from penstock.actors.web.route import Route

_NAME = re.compile(r"{([a-z]+)}")
#: An attribute in a docstring, with the lines that go on.
_ATTRIBUTE = re.compile(r"^    (\w+): (.*\n(?:        .*\n)*)", re.MULTILINE)
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


class _Written(GenerateJsonSchema):
    """Dataclasses as answers have them: each attribute is there, whether it has a default or not."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def _schema(form: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    made = TypeAdapter(form).json_schema(
        ref_template=_REFERENCE, schema_generator=_Written, mode="serialization"
    )
    parts = made.pop("$defs", {})
    if "$ref" not in made:
        name = made.get("title") or form.__name__
        parts[name] = made
        made = {"$ref": _REFERENCE.format(model=name)}
    for name, part in parts.items():
        described = _described(part)
        if schemas.setdefault(name, described) != described:
            msg = f"two forms have the name {name}"
            raise ValueError(msg)
    return made


def _described(part: dict[str, Any]) -> dict[str, Any]:
    """A part with what its docstring says of each attribute, and without titles, which repeat names."""
    head, _, rest = part.get("description", "").partition("\n\nAttributes:\n")
    text = head.partition("\n\nExample:")[0].partition("\n\nArgs:")[0]
    said = dict(_ATTRIBUTE.findall(rest.partition("\n\n")[0] + "\n"))
    properties = {
        name: _untitled(known) | ({"description": _line(said[name])} if name in said else {})
        for name, known in part.get("properties", {}).items()
    }
    described = _untitled(part) | ({"description": _line(text)} if text else {})
    return described | ({"properties": properties} if properties else {})


def _untitled(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "title"}


def _line(text: str) -> str:
    return " ".join(text.split())
