"""Tables of keyed state, and snapshots that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)
from penstock.runtime.snapshot.metadata import encode_metadata, read_metadata
from penstock.runtime.state.captured_rows import CapturedRows, write_chunk
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_of, key_group_range
from penstock.runtime.state.state_backend import BackendSetup
from penstock.state import write_state


@dataclass(frozen=True)
class Account:
    owner: str
    cents: int


class Point(NamedTuple):
    x: int
    y: int


class Strange:
    """Of no kind that the codec knows."""


def keyed(entries: Mapping[Any, Any]) -> pa.Table:
    return pa.table({"key": list(entries), "value": list(entries.values())})


def entries_of(table: pa.Table) -> dict[Any, Any]:
    from penstock.runtime.record.arrow_values import from_arrow

    return dict(zip(from_arrow(table["key"]), from_arrow(table["value"]), strict=True))


def restored(url: str, operator: str, table: str, parallelism: int, groups: int) -> dict[Any, Any]:
    """The state that the subtasks of a job would find, each in its own range."""
    opened = open_snapshot(url, open_location)
    found: dict[Any, Any] = {}
    handles = [h for s in opened.checkpoint.operators[operator].subtasks.values() for h in s.keyed]

    class Files:
        def read(self, handle: Any) -> bytes:
            return handle.data if isinstance(handle, InlineHandle) else opened.storage.get(handle.path)

    for index in range(parallelism):
        own = key_group_range(index, parallelism, groups)
        backend = HeapKeyedStateBackend(BackendSetup("op", groups, own, ValueCodec(allow_pickle=False)))
        backend.restore([h for h in handles if len(h.key_groups.intersection(own))], Files())
        mine = backend.table(table).entries
        assert all(key_group_of(key, groups) in own for key in mine)
        assert not found.keys() & mine.keys()
        found.update(mine)
    return found


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
KEYS = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        TEXT,
        st.binary(max_size=3),
        st.dates(),
        st.tuples(TEXT, st.integers(0, 9)),
    ]
)
VALUES = st.sampled_from(
    [
        st.integers(-9, 9),
        st.floats(allow_nan=False),
        TEXT,
        st.decimals(-99, 99, places=2),
        st.tuples(TEXT, st.none() | st.integers(0, 9)),
        st.lists(TEXT, max_size=2),
        st.fixed_dictionaries({"n": st.integers(0, 9), "tags": st.lists(TEXT, max_size=2)}),
        st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
    ]
)
TABLES = st.tuples(KEYS, VALUES).flatmap(lambda both: st.dictionaries(*both, max_size=12))


def of_another_job(tmp_path: Path, values: Mapping[Any, Any], codec: ValueCodec | None = None) -> str:
    """A savepoint with values that only its job knows."""
    codec = codec or ValueCodec()
    blocks = [CapturedRows.encoded("reduce", list(values), list(values.values()), codec)]
    return with_chunks(tmp_path, blocks, codec=codec)


def with_chunks(tmp_path: Path, *files: list[CapturedRows], codec: ValueCodec) -> str:
    everything = KeyGroupRange(0, 7)
    handles = tuple(InlineHandle(write_chunk(blocks, 8, everything, codec)) for blocks in files)
    subtask = OperatorSubtaskState((KeyedStateHandle(everything, handles, 1),))
    url = write_state(keyed({"x": 1}), tmp_path / "base", "none")
    storage = open_location(url)
    base = read_metadata(storage, "metadata")
    base.operators["sum"] = OperatorState("sum", 1, 8, {0: subtask})  # type: ignore[index]
    storage.put("metadata", encode_metadata(base, "metadata"))
    return url
