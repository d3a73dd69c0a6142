from __future__ import annotations

import io
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_values import columns_of, reason, rows_of, same

from penstock import BadRecordError, ConfigurationError
from penstock.formats import Avro, Format
from penstock.runtime.io.formats import avro
from penstock.runtime.io.formats.avro_schema import fast_schema, parsed_schema
from penstock.runtime.record.elements import ArrowBatch, RowBatch


def record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    """A schema; a field is a name and a type, or a dict."""
    described = [f if isinstance(f, dict) else {"name": f[0], "type": f[1]} for f in fields]
    return {"type": "record", "name": name, "fields": described, **more}


def written(schema: Any, *rows: Any) -> list[bytes]:
    """Rows as fastavro writes them."""
    values = []
    for row in rows:
        output = io.BytesIO()
        fastavro.schemaless_writer(output, fastavro.parse_schema(schema), row)
        values.append(output.getvalue())
    return values


ORDER = record(
    ("id", "long"),
    ("user", "string"),
    ("amount", "double"),
    ("paid", "boolean"),
    ("note", ["null", "string"]),
)

#: A type, and a value of it in rows.
TYPES: list[tuple[Any, Any]] = [
    ("int", -5),
    ("long", 1 << 40),
    ("float", 0.5),
    ("double", 0.1),
    ("boolean", True),
    ("string", "é"),
    (["null", "string"], None),
    (["string", "null"], "x"),
    ({"type": "int", "logicalType": "date"}, date(2026, 11, 29)),
    ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 11, 29, 7, tzinfo=UTC)),
    ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2026, 11, 29, 7, 0, 0, 1, tzinfo=UTC)),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2026, 11, 29, 7)),  # noqa: DTZ001
    ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime(2026, 11, 29, 7)),  # noqa: DTZ001
    ({"type": "string", "logicalType": "uuid"}, "c1f1d2a8-9b2b-4b0e-8a51-0b7f6e6c1d11"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ({"type": "array", "items": ["null", "long"]}, [1, None]),
    (record(("y", "int"), ("z", ["null", "string"]), name="In"), {"y": 1, "z": None}),
    (["null", record(("y", {"type": "long", "logicalType": "timestamp-millis"}), name="In")], None),
    (
        {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}},
        [datetime(2026, 11, 29, tzinfo=UTC)],
    ),
    # fastavro decodes these
    ({"type": "map", "values": "string"}, {"a": "x"}),
    ("null", None),
    ("bytes", b"\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, Decimal("1.50")),
    (
        {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2},
        Decimal("-1.50"),
    ),
    ({"type": "int", "logicalType": "time-millis"}, time(7, 1)),
    ({"type": "long", "logicalType": "time-micros"}, time(7, 1, 0, 1)),
    ({"type": "array", "items": "bytes"}, [b"a"]),
]


@pytest.mark.parametrize(("kind", "value"), TYPES)
def test_each_type_is_read_to_rows_and_columns_and_written_from_both(kind, value):
    format_ = Avro(record(("x", kind)))
    values = written(record(("x", kind)), {"x": value})
    assert same(rows_of(format_, values), ([{"x": value}], []))
    if isinstance(value, dict) and "y" not in value:
        value = list(value.items())  # a map, as Arrow shows it
    assert columns_of(format_, values) == ([{"x": value}], [])
    decoded = format_.decoder("arrow").decode(values)
    assert format_.encoder().encode(decoded.batch) == values
    assert format_.encoder().encode(RowBatch(rows_of(format_, values)[0])) == values


def test_most_types_are_decoded_by_the_fast_library():
    fast = [fast_schema(parsed_schema(record(("x", kind)))) is not None for kind, _ in TYPES]
    assert fast == [True] * 19 + [False] * 9


STRINGS = st.text(st.characters(codec="utf-8"))
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "user": STRINGS,
        "amount": st.floats(allow_nan=False),
        "paid": st.booleans(),
        "note": st.none() | STRINGS,
    }
)


@given(st.lists(ROWS, max_size=6))
def test_what_was_written_is_read(rows):
    values = Avro(ORDER).encoder().encode(RowBatch(rows))
    assert values == written(ORDER, *rows)
    assert same(rows_of(Avro(ORDER), values), (rows, []))
    assert columns_of(Avro(ORDER), values) == (rows, [])
    columns = Avro(ORDER).decoder("arrow").decode(values).batch
    assert Avro(ORDER).encoder().encode(columns) == values


BYTES = record(("id", "long"), ("data", "bytes"), ("amount", "double"))


@pytest.mark.parametrize("schema", [ORDER, BYTES])
@given(st.data())
@settings(max_examples=60)
def test_bad_values_are_found_and_rows_are_equal_to_columns(schema, data):
    good = {"id": 7, "user": "u", "amount": 0.5, "paid": True, "note": None, "data": b"d"}
    (value,) = written(schema, {field["name"]: good[field["name"]] for field in schema["fields"]})
    values = data.draw(
        st.lists(
            st.sampled_from([value, None, value[:-1], b"", b"\xff" * 30])
            | st.binary(max_size=20)
            | st.integers(0, len(value) - 1).map(lambda at: value[:at] + b"\xff" + value[at + 1 :]),
            max_size=9,
        )
    )
    rows, bad = rows_of(Avro(schema), values)
    columns, same_bad = columns_of(Avro(schema), values)
    assert bad == same_bad
    assert [dict.fromkeys(row or columns[0]) if row is None else row for row in rows] == [
        row if any(cell is not None for cell in row.values()) else dict.fromkeys(row) for row in columns
    ]
    assert not {index for index, one in enumerate(values) if one in (None, value)} & set(bad)
    assert {index for index, one in enumerate(values) if one in (b"", value[:-1])} <= set(bad)


NUMBERS = {"int": 5, "long": 1 << 60, "float": 0.5, "double": 0.1}

#: Writer's fields, a written row, reader's fields, and the row that is read.
EVOLUTIONS: list[tuple[list[Any], dict[str, Any], list[Any], dict[str, Any] | None]] = [
    ([("a", "int"), ("b", "string")], {"a": 1, "b": "x"}, [("b", "string")], {"b": "x"}),
    (
        [("a", "int")],
        {"a": 1},
        [("a", "int"), {"name": "b", "type": "string", "default": "y"}],
        {"a": 1, "b": "y"},
    ),
    ([("a", "int")], {"a": 1}, [{"name": "c", "type": ["null", "string"], "default": None}], {"c": None}),
    ([("a", "int")], {"a": 1}, [{"name": "n", "type": "int", "aliases": ["a"]}], {"n": 1}),
    ([("a", "int"), ("b", "int")], {"a": 1, "b": 2}, [("b", "int"), ("a", "int")], {"b": 2, "a": 1}),
    ([("a", "int")], {"a": 1}, [("a", ["null", "long"])], {"a": 1}),
    ([("a", ["null", "int"])], {"a": 1}, [("a", "long")], {"a": 1}),
    ([("a", ["null", "int"])], {"a": None}, [("a", "long")], None),
    ([("a", "string")], {"a": "x"}, [("a", "bytes")], {"a": b"x"}),
    ([("a", "bytes")], {"a": b"x"}, [("a", "string")], {"a": "x"}),
    ([("a", "long")], {"a": 1}, [("a", "int")], None),
    ([("a", "string")], {"a": "x"}, [("a", "long")], None),
    ([("a", "int")], {"a": 1}, [("b", "int")], None),
    (
        [("e", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]})],
        {"e": "C"},
        [("e", {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"})],
        {"e": "A"},
    ),
    (
        [("r", record(("y", "int"), name="In"))],
        {"r": {"y": 1}},
        [("r", record(("y", "long"), {"name": "z", "type": "int", "default": 3}, name="In"))],
        {"r": {"y": 1, "z": 3}},
    ),
    (
        [("l", {"type": "array", "items": "int"})],
        {"l": [1]},
        [("l", {"type": "array", "items": "double"})],
        {"l": [1.0]},
    ),
    *[
        (
            [("a", one)],
            {"a": NUMBERS[one]},
            [("a", other)],
            {"a": float(NUMBERS[one]) if other != "long" else 5},
        )
        for one, other in [
            ("int", "long"),
            ("int", "float"),
            ("int", "double"),
            ("long", "double"),
            ("float", "double"),
        ]
    ],
]


@pytest.mark.parametrize(("writer", "row", "reader", "read"), EVOLUTIONS)
@pytest.mark.parametrize("is_fast", [True, False])
def test_a_reader_schema_is_resolved_by_the_rules_of_avro(writer, row, reader, read, is_fast, monkeypatch):
    if not is_fast:
        monkeypatch.setattr(avro, "fast_schema", lambda schema: None)
    format_ = Avro(record(*writer), record(*reader))
    values = written(record(*writer), row) * 3
    expected = ([], [0, 1, 2]) if read is None else ([read] * 3, [])
    assert same(rows_of(format_, values), expected)
    assert columns_of(format_, values) == expected


def test_a_null_for_a_reader_without_nulls_is_one_bad_value():
    writer = record(("a", ["null", "int"]))
    format_ = Avro(writer, record(("a", "long")))
    values = written(writer, {"a": 1}, {"a": None}, {"a": 3})
    assert rows_of(format_, values) == ([{"a": 1}, {"a": 3}], [1])
    assert columns_of(format_, values) == ([{"a": 1}, {"a": 3}], [1])
    assert "field 'a' does not fit the reader's schema" in reason(format_.decoder("arrow"), values[1])


def test_a_record_of_another_name_is_refused_unless_it_is_an_alias():
    values = written(record(("a", "int"), name="Old"), {"a": 1})
    old = record(("a", "int"), name="Old")
    assert rows_of(Avro(old, record(("a", "int"), name="New")), values) == ([], [0])
    assert columns_of(Avro(old, record(("a", "int"), name="New", aliases=["Old"])), values) == (
        [{"a": 1}],
        [],
    )


RECURSIVE = record(("v", "int"), ("next", ["null", "Node"]), name="Node")
UNION = record(("x", ["null", "string", "long"]))


@pytest.mark.parametrize(
    ("schema", "row", "why"),
    [(RECURSIVE, {"v": 1, "next": {"v": 2, "next": None}}, "is recursive"), (UNION, {"x": 5}, "union")],
)
def test_a_schema_without_columns_is_read_to_rows(schema, row, why):
    values = written(schema, row)
    assert rows_of(Avro(schema), values) == ([row], [])
    assert Avro(schema).encoder().encode(RowBatch([row])) == values
    with pytest.raises(ConfigurationError, match=why):
        Avro(schema).decoder("arrow")


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1.5},
        {"id": True},
        {"id": 1 << 63},
        {"id": None},
        {"user": 5},
        {"note": b"x"},
        {"amount": "x"},
        {"paid": 1},
        {"more": 1},
    ],
)
@pytest.mark.parametrize(
    "schema", [ORDER, record(*ORDER["fields"], {"name": "b", "type": "bytes", "default": "x"})]
)
def test_a_record_that_does_not_fit_is_named(schema, row):
    good = {"id": 1, "user": "u", "amount": 0.5, "paid": True, "note": None}
    with pytest.raises(BadRecordError, match=r"a record can't be written as Avro.*the record is \{'id'"):
        Avro(schema).encoder().encode(RowBatch([good, {**good, **row}]))


def test_columns_that_do_not_fit_are_named():
    batch = pa.record_batch({"id": [1, None]})
    with pytest.raises(BadRecordError, match=r"the record is \{'id': None\}"):
        Avro(record(("id", "long"))).encoder().encode(ArrowBatch(batch))
    with pytest.raises(BadRecordError, match=r"the record is \{'id': 1, 'more': 2\}"):
        Avro(record(("id", "long"))).encoder().encode(ArrowBatch(pa.record_batch({"id": [1], "more": [2]})))


def test_columns_of_other_widths_and_orders_are_written():
    schema = record(("id", "long"), ("s", ["null", "string"]))
    batch = pa.record_batch(
        {"s": pa.array(["a", None], pa.large_string()), "id": pa.array([1, 2], pa.int16())}
    )
    assert Avro(schema).encoder().encode(ArrowBatch(batch)) == written(
        schema, {"id": 1, "s": "a"}, {"id": 2, "s": None}
    )


def test_a_default_is_written_for_a_missing_field_and_a_tombstone_for_none():
    schema = record({"name": "a", "type": "int", "default": 7})
    values = Avro(schema).encoder().encode(RowBatch([{}, None]))
    assert values == [*written(schema, {"a": 7}), None]
    assert rows_of(Avro(schema), values) == ([{"a": 7}, None], [])
    assert columns_of(Avro(schema), values) == ([{"a": 7}, {"a": None}], [])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type": "record"}', "not an Avro schema"),
        ("{", "not an Avro schema"),
        (record(("x", "strin")), "unknown type strin"),
        ('"long"', "must be an Avro record"),
    ],
)
def test_a_wrong_schema_is_refused(schema, why):
    with pytest.raises(ConfigurationError, match=why):
        Avro(schema)


def test_avro_is_a_value_that_is_pickled():
    assert isinstance(Avro(ORDER), Format)
    assert pickle.loads(pickle.dumps(Avro(ORDER))) == Avro(ORDER)
