"""The format of list state: a list of values, each encoded by itself so that it can be redistributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgpack

from penstock.runtime.errors import CorruptSnapshotError

#: Name of raw operator state among the handles of an operator.
RAW: Final = "raw"


def encode_atoms(atoms: Sequence[bytes]) -> bytes:
    """Pack encoded values into one piece of state; each can be redistributed by itself.

    Example:
        >>> decode_atoms(encode_atoms([b"a", b"b"]), "x")
        [b'a', b'b']
    """
    packed: bytes = msgpack.packb(list(atoms))
    return packed


def decode_atoms(data: bytes, where: str) -> list[bytes]:
    """The encoded values of a list state.

    Raises:
        CorruptSnapshotError: The bytes are no list state; names `where`.
    """
    try:
        atoms = msgpack.unpackb(data)
    except (ValueError, TypeError) as error:  # TypeError: a list as a key
        msg = f"the list state in {where} is damaged: {error}"
        raise CorruptSnapshotError(msg) from error
    if not isinstance(atoms, list) or not all(isinstance(a, bytes) for a in atoms):
        msg = f"the list state in {where} is damaged: not a list of encoded values"
        raise CorruptSnapshotError(msg)
    return atoms
