"""Numpy scalars and arrays: their dtype and their raw bytes.

Only dtypes that come back exactly from their description are written this way. All others (sub-arrays with
metadata, variable-width strings, foreign dtypes) are `UNSUPPORTED` and pickled. Bytes are never read as
objects: a dtype that holds references is refused before numpy sees the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from penstock.runtime.record.leaf_types import UNSUPPORTED

_SIMPLE_KINDS: Final = frozenset("biufcmMSU")
_PLAIN_KINDS: Final = frozenset("biufc")


def is_numpy_scalar_type(cls: type) -> bool:
    """Whether this is one of numpy's own scalar types, not a subclass of one.

    Example:
        >>> is_numpy_scalar_type(np.int64), is_numpy_scalar_type(int)
        (True, False)
    """
    return issubclass(cls, np.generic) and cls.__module__ == "numpy"


def dtype_to_payload(dtype: np.dtype[Any]) -> Any:
    """Describe a dtype, or `UNSUPPORTED`.

    Example:
        >>> dtype_to_payload(np.dtype("int32"))
        '<i4'
    """
    if dtype.metadata is not None or not dtype.itemsize:
        return UNSUPPORTED
    if dtype.names is not None:
        return _structured_to_payload(dtype)
    if dtype.kind not in _SIMPLE_KINDS:
        return UNSUPPORTED
    for text in (dtype.str, dtype.char):  # the character tells `long long` from `long`
        if np.dtype(text) == dtype and np.dtype(text).char == dtype.char:
            return text
    return UNSUPPORTED


def _structured_to_payload(dtype: np.dtype[Any]) -> Any:
    assert dtype.names is not None
    assert dtype.fields is not None
    fields: list[Any] = []
    for name in dtype.names:
        field = dtype.fields[name][0]
        title = dtype.fields[name][2:]
        base = dtype_to_payload(field.base)
        if base is UNSUPPORTED or any(type(word) is not str for word in (*title, name)):
            return UNSUPPORTED
        fields.append([[*title, name], base, list(field.shape)])
    same = dtype_from_payload(fields)
    exact = (
        same == dtype and same.isalignedstruct == dtype.isalignedstruct and same.itemsize == dtype.itemsize
    )
    return fields if exact else UNSUPPORTED


def dtype_from_payload(payload: Any) -> np.dtype[Any]:
    """Read a dtype that `dtype_to_payload` described.

    Raises:
        ValueError: It would hold references to objects.
    """
    if isinstance(payload, str):
        dtype: np.dtype[Any] = np.dtype(payload)
    else:
        dtype = np.dtype(
            [
                (names[0] if len(names) == 1 else tuple(names), dtype_from_payload(base), tuple(shape))
                for names, base, shape in payload
            ]
        )
    if dtype.hasobject:
        msg = "the data describes raw bytes as Python objects"
        raise ValueError(msg)
    return dtype


def _sized_dtype(payload: Any) -> np.dtype[Any]:
    """A dtype of values that take bytes: of others there would be any number in no data."""
    dtype = dtype_from_payload(payload)
    if not dtype.itemsize:
        msg = f"the data describes values of dtype {dtype}, which take no bytes"
        raise ValueError(msg)
    return dtype


def scalar_to_payload(value: np.generic) -> Any:
    """Write one scalar as dtype and bytes, or `UNSUPPORTED`."""
    # Text that ends in NULs would lose them as raw memory, and by numpy's own conversions.
    if isinstance(value, np.str_):
        return ["U", str.__getitem__(value, slice(None))]
    if isinstance(value, np.bytes_):
        return ["S", bytes.__getitem__(value, slice(None))]
    dtype = dtype_to_payload(value.dtype)
    exact = dtype is not UNSUPPORTED and value.dtype.type is type(value)
    return [dtype, value.tobytes()] if exact else UNSUPPORTED


def scalar_from_payload(payload: Any) -> Any:
    """Read a scalar that `scalar_to_payload` wrote."""
    dtype, raw = payload
    if dtype == "U" and isinstance(raw, str):
        return np.str_(raw)
    if dtype == "S" and isinstance(raw, bytes):
        return np.bytes_(raw)
    if not isinstance(raw, bytes):  # of a number `bytearray` would make that many zeros
        msg = f"a scalar is written as bytes, not as {type(raw).__name__}"
        raise TypeError(msg)
    (value,) = np.frombuffer(bytearray(raw), _sized_dtype(dtype))
    return value


def scalars_to_payload(values: Sequence[np.generic]) -> Any:
    """Write a column of numbers of one dtype, or `UNSUPPORTED`."""
    dtype = values[0].dtype
    if dtype.kind not in _PLAIN_KINDS or dtype.type is not type(values[0]):
        return UNSUPPORTED
    return [dtype_to_payload(dtype), np.array(values, dtype).tobytes()]


def scalars_from_payload(payload: Any) -> list[Any]:
    """Read a column that `scalars_to_payload` wrote."""
    dtype, raw = payload
    return list(np.frombuffer(raw, _sized_dtype(dtype)))


def array_to_payload(array: np.ndarray[Any, Any]) -> tuple[Any, list[int], str, bytes | list[Any]] | None:
    """Write an array.

    Returns:
        Dtype, shape, memory order and the raw bytes, or the list of objects of an object array; `None` when
        its dtype is unsupported.
    """
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    shape = list(array.shape)
    if array.dtype.char == "O" and array.dtype.metadata is None:
        return "O", shape, "C", array.ravel().tolist()
    dtype = dtype_to_payload(array.dtype)
    return (
        None if dtype is UNSUPPORTED else (dtype, shape, order, array.tobytes("A" if order == "F" else "C"))
    )


def array_from_payload(payload: Any) -> np.ndarray[Any, Any]:
    """Read an array that `array_to_payload` wrote; it owns its memory and can be written to.

    Raises:
        ValueError: Shape and content do not fit together.
    """
    dtype, shape, order, content = payload
    if dtype == "O":
        if not isinstance(content, list) or min(shape, default=0) < 0 or math.prod(shape) != len(content):
            msg = f"an object array of shape {shape} does not have that many items in the data"
            raise ValueError(msg)
        flat = np.empty(len(content), dtype=object)
        for index, item in enumerate(content):  # one by one: numpy would unfold sequences
            flat[index] = item
        return flat.reshape(shape)
    kind = _sized_dtype(dtype)
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(content):
        msg = f"an array of shape {shape} and dtype {kind} does not have {len(content)} bytes"
        raise ValueError(msg)
    return np.ndarray(shape, kind, bytearray(content), order=order)
