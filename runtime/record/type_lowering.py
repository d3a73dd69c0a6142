"""How values of everything but the builtin containers are lowered; decided once per type.

The order: simple types, enums, numpy, named tuples and dataclasses, and pickle for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum, Flag
from typing import Any, Final

import numpy as np
from msgpack import ExtType

from penstock.runtime.record.class_directory import ClassDirectory
from penstock.runtime.record.datetime_columns import datetimes_to_payload
from penstock.runtime.record.extension_codes import FLAGS_SEPARATOR, ExtensionCode
from penstock.runtime.record.leaf_types import LEAF_TYPES, UNSUPPORTED
from penstock.runtime.record.numpy_values import (
    array_to_payload,
    is_numpy_scalar_type,
    scalar_to_payload,
    scalars_to_payload,
)
from penstock.runtime.record.pickle_fallback import PickleFallback
from penstock.runtime.record.record_shapes import RecordShape, shape_of
from penstock.runtime.record.value_encoder import Lower, LowerColumn, ValueEncoder, extension_of

_LEAVES: Final = {leaf.type: leaf for leaf in LEAF_TYPES}


class TypeLowering:
    """Answers the encoder's question how a type is lowered.

    Args:
        encoder: Encodes what a value is lowered to.
        classes: Finds classes by name.
        pickles: Takes values that nothing else takes.
    """

    def __init__(self, encoder: ValueEncoder, classes: ClassDirectory, pickles: PickleFallback) -> None:
        self._encoder = encoder
        self._classes = classes
        self._pickles = pickles

    def resolve(self, kind: type) -> tuple[Lower, LowerColumn]:
        """How values of exactly this type are lowered, one by one and as a column.

        Raises:
            CodecError: It is a record or enum whose class could not be found again by name.
        """
        leaf = _LEAVES.get(kind)
        if leaf is not None:
            return self._simple(
                leaf.code, leaf.to_payload, datetimes_to_payload if kind is datetime else None
            )
        if issubclass(kind, Enum):
            return self._enum(kind)
        if kind is np.ndarray:
            return self._array, _one_by_one
        if is_numpy_scalar_type(kind):
            return self._numpy_scalar()
        shape = shape_of(kind)
        return self._pickled(kind) if shape is None else self._record(shape)

    def _simple(
        self,
        code: int,
        to_payload: Callable[[Any], Any],
        together: Callable[[Sequence[Any]], Any] | None,
    ) -> tuple[Lower, LowerColumn]:
        extension, pickled = self._encoder.extension, self._pickled_value

        def single(value: Any, depth: int) -> ExtType:
            payload = to_payload(value)
            return pickled(value) if payload is UNSUPPORTED else extension(code, payload)

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            payload = UNSUPPORTED if together is None else together(values)
            if payload is not UNSUPPORTED:
                return extension(ExtensionCode.DATETIMES, payload)
            payloads = list(map(to_payload, values))
            return None if UNSUPPORTED in payloads else extension(ExtensionCode.LEAVES, [code, payloads])

        return single, column

    def _enum(self, kind: type[Enum]) -> tuple[Lower, LowerColumn]:
        name = self._classes.name_of(kind)
        members: Mapping[str, Any] = kind.__members__
        extension, pickled = self._encoder.extension, self._pickled_value
        combined = issubclass(kind, Flag)

        def token(value: Any) -> Any:
            name, number = value._name_, value._value_
            if members.get(name) is value:
                return name
            if not combined or type(number) is not int:
                return UNSUPPORTED
            parts: list[Any] = [part for part in value if members.get(part._name_) is part]
            is_named = len(parts) > 1 and sum(part._value_ for part in parts) == number
            return FLAGS_SEPARATOR.join(part._name_ for part in parts) if is_named else number

        def single(value: Any, depth: int) -> ExtType:
            payload = token(value)
            return (
                pickled(value) if payload is UNSUPPORTED else extension(ExtensionCode.ENUM, [*name, payload])
            )

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            tokens = list(map(token, values))
            return None if UNSUPPORTED in tokens else extension(ExtensionCode.ENUMS, [*name, tokens])

        return single, column

    def _numpy_scalar(self) -> tuple[Lower, LowerColumn]:
        extension = self._encoder.extension
        single, _ = self._simple(ExtensionCode.NUMPY_SCALAR, scalar_to_payload, None)

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            payload = scalars_to_payload(values)
            return None if payload is UNSUPPORTED else extension(ExtensionCode.NUMPY_SCALARS, payload)

        return single, column

    def _array(self, value: np.ndarray[Any, Any], depth: int) -> ExtType:
        payload = array_to_payload(value)
        if payload is None:
            return self._pickled_value(value)
        dtype, shape, order, content = payload
        lowered = self._encoder.column(content, depth) if isinstance(content, list) else content
        return self._encoder.extension(ExtensionCode.ARRAY, [dtype, shape, order, lowered])

    def _record(self, shape: RecordShape) -> tuple[Lower, LowerColumn]:
        name = self._classes.name_of(shape.cls)
        encoder, fields, pickled = self._encoder, list(shape.names), self._pickled_value

        def single(value: Any, depth: int) -> ExtType:
            state = shape.state_of(value)
            if state is None or (type(state) is dict and shape.hides_method(state) is not None):
                return pickled(value)
            return encoder.extension(ExtensionCode.RECORD, [*name, fields, encoder.lower(state, depth)])

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            states = shape.states_of(values)
            if states is None:
                return None
            return encoder.extension(ExtensionCode.RECORDS, [*name, fields, encoder.column(states, depth)])

        return single, column

    def _pickled(self, kind: type) -> tuple[Lower, LowerColumn]:
        def single(value: Any, depth: int) -> ExtType:
            return self._pickled_value(value)

        def column(values: Sequence[Any], depth: int) -> ExtType:
            # In one pickle the class is named once.
            return extension_of(ExtensionCode.PICKLES, self._pickles.dumps_all(list(values), kind))

        return single, column

    def _pickled_value(self, value: Any) -> ExtType:
        return extension_of(ExtensionCode.PICKLE, self._pickles.dumps(value, type(value)))


def _one_by_one(values: Sequence[Any], depth: int) -> None:
    return None
