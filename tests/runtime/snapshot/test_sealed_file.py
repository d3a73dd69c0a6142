"""Sealed files whose checksum is right and whose content is anything."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
import xxhash

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.snapshot.metadata import decode_atoms, decode_metadata
from penstock.runtime.snapshot.sealed_file import items, mapping, seal, seconds, text, unseal, whole

MAGIC = b"EXAMPLE."
LIST_AS_KEY = b"\x81\x91\x01\x01"


def sealed(packed: bytes, magic: bytes = MAGIC) -> bytes:
    version = struct.pack(">H", 1)
    return magic + version + xxhash.xxh3_128_digest(version + packed) + packed


def nested(levels: int) -> Any:
    value: Any = []
    for level in range(levels - 1):
        value = [1, value] if level % 2 else {"a": value, "b": 2}
    return value


def test_a_list_as_a_key_is_damage() -> None:
    with pytest.raises(CorruptSnapshotError, match=r"an example but is damaged.*unhashable"):
        unseal(MAGIC, 1, sealed(LIST_AS_KEY), "an example", "x")
    with pytest.raises(CorruptSnapshotError, match="the list state in x is damaged"):
        decode_atoms(LIST_AS_KEY, "x")


def test_what_is_nested_as_deep_as_allowed_comes_back() -> None:
    assert unseal(MAGIC, 1, seal(MAGIC, 1, nested(100)), "an example", "x") == nested(100)


@pytest.mark.parametrize("levels", [101, 300, 500])
def test_what_is_nested_deeper_is_damage(levels: int) -> None:
    with pytest.raises(CorruptSnapshotError, match=r"x should be an example .* deeper than 100 levels"):
        unseal(MAGIC, 1, seal(MAGIC, 1, nested(levels)), "an example", "x")


@pytest.mark.parametrize("levels", [990, 1_020, 1_100, 100_000])
def test_a_file_nested_deeper_than_the_stack_is_damage(levels: int) -> None:
    deep = sealed(b"\x91" * levels + b"\x90", b"PENSTKCP")
    with pytest.raises(CorruptSnapshotError, match="x should be the metadata of a checkpoint but is damaged"):
        decode_metadata(deep, "x")


def test_a_field_of_another_type_is_shown_in_a_few_characters() -> None:
    deep: Any = msgpack.unpackb(b"\x91" * 1_020 + b"\x90")
    for check in (whole, seconds, text, mapping):
        for value in (deep, ["x" * 1_000] * 1_000):
            with pytest.raises(TypeError) as caught:
                check(value)
            assert len(str(caught.value)) < 160
    with pytest.raises(TypeError, match="'x' where a list should be"):
        items("x")
