from __future__ import annotations

import pickle
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import columns_of, reason, rows_of, same

from penstock import BadRecordError, ConfigurationError, FileSource
from penstock.formats import CsvLines, Format
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.testing import SourceHarness

SCHEMA = pa.schema({"id": pa.int64(), "price": pa.float64(), "day": pa.date32()})
LINES = CsvLines(["id", "name", "price", "day"], SCHEMA)

VALUES = [
    b"1,tea,2.5,2026-11-29",
    b"2,,,",
    b'3,"a ""b"", c",-1,2026-01-01',
    b'4,"two\nlines",0.5,2026-01-01',
    b"5,x,1,2026-01-01\n",
    b"6,x,1",
    b"x,x,1,2026-01-01",
    b"7,x,1,2026-01-01\n8,x,1,2026-01-01",
    b'9,"x,1,2026-01-01',
    b'",2,3,2026-01-01',
    b"\xff,x,1,2026-01-01",
    b"0x10,x,1,2026-01-01",
    b"",
    b"\n",
]
ROWS = [
    {"id": 1, "name": "tea", "price": 2.5, "day": date(2026, 11, 29)},
    {"id": 2, "name": "", "price": None, "day": None},
    {"id": 3, "name": 'a "b", c', "price": -1.0, "day": date(2026, 1, 1)},
    {"id": 4, "name": "two\nlines", "price": 0.5, "day": date(2026, 1, 1)},
    {"id": 5, "name": "x", "price": 1.0, "day": date(2026, 1, 1)},
]


def test_rows_are_equal_to_columns_and_bad_values_are_found():
    bad = list(range(5, len(VALUES)))
    assert same(rows_of(LINES, VALUES), (ROWS, bad))
    assert columns_of(LINES, VALUES) == (ROWS, bad)
    assert columns_of(LINES, [*VALUES[:1], None]) == ([ROWS[0], dict.fromkeys(ROWS[0])], [])
    assert rows_of(LINES, [None, *VALUES[:1]]) == ([None, ROWS[0]], [])


def test_values_are_what_they_are_in_files(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join(VALUES[:4]))
    columns = ["id", "name", "price", "day"]
    source = FileSource.csv(path, header=False, columns=columns, schema=SCHEMA)
    with SourceHarness(source) as harness:
        assert same(harness.read_all(), rows_of(LINES, VALUES[:4])[0])


@given(st.lists(st.sampled_from([*VALUES, None]), max_size=8))
def test_a_value_is_alone_what_it_is_among_others(values):
    rows, bad = rows_of(LINES, values)
    assert bad == [index for index, value in enumerate(values) if value in VALUES[5:]]
    alone = [row for value in values for row in rows_of(LINES, [value])[0]]
    assert same(rows, alone)
    columns, same_bad = columns_of(LINES, values)
    assert bad == same_bad
    assert columns == [dict.fromkeys(ROWS[0]) if row is None else row for row in rows]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6), st.sampled_from([",", ";", "\t"]))
def test_what_was_written_is_read(rows, delimiter):
    lines = CsvLines(["a", "b"], delimiter=delimiter)
    values = lines.encoder().encode(RowBatch(rows))
    assert rows_of(lines, values) == ([{"a": a, "b": b} for a, b in rows], [])


def test_nulls_and_other_signs_are_read_and_written():
    lines = CsvLines(["a", "b"], delimiter=";", quotechar=None, escapechar="\\", null_values=["NA"])
    values = lines.encoder().encode(RowBatch([{"b": "x;y", "a": None}, ("NA", '"'), None]))
    assert values == [b";x\\;y", b'NA;"', None]
    assert rows_of(lines, values) == ([{"a": "", "b": "x;y"}, {"a": None, "b": '"'}, None], [])
    columns = pa.record_batch({"a": ["x"], "b": [1]})
    assert lines.encoder().encode(ArrowBatch(columns)) == [b"x;1"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"6,x,1", "the number of fields is 3 in this row, but 4 in the file"),
        (b"x,x,1,2026-01-01", "column 'id' of type int64 can't be converted from 'x'"),
        (b"\xff", "0xff"),
        (b"", "it is empty"),
        (b"1,2,3,\n1,2,3,", "it has 2 rows"),
        (b'"', "unexpected end of data"),
    ],
)
def test_a_bad_value_comes_with_its_reason(value, why):
    assert why in reason(LINES.decoder("rows"), value)
    assert why in reason(LINES.decoder("arrow"), value)


@pytest.mark.parametrize("row", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, (1,), 5])
def test_a_record_that_does_not_fit_is_named(row):
    with pytest.raises(BadRecordError, match=r"does not fit the CSV columns \['a', 'b'\]: the record is "):
        CsvLines(["a", "b"]).encoder().encode(RowBatch([(1, 2), row]))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "name all columns"),
        ({"columns": ["a", "a"]}, "not a list of different names"),
        ({"columns": "a"}, "is a single string"),
        ({"columns": ["a"], "schema": pa.schema({"b": pa.int64()})}, r"schema has \['b'\]"),
        ({"schema": pa.schema({"b": pa.list_(pa.int64())})}, "can't hold"),
        ({"columns": ["a"], "delimiter": ""}, "delimiter="),
    ],
)
def test_settings_that_are_wrong_are_refused(settings, why):
    with pytest.raises(ConfigurationError, match=why):
        CsvLines(**settings)


def test_csv_lines_are_a_value_that_is_pickled():
    assert isinstance(LINES, Format)
    assert pickle.loads(pickle.dumps(LINES)) == LINES
