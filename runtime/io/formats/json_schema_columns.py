"""Arrow columns of the values that a JSON Schema describes.

A property becomes a column of its type; it may also be null. Keywords that only restrict values, such as
`minimum`, don't matter. A property that may have several types has no column, and neither has an object
without properties. Such schemas need `columns=`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}


def columns_of(schema: Any, parts: Sequence[tuple[str, str]] = ()) -> pa.Schema:
    """The columns of a JSON Schema of objects; `parts` are the schemas that it refers to.

    Raises:
        ConfigurationError: A property has no Arrow type.
    """
    document = json.loads(schema) if isinstance(schema, str) else schema
    described = _Described(document, document, dict(parts)).type()
    if not pa.types.is_struct(described):
        msg = f"the JSON Schema describes values of type {described}, and columns need objects"
        raise ConfigurationError(msg)
    return pa.schema(list(described))


@dataclass(frozen=True)
class _Described:
    """One place in a schema.

    Attributes:
        document: The whole schema, in which references without a name are looked up.
        path: Names of the properties that lead here, for errors.
        followed: References that were followed to come here.
    """

    schema: Any
    document: Any
    parts: Mapping[str, str]
    path: tuple[str, ...] = ()
    followed: frozenset[str] = frozenset()

    def type(self) -> pa.DataType:
        if not isinstance(self.schema, Mapping):
            self._refuse("has no type")
        if "$ref" in self.schema:
            return self._referred(self.schema["$ref"]).type()
        kinds = [kind for kind in self._kinds() if kind != "null"]
        if len(kinds) > 1:
            self._refuse(f"has the types {', '.join(kinds)}")
        if not kinds:
            return self._only_choice().type()
        (kind,) = kinds
        if kind == "array":
            return pa.list_(replace(self, schema=self.schema.get("items")).type())
        if kind != "object":
            return _TYPES[kind]
        properties = self.schema.get("properties")
        if not properties:
            self._refuse("has no properties")
        return pa.struct(
            [
                (name, replace(self, schema=found, path=(*self.path, name)).type())
                for name, found in properties.items()
            ]
        )

    def _kinds(self) -> Sequence[str]:
        given = self.schema.get("type")
        if given is not None:
            return [given] if isinstance(given, str) else given
        if "properties" in self.schema:
            return ["object"]
        constants = self.schema.get("enum", [self.schema["const"]] if "const" in self.schema else [])
        return ["string"] if constants and all(isinstance(each, str) for each in constants) else []

    def _only_choice(self) -> _Described:
        """The alternative that is not null."""
        choices = self.schema.get("oneOf") or self.schema.get("anyOf") or self.schema.get("allOf") or ()
        left = [choice for choice in choices if choice != {"type": "null"}]
        if len(left) != 1:
            self._refuse("has several alternatives" if left else "has no type")
        return replace(self, schema=left[0])

    def _referred(self, reference: str) -> _Described:
        if reference in self.followed:
            self._refuse(f"refers to itself by {reference!r}")
        name, _, pointer = reference.partition("#")
        if name and name not in self.parts:
            self._refuse(f"refers to {reference!r}, which is not registered with it")
        document = json.loads(self.parts[name]) if name else self.document
        found = document
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                self._refuse(f"refers to {reference!r}, which does not exist")
            found = found[key]
        return replace(self, schema=found, document=document, followed=self.followed | {reference})

    def _refuse(self, why: str) -> NoReturn:
        what = f"the property {'.'.join(self.path)!r}" if self.path else "the value"
        msg = f"the JSON Schema has no columns: {what} {why}. Give columns= a pa.schema of the wanted fields"
        raise ConfigurationError(msg)
