"""Files of keyed state that are damaged or do not fit are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from heap_setup import ALL, Files, delete, new_backend, put, restored, take
from xxhash import xxh3_64_digest

from penstock.runtime.errors import (
    ConfigurationError,
    CorruptSnapshotError,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyGroupRange,
)
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.keyed_snapshot import CompactionPolicy
from penstock.runtime.state.state_backend import BackendSetup


@pytest.mark.parametrize("position", [0, 7, 20, -1])
def test_a_damaged_file_is_named(position: int) -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    handle = take(backend, files, 1, -1)
    damaged = bytearray(files.content["chk/0"])
    damaged[position] ^= 1
    files.content["chk/0"] = bytes(damaged)
    with pytest.raises(CorruptSnapshotError, match="keyed state in chk/0 is damaged"):
        restored(handle, files)


@pytest.mark.parametrize("length", [0, 4, 12, 40])
def test_a_file_that_is_cut_off_is_named(length: int) -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": "x" * 100})
    handle = take(backend, files, 1, -1)
    inline = replace(handle, files=(InlineHandle(files.content["chk/0"][:length]),))
    with pytest.raises(CorruptSnapshotError, match="the checkpoint's metadata is damaged"):
        restored(inline, files)


def test_a_value_that_can_not_be_decoded_here_is_reported_with_the_file() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": range(3)})
    handle = take(backend, files, 1, -1)
    strict = HeapKeyedStateBackend(BackendSetup("op", 128, ALL, ValueCodec(allow_pickle=False)))
    with pytest.raises(CorruptSnapshotError, match="keyed state in chk/0 can't be decoded"):
        strict.restore([handle], files)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda block: [[], *block[1:]],
            r"keyed state in chk/0 can't be decoded: a block has the table \[\]",
        ),
        (
            lambda block: [block[0], "1", *block[2:]],
            "can't be decoded: a block has the table 't' and '1' keys",
        ),
        (lambda block: [], "keyed state in chk/0 can't be decoded"),
        (
            lambda block: [*block[:3], ValueCodec().dumps([[]]), block[4]],
            r"keyed state in chk/0 has an invalid key: \[\] of type list can't be a key",
        ),
    ],
)
def test_a_file_that_was_changed_with_its_checksum_is_named(
    change: Callable[[list[Any]], list[Any]], says: str
) -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    handle = take(backend, files, 1, -1)
    data = files.content["chk/0"]
    groups, [block] = msgpack.unpackb(data[13:])
    body = msgpack.packb([groups, [change(block)]])
    files.content["chk/0"] = data[:5] + xxh3_64_digest(body) + body
    with pytest.raises(CorruptSnapshotError, match=says):
        restored(handle, files)


def test_another_max_parallelism_is_refused() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    handle = take(backend, files, 1, -1)
    other = HeapKeyedStateBackend(BackendSetup("op", 256, KeyGroupRange(0, 255), ValueCodec()))
    with pytest.raises(ConfigurationError, match="max_parallelism=128 and can't be read with 256"):
        other.restore([handle], files)


def test_a_backend_that_starts_anew_needs_no_damaged_file() -> None:
    backend, files = new_backend(CompactionPolicy(max_files=1)), Files()
    put(backend, {"a": 1, "b": 2, "c": 3})
    first = take(backend, files, 1, -1)
    (damaged,) = first.files
    assert isinstance(damaged, FileHandle)
    files.content[damaged.path] = b"nonsense"
    put(backend, {"a": 10})
    delete(backend, ["b"])
    failed = backend.snapshot(2, 1)
    with pytest.raises(CorruptSnapshotError, match=damaged.path):
        failed.finish(files)

    backend.start_anew()

    put(backend, {"d": 4})
    whole = take(backend, files, 3, 1)
    assert damaged not in whole.files
    assert restored(whole, files) == {"a": 10, "c": 3, "d": 4}
    put(backend, {"e": 5})
    assert restored(take(backend, files, 4, 3), files) == {"a": 10, "c": 3, "d": 4, "e": 5}
