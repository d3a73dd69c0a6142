from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import columns_of, reason, rows_of, same

from penstock import BadRecordError, ConfigurationError, ConnectorError, FileSource
from penstock.formats import Format, Json
from penstock.runtime.io.formats import json_rows, json_text
from penstock.runtime.io.formats.json_learning import schema_of_values
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.trust.data import read_schema
from penstock.testing import SourceHarness

SCHEMA = pa.schema(
    {"a": pa.int64(), "f": pa.float64(), "s": pa.string(), "b": pa.bool_(), "l": pa.list_(pa.int64())}
)

#: Values of which a parser loses something, or that it takes although they are no JSON.
ODD = [
    b'{"a": 1, "a": 2}',
    b'{"a": 1, "b": {"x": 1, "x": 2}}',
    b'{"a": 1e400}',
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"s": "\\ud800"}',
    b'{"a": 123456789012345678901234567890}',
    b'{"a": -0}',
    b'{"f": 0.12345678901234567890}',
    b'{"s": "a\nb"}',
    b'{"s": "a\tb"}',
    b'{"s": "\xff"}',
    b'{"a": 1}{"a": 2}',
    b'{"a": 1}\n{"a": 2}',
    b'{"a":',
    b"1}",
    b"1, 2",
    b"[1",
    b"2]",
    b'{"a": 1,}',
    b"\xef\xbb\xbf{}",
    b"",
    b" ",
    b"5",
    b"null",
    b'"x"',
    b'{"s": "\\" : {"}',
    b'{\n  "a": 1\n}\n',
    b' {"a" : 1} ',
    b'{"a": "1"}',
    b'{"s": 1}',
    b'{"a": 1.0}',
    b'{"b": 1}',
    b'{"l": [1, "2"]}',
    b'{"l": {"a": 1}}',
    b'{"f": 9007199254740993}',
    b'{"unknown": {"a": [1]}, "a": 3}',
]

GOOD = b'{"a": 7, "s": "x"}'


@pytest.fixture(params=["msgspec", "json"], autouse=True)
def library(request, monkeypatch):
    """Each test runs with msgspec, and as if it were not installed."""
    if request.param == "json":
        monkeypatch.setattr(json_rows, "_fast_parser", lambda: None)
        monkeypatch.setattr(json_text, "fast_encoder", lambda: None)
    return request.param


def in_file(tmp_path, value, **settings):
    """The records of a file that holds one value, and whether the value is bad."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(value + b"\n")
    with SourceHarness(FileSource.json(path, on_error="dead_letter", **settings)) as harness:
        rows = harness.read_all()
        return rows, bool(harness.dead_letters)


@pytest.mark.parametrize("value", [value for value in ODD if value.strip() and b"\n" not in value])
def test_a_value_is_what_it_is_in_a_file(tmp_path, value):
    if not value.startswith(b"\xef"):  # a file may begin with a mark
        rows, is_bad = in_file(tmp_path, value)
        found, bad = rows_of(Json(), [value])
        assert same(found, rows)
        assert bool(bad) is is_bad
        rows, is_bad = in_file(tmp_path, value, batch_format="arrow", schema=SCHEMA)
        assert columns_of(Json(SCHEMA), [value]) == (rows, [0] if is_bad else [])


@pytest.mark.parametrize("schema", [None, SCHEMA])
@pytest.mark.parametrize("place", [0, 5, 9])
@pytest.mark.parametrize("value", ODD)
def test_a_value_alone_is_what_it_is_among_others(value, place, schema):
    values = [GOOD] * 10
    good, _ = rows_of(Json(schema), [GOOD])
    alone, bad = rows_of(Json(schema), [value])
    values[place] = value
    rows, found = rows_of(Json(schema), values)
    assert same(rows, good * place + alone + good * (9 - place))
    assert found == [place] * len(bad)


@given(st.lists(st.sampled_from([*ODD, GOOD, None]), max_size=12))
def test_columns_are_equal_to_rows_wherever_bad_values_and_tombstones_stand(values):
    rows, bad = rows_of(Json(SCHEMA), values)
    columns, same_bad = columns_of(Json(SCHEMA), values)
    assert same_bad == bad
    nulls = dict.fromkeys(SCHEMA.names)
    assert columns == [nulls if row is None else row for row in rows]
    assert [row is None for row in rows] == [
        value is None for index, value in enumerate(values) if index not in bad
    ]


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.lists(VALUES.filter(lambda value: value is not None), max_size=8))
def test_what_was_written_is_read(rows):
    values = Json().encoder().encode(RowBatch(rows))
    found, bad = rows_of(Json(), values)
    assert same(found, rows)
    assert not bad


ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(-(2**50), 2**50),
        "s": st.none() | st.text(st.characters(codec="utf-8")),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.integers(-9, 9)),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=8))
def test_columns_that_were_written_are_read(rows):
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    values = Json().encoder().encode(ArrowBatch(batch))
    decoded = Json(SCHEMA).decoder("arrow").decode(values)
    assert isinstance(decoded.batch, ArrowBatch)
    assert decoded.batch.batch.equals(batch)


def test_a_schema_gives_the_types_of_rows_and_columns():
    schema = pa.schema(
        [
            pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("price", pa.decimal128(6, 2)),
            pa.field("in", pa.struct({"x": pa.int32()})),
        ]
    )
    values = [b'{"at": "2026-11-29T07:00:00Z", "price": "1.50", "in": {"x": 1}}', None, b"{}"]
    row = {"at": datetime(2026, 11, 29, 7, tzinfo=UTC), "price": Decimal("1.50"), "in": {"x": 1}}
    nulls = {"at": None, "price": None, "in": None}
    assert rows_of(Json(schema), values) == ([row, None, nulls], [])
    assert columns_of(Json(schema), values) == ([row, nulls, nulls], [])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us", "UTC"), datetime(2026, 11, 29, 7, 0, 0, 1, tzinfo=UTC)),
        (pa.timestamp("us"), datetime(2026, 11, 29, 7)),  # noqa: DTZ001
        (pa.timestamp("s"), datetime(2026, 11, 29)),  # noqa: DTZ001
        (pa.decimal128(8, 3), Decimal("-1.500")),
    ],
)
def test_timestamps_and_decimals_of_a_schema_are_written_and_read(kind, value):
    format_ = Json(pa.schema({"x": kind, "in": pa.list_(kind)}))
    rows = [{"x": value, "in": [value, None]}, {"x": None, "in": []}]
    values = format_.encoder().encode(RowBatch(rows))
    assert rows_of(format_, values) == (rows, [])
    columns = format_.decoder("arrow").decode(values).batch
    assert format_.encoder().encode(columns) == values
    with pytest.raises(BadRecordError, match="no JSON form"):
        format_.encoder().encode(RowBatch([{"x": object()}]))


def test_a_time_that_python_can_not_represent_is_bad_in_rows():
    schema = pa.schema({"at": pa.timestamp("s")})
    assert "'at'" in reason(Json(schema).decoder("rows"), b'{"at": "12000-01-01T00:00:00"}')


def test_no_values_are_a_batch_without_rows():
    assert rows_of(Json(), []) == ([], [])
    assert columns_of(Json(SCHEMA), []) == ([], [])
    assert columns_of(Json(SCHEMA), [b"oops"]) == ([], [0])
    assert columns_of(Json(SCHEMA), [None]) == ([dict.fromkeys(SCHEMA.names)], [])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"oops", "the value is not JSON: Expecting value"),
        (b'{"a": 1, "a": 2}', "the field 'a' twice"),
        (b'{"a": 1e400}', "no float can hold 1e400"),
        (b"\xff", "0xff"),
    ],
)
def test_a_bad_value_comes_with_its_reason(value, why):
    assert why in reason(Json().decoder("rows"), value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a": "1"}', "field 'a' does not fit its column of type int64"),
        (b"[1]", "the value is a JSON value of type list, but columns need objects"),
        (b'{"a": 1, "a": 2}', "the value does not fit the columns"),
    ],
)
@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_value_that_does_not_fit_the_schema_comes_with_its_reason(value, why, batch_format):
    assert why in reason(Json(SCHEMA).decoder(batch_format), value)


@pytest.mark.parametrize(
    "row",
    [
        {"a": float("nan")},
        {"a": [float("inf")]},
        {"a": {1: 1, "1": 2}},
        {"a": date(2026, 1, 1)},
        {"a": "\ud800"},
        {"a": object()},
    ],
)
def test_a_record_that_is_no_json_is_named_as_in_files(row):
    with pytest.raises(BadRecordError, match=r"can't be written as JSON.*the record is \{'a'"):
        Json().encoder().encode(RowBatch([{"a": 1}, row]))


def test_a_record_is_written_with_the_values_that_it_has_in_files():
    rows = [{"a": (1, 2), 3: True, "big": 1 << 70, "f": 1e300}, [1, {"é": None}], "x", 5, {}]
    values = Json().encoder().encode(RowBatch([*rows, None]))
    assert values.pop() is None
    assert [json.loads(value) for value in values] == json.loads(json.dumps(rows))


def test_default_converts_what_json_lacks():
    encoder = Json(default=str).encoder()
    assert encoder.encode(RowBatch([{"at": date(2026, 1, 1)}])) == [b'{"at":"2026-01-01"}']


def test_settings_are_checked_when_they_are_given():
    with pytest.raises(ConfigurationError, match="'a' twice"):
        Json(pa.schema([("a", pa.int64()), ("a", pa.int64())]))
    with pytest.raises(ConfigurationError, match="Json needs schema= for Arrow batches"):
        Json().decoder("arrow")
    with pytest.raises(ConfigurationError, match="schema='learn' is not a setting: give 'infer'"):
        Json("learn")
    with pytest.raises(ConfigurationError, match="sample=0 is not allowed"):
        Json("infer", sample=0)
    for more in ({}, {"batch_format": "arrow", "framing": "length_delimited"}):
        with pytest.raises(ConfigurationError, match="reads files of lines with batch_format='arrow' only"):
            FileSource.records("/in", Json("infer"), **more)
    assert FileSource.records("/in", Json("infer"), batch_format="arrow") == FileSource.json(
        "/in", batch_format="arrow"
    )


def test_a_learned_schema_has_the_widest_types_of_a_sample():
    values = [b'{"n": 1, "l": [1], "s": {"x": null}}', None, b"oops", b'{"n": 2.5, "t": "2026-11-29"}']
    schema = read_schema(schema_of_values(values))
    assert schema == pa.schema(
        {
            "n": pa.float64(),
            "l": pa.list_(pa.int64()),
            "s": pa.struct({"x": pa.string()}),
            "t": pa.string(),
        }
    )
    # An object whose field has another type is left out: the first one decides.
    mixed = [b'{"n": 1}', b'{"n": "x"}', b'{"m": true}']
    assert read_schema(schema_of_values(mixed)) == pa.schema({"n": pa.int64(), "m": pa.bool_()})


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_decoder_that_learns_reads_by_the_schema_of_its_split(batch_format):
    decoder = Json("infer").decoder(batch_format)
    with pytest.raises(ConnectorError, match="this source does not learn schemas"):
        decoder.decode([b"{}"])
    with pytest.raises(ConnectorError, match="the snapshot has no learned schema"):
        decoder.use(b"")
    decoder.use(schema_of_values([b'{"a": 1}']))
    found = decoder.decode([b'{"a": 7}', b'{"b": 1}', None])
    assert len(found.batch) == 2
    assert [index for index, _ in found.bad] == [1]
    decoder.close()


def test_json_is_a_value_that_is_pickled():
    assert isinstance(Json(), Format)
    assert pickle.loads(pickle.dumps(Json(SCHEMA))) == Json(SCHEMA)
