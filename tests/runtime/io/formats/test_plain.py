from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from record_values import columns_of, reason, rows_of

from penstock import BadRecordError, ConfigurationError
from penstock.formats import Format, Raw, Text
from penstock.runtime.record.elements import ArrowBatch, RowBatch


@pytest.mark.parametrize("format_", [Raw(), Text("latin-1")])
def test_a_format_is_a_value_that_is_pickled(format_):
    assert isinstance(format_, Format)
    assert pickle.loads(pickle.dumps(format_)) == format_


def test_raw_values_are_kept_as_they_are():
    values = [b"a", None, b"", b"\xff"]
    assert rows_of(Raw(), values) == (values, [])
    assert columns_of(Raw(), values) == ([{"value": value} for value in values], [])


def test_raw_records_are_written_as_they_are():
    encoder = Raw().encoder()
    assert encoder.encode(RowBatch([b"a", None, bytearray(b"b"), memoryview(b"c")])) == [
        b"a",
        None,
        b"b",
        b"c",
    ]
    assert encoder.encode(ArrowBatch(pa.record_batch({"any": pa.array([b"a", None])}))) == [b"a", None]


def test_text_is_decoded_and_what_is_no_text_is_bad():
    values = [b"tea", b"\xff", None, "é".encode(), b""]
    assert rows_of(Text(), values) == (["tea", None, "é", ""], [1])
    rows = [{"value": "tea"}, {"value": None}, {"value": "é"}, {"value": ""}]
    assert columns_of(Text(), values) == (rows, [1])
    for batch_format in ("rows", "arrow"):
        assert "0xff" in reason(Text().decoder(batch_format), b"\xff")


def test_text_has_the_encoding_that_was_given():
    values = ["é".encode("utf-16-le"), b"a"]
    assert rows_of(Text("utf-16-le"), values) == (["é"], [1])
    assert columns_of(Text("utf-16-le"), values) == ([{"value": "é"}], [1])
    assert Text("latin-1").encoder().encode(RowBatch(["é", None])) == [b"\xe9", None]
    columns = pa.record_batch({"any": pa.array(["é", None], pa.large_string())})
    assert Text("latin-1").encoder().encode(ArrowBatch(columns)) == [b"\xe9", None]


@pytest.mark.parametrize(
    ("format_", "record", "why"),
    [
        (Raw(), "tea", "a record is 'tea' .str.*Text or Json"),
        (Text(), 5, "a record is 5 .int.*map.str"),
        (Text("ascii"), "é", "can't be written in ascii.*the record is 'é'"),
    ],
)
def test_a_record_that_does_not_fit_is_named(format_, record, why):
    with pytest.raises(BadRecordError, match=why):
        format_.encoder().encode(RowBatch([record]))


@pytest.mark.parametrize("columns", [{"a": [b"x"], "b": [b"y"]}, {"a": [1]}])
@pytest.mark.parametrize("format_", [Raw(), Text()])
def test_columns_that_do_not_fit_are_named(format_, columns):
    with pytest.raises(BadRecordError, match=r"one .* column, but a batch has the columns .*a: "):
        format_.encoder().encode(ArrowBatch(pa.record_batch(columns)))


def test_settings_that_are_wrong_are_refused():
    with pytest.raises(ConfigurationError, match="encoding='klingon'"):
        Text("klingon")
    with pytest.raises(ConfigurationError, match=r"batch_format='columns'.*'rows', 'arrow'"):
        Raw().decoder("columns")  # type: ignore[arg-type]
