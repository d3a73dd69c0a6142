"""Any mix of good and bad values gives the same as one value at a time, in rows and in columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proto_messages import ORDER, add_fields, classes_of, every_kind, message_of, new_file
from record_values import columns_of, reason, rows_of, same

from penstock.formats import Avro, CsvLines, Json, JsonSchema, Protobuf, Raw, Text
from penstock.runtime.record.elements import RowBatch

COLUMNS = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(8, 2),
        "in": pa.struct({"x": pa.list_(pa.float64())}),
    }
)
JSON = [b'{"id": 1, "at": "2026-11-29T07:00:00Z", "price": "2.50", "in": {"x": [1.5, null]}}', b'{"id": 7}']


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    described = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": described}


INNER = record(("y", "string"), ("z", ["null", "double"]), name="In")
NESTED = record(("id", "long"), ("ins", {"type": "array", "items": INNER}), ("e", ["null", "string"]))
NARROW = record(("id", "double"), ("e", "string"))
SLOW = record(("id", "long"), ("data", "bytes"), ("map", {"type": "map", "values": "int"}))
TREE = record(("v", "int"), ("next", ["null", "Tree"]), name="Tree")
NESTED_ROWS = [{"id": 5, "ins": [{"y": "é", "z": 0.5}] * 3, "e": None}, {"id": 0, "ins": [], "e": "x"}]


def values_of(schema: Any, rows: list[Any]) -> list[bytes]:
    return [value for value in Avro(schema).encoder().encode(RowBatch(rows)) if value is not None]


Every = every_kind()
EVERY = Every(
    a_string="é",
    numbers=[1, -2],
    texts=["a", ""],
    inner={"y": 3},
    inners=[{"y": 1, "z": ""}, {}],
    counts={"a": 1},
    at={"seconds": 5},
    wrapped={"value": 0},
)
NODE_FILE = new_file("node.proto")
add_fields(NODE_FILE.message_type.add(name="Node"), [("v", "string"), ("next", ".shop.Node")])
Node = classes_of(NODE_FILE)["Node"]

#: A format, and good values of it. A format without columns has `None`.
FORMATS: dict[str, tuple[Any, list[bytes], bool]] = {
    "json": (Json(COLUMNS), JSON, True),
    "json_without_schema": (Json(), JSON, False),
    "json_schema": (JsonSchema({"required": ["id"]}, COLUMNS), JSON, True),
    "csv": (CsvLines(["id", "name"], pa.schema({"id": pa.int64()})), [b"1,tea", b'2,"a, b"'], True),
    "avro": (Avro(NESTED), values_of(NESTED, NESTED_ROWS), True),
    "avro_resolved": (Avro(NESTED, NARROW), values_of(NESTED, NESTED_ROWS[1:]), True),
    "avro_by_fastavro": (Avro(SLOW), values_of(SLOW, [{"id": 1, "data": b"d", "map": {"a": 1}}]), True),
    "avro_tree": (Avro(TREE), values_of(TREE, [{"v": 1, "next": {"v": 2, "next": None}}]), False),
    "protobuf": (Protobuf(message_of(ORDER)), [message_of(ORDER)(id=5, user="u").SerializeToString()], True),
    "protobuf_nested": (Protobuf(Every), [EVERY.SerializeToString(deterministic=True)], True),
    "protobuf_tree": (Protobuf(Node), [Node(v="a", next={"v": "b"}).SerializeToString()], False),
    "text": (Text(), ["é".encode(), b""], True),
    "raw": (Raw(), [b"\xff", b""], True),
}


@st.composite
def mixes(draw: Any, good: list[bytes]) -> list[bytes | None]:
    """Good values, tombstones, and good values of which some bytes are cut or replaced."""

    def damaged(value: bytes) -> st.SearchStrategy[bytes]:
        places = st.tuples(st.integers(0, len(value)), st.integers(0, 3), st.binary(max_size=3))
        return places.map(lambda p: value[: p[0]] + p[2] + value[p[0] + p[1] :])

    one = st.sampled_from([*good, None]) | st.sampled_from(good).flatmap(damaged)
    return draw(st.lists(one, max_size=10))


@pytest.mark.parametrize("name", FORMATS)
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_mix_of_values_is_decoded_as_one_value_at_a_time(name, data):
    format_, good, has_columns = FORMATS[name]
    values = data.draw(mixes(good))
    for decoded in (rows_of, columns_of) if has_columns else (rows_of,):
        rows, bad = decoded(format_, values)
        alone = [decoded(format_, [value]) for value in values]
        assert bad == [index for index, (_, wrong) in enumerate(alone) if wrong]
        assert same(rows, [row for one, _ in alone for row in one])
        assert not set(bad) & {index for index, value in enumerate(values) if value in (None, *good)}


@pytest.mark.parametrize("name", [name for name, (_, _, has_columns) in FORMATS.items() if has_columns])
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_the_same_values_are_bad_in_rows_and_in_columns(name, data):
    format_, good, _ = FORMATS[name]
    values = data.draw(mixes(good))
    rows, bad = rows_of(format_, values)
    columns, bad_in_columns = columns_of(format_, values)
    # Columns hold times that no Python value has.
    assert set(bad_in_columns) <= set(bad)
    assert len(columns) - len(rows) == len(bad) - len(bad_in_columns)


def test_a_library_that_panics_for_damaged_bytes_makes_one_bad_value():
    good = EVERY.SerializeToString(deterministic=True)
    at = Every.DESCRIPTOR.fields_by_name["at"].number << 3 | 2
    endless = bytes([at & 0x7F | 0x80, at >> 7]) + b"\xff" * 9 + b"\x01"  # a length of 2**64 - 1 bytes
    for decoded in (rows_of, columns_of):
        rows, bad = decoded(Protobuf(Every), [good, endless, good])
        assert (len(rows), bad) == (2, [1])
    assert "the library can't read it: " in reason(Protobuf(Every).decoder("rows"), endless)
