"""Finds values that are null although their column excludes null, including in nested columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as kinds


def excludes_null(field: pa.Field) -> bool:
    """Whether a column, or a part of it, can't be null."""
    return not field.nullable or any(excludes_null(part) for part in _parts_of(field.type))


def null_in(values: pa.Array, field: pa.Field, above: str = "") -> str | None:
    """Path of the part of a column that is null although its field excludes it; `None` if there is none.

    Example:
        >>> field = pa.field("place", pa.struct([pa.field("city", pa.string(), nullable=False)]))
        >>> null_in(pa.array([None, {"city": None}], field.type), field)
        'place.city'
    """
    path = f"{above}.{field.name}" if above else field.name
    if not field.nullable and values.null_count:
        return path
    if not any(map(excludes_null, _parts_of(field.type))):
        return None
    filled: Any = values.drop_null()
    if kinds.is_struct(field.type):
        parts = [filled.field(index) for index in range(filled.type.num_fields)]
    elif kinds.is_map(field.type):
        first, last = filled.offsets[0].as_py(), filled.offsets[-1].as_py()
        parts = [filled.items.slice(first, last - first)]
    else:
        parts = [filled.flatten()]
    found = (null_in(part, of, path) for part, of in zip(parts, _parts_of(field.type), strict=True))
    return next((each for each in found if each is not None), None)


def _parts_of(kind: Any) -> list[pa.Field]:
    """The fields in a type; keys of maps are never null in Arrow."""
    if kinds.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    if kinds.is_map(kind):
        return [kind.item_field]
    return [kind.value_field] if kinds.is_list(kind) else []
