"""Arrow bytes of a stranger: no extension type that may run code, and no value outside of the data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.errors import CodecError
from penstock.runtime.io.connectors.file_formats.lines import TextFormat
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit
from penstock.runtime.io.connectors.files.file_reader import PartitionedSplit, open_split
from penstock.runtime.io.connectors.local_files import LocalFileSystem
from penstock.runtime.trust.data import check_types, read_batch, read_schema

asked: list[bytes] = []


class Loaded(pa.ExtensionType):  # type: ignore[misc]
    """Notes that it was asked when a schema is read, as a type would that unpickles there."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "test.loaded")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"serialized"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Loaded:
        asked.append(serialized)
        return cls(storage)


@pytest.fixture(autouse=True)
def loaded() -> Iterator[None]:
    pa.register_extension_type(Loaded(pa.null()))
    asked.clear()
    yield
    pa.unregister_extension_type("test.loaded")


def stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def empty(kind: pa.DataType) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind)], ["a"])


STRANGE = Loaded(pa.int64())
NESTED = {
    "alone": STRANGE,
    "in a list": pa.list_(STRANGE),
    "in a large list": pa.large_list(STRANGE),
    "in a list view": pa.list_view(STRANGE),
    "in a list of a fixed size": pa.list_(STRANGE, 2),
    "in a struct": pa.struct([("deep", pa.struct([("deeper", STRANGE)]))]),
    "as the values of a map": pa.map_(pa.string(), STRANGE),
    "as the keys of a map": pa.map_(STRANGE, pa.string()),
    "in a union": pa.dense_union([pa.field("x", STRANGE)]),
    "in the values of a dictionary": pa.dictionary(pa.int8(), pa.struct([("x", STRANGE)])),
    "around another type": Loaded(pa.list_(pa.int8())),
    "in the storage of another one": Loaded(pa.struct([("x", STRANGE)])),
}


@pytest.mark.parametrize("kind", NESTED.values(), ids=NESTED)
def test_an_extension_type_is_refused_wherever_it_is_and_never_asked(kind: pa.DataType) -> None:
    schema = pa.schema([("plain", pa.int8()), ("strange", kind)])
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    attempts: list[Callable[[], Any]] = [
        lambda: read_batch(sink.getvalue().to_pybytes()),
        lambda: read_schema(schema.serialize().to_pybytes()),
    ]
    for attempt in attempts:
        with pytest.raises(CodecError, match=r"column 'strange' has the Arrow extension type 'test\.loaded'"):
            attempt()
    assert asked == []


def test_columns_of_folders_in_a_split_of_a_snapshot_have_no_such_type() -> None:
    form, file = TextFormat("utf-8", 1, "fail"), FileSplit("/in/a=1/b.txt", 0, 0, 0)
    with pytest.raises(CodecError, match=r"test\.loaded"):
        open_split(form, PartitionedSplit(file, stream(empty(STRANGE))), LocalFileSystem())
    assert asked == []


def test_damaged_columns_of_folders_are_an_error_of_their_own() -> None:
    form, file = TextFormat("utf-8", 1, "fail"), FileSplit("/in/a=1/b.txt", 0, 0, 0)
    cut = stream(pa.record_batch({"a": [1]}))[:-30]
    with pytest.raises(CodecError, match=rf"an Arrow batch of length {len(cut)} can't be decoded"):
        open_split(form, PartitionedSplit(file, cut), LocalFileSystem())


def test_an_extension_type_that_this_process_does_not_know_is_refused_too() -> None:
    metadata = {b"ARROW:extension:name": b"elsewhere.known", b"ARROW:extension:metadata": b""}
    with pytest.raises(CodecError, match=r"elsewhere\.known"):
        read_schema(pa.schema([pa.field("a", pa.int8(), metadata=metadata)]).serialize().to_pybytes())


def test_metadata_that_looks_like_the_readers_own_mark_hides_no_extension_type() -> None:
    both = pa.KeyValueMetadata(
        [(b"Arrow-extension-name", b"arrow.uuid"), (b"ARROW:extension:name", b"test.loaded")]
    )
    with pytest.raises(CodecError, match="it is damaged"):
        read_schema(pa.schema([pa.field("a", pa.int8(), metadata=both)]).serialize().to_pybytes())
    assert asked == []


@pytest.mark.parametrize("kind", [pa.uuid(), pa.json_(), pa.bool8(), pa.list_(pa.uuid())], ids=str)
def test_types_of_arrow_that_run_no_code_are_read(kind: pa.DataType) -> None:
    assert read_schema(pa.schema({"a": kind}).serialize().to_pybytes()).field("a").type == kind


def test_a_tensor_is_read_if_its_shape_fits_its_storage() -> None:
    kind = pa.fixed_shape_tensor(pa.int8(), [2])
    data = stream(empty(kind))
    assert read_batch(data).schema.field("a").type == kind
    with pytest.raises(CodecError):
        read_batch(data.replace(b'"shape":[2]', b'"shape":[9]'))


def test_any_type_is_read_where_the_data_is_trusted() -> None:
    assert read_batch(stream(empty(STRANGE)), any_type=True).schema.field("a").type == STRANGE


def test_the_mark_in_a_value_is_no_type() -> None:
    batch = pa.record_batch({"a": ["ARROW:extension:name"]})
    assert read_batch(stream(batch)).equals(batch)


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\0" * 40])
def test_bytes_that_do_not_begin_with_a_schema_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError, match="damaged"):
        check_types(data)


def texts(*offsets: int) -> pa.Array:
    bounds = pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, bounds, pa.py_buffer(b"abcdefgh")])


OUTSIDE = {
    "an offset": texts(0, 1 << 30, 2, 8),
    "offsets that go back": texts(0, 6, 2, 8),
    "an index of a dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 1_000_000], pa.int32()), pa.array(["a"]), safe=False
    ),
    "an offset in a struct": pa.StructArray.from_arrays([texts(0, 1 << 30, 2, 8)], ["x"]),
    "a text that is no UTF-8": pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    ),
}


@pytest.mark.parametrize("column", OUTSIDE.values(), ids=OUTSIDE)
def test_a_value_outside_of_the_data_is_refused(column: pa.Array) -> None:
    data = stream(pa.RecordBatch.from_arrays([column], ["a"]))
    with pytest.raises(CodecError) as refused:
        read_batch(data)
    assert isinstance(refused.value.__cause__, pa.ArrowInvalid)


def test_nulls_without_a_type_are_read_as_far_as_a_batch_has_them() -> None:
    assert read_batch(stream(pa.record_batch({"a": pa.nulls(100_000)}))).num_rows == 100_000


LONG = pa.nulls(400_000_000)
ENDLESS = {
    "rows": LONG,
    "a list": pa.ListArray.from_arrays(pa.array([0, len(LONG)], pa.int32()), LONG),
    "a list in a struct": pa.StructArray.from_arrays(
        [pa.LargeListArray.from_arrays(pa.array([0, len(LONG)]), LONG)], ["x"]
    ),
    "a map": pa.MapArray.from_arrays(
        pa.array([0, 1 << 30], pa.int32()),
        pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), pa.array(["k"])),
        pa.nulls(1 << 30),
    ),
    "one run": pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), pa.array(["x"])),
    "a dictionary": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), LONG),
}


@pytest.mark.parametrize("column", ENDLESS.values(), ids=ENDLESS)
def test_more_values_than_the_data_can_hold_are_refused(column: pa.Array) -> None:
    data = stream(pa.RecordBatch.from_arrays([column], ["a"]))
    with pytest.raises(CodecError, match=r"\d{9} values"):
        read_batch(data)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], None, [2, 3]]),
        pa.array([{"x": [1]}, None]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array(["x", "y", "x"]).dictionary_encode(),
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        pa.array([[1, 2]], pa.list_view(pa.int64())),
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["x"])),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16))),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_every_shape_are_read(column: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["a"])
    assert read_batch(stream(batch)).equals(batch)


def test_a_schema_that_is_damaged_is_named() -> None:
    data = pa.schema([("a", pa.int8())]).serialize().to_pybytes()
    with pytest.raises(CodecError, match="damaged"):
        read_schema(data[:20])
    with pytest.raises(CodecError, match="damaged"):
        read_schema(data[:8] + b"\xff" * (len(data) - 8))
