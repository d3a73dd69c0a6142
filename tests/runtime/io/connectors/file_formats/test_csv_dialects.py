"""Line ends, quote and escape characters, nulls and names of CSV files, read as text and as columns."""

from __future__ import annotations

import csv
import gzip
import io

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock import ConnectorError, FileSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.file_formats.line_blocks import line_end_of

KINDS = [{}, {"schema": {"a": pa.string()}}, {"batch_format": "arrow"}]
LINE_ENDS = ["\n", "\r\n", "\r"]
TEXTS = st.text(st.sampled_from("ab1'\"\\,;\r\né "), max_size=6)


@pytest.fixture
def write(tmp_path):
    def to_file(content: str | bytes, name: str = "a.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8),
    line_end=st.sampled_from(LINE_ENDS),
    quotechar=st.sampled_from(['"', "'", "é"]),
    escapechar=st.sampled_from([None, "\\"]),
    kind=st.sampled_from(KINDS),
    restore_every=st.sampled_from([0, 1]),
    skip_rows=st.integers(0, 2),
)
@example([("a\rb", "c\nd")], "\r", '"', None, {"batch_format": "arrow"}, 1, 2)
def test_rows_come_back_whatever_ends_lines_and_quotes_fields(
    write, read_all, rows, line_end, quotechar, escapechar, kind, restore_every, skip_rows
):
    text = io.StringIO(newline="")
    writer = csv.writer(
        text,
        lineterminator=line_end,
        quotechar=quotechar,
        escapechar=escapechar,
        doublequote=escapechar is None,
        quoting=csv.QUOTE_ALL,
    )
    writer.writerows([["a preamble"]] * skip_rows)
    writer.writerows([("a", "b"), *rows])
    source = FileSource.csv(
        write(text.getvalue()), quotechar=quotechar, escapechar=escapechar, skip_rows=skip_rows, **kind
    )
    assert read_all(source, max_rows=2, restore_every=restore_every).rows == [
        {"a": a, "b": b} for a, b in rows
    ]


@pytest.mark.parametrize("kind", [*KINDS, {"schema": "infer"}])
def test_lines_that_end_with_a_carriage_return_alone_are_lines(write, read_all, kind):
    lines = "a,b\r" + "".join(f"{n},x{n}\r" for n in range(100_000))
    for path in (write(lines), write(gzip.compress(lines.encode()), "b.csv.gz")):
        rows = read_all(FileSource.csv(path, **kind)).rows
        assert len(rows) == 100_000
        assert str(rows[-1]["a"]) == "99999"
        assert rows[-1]["b"] == "x99999"


@pytest.mark.parametrize("kind", [{}, {"schema": {"a": pa.int64()}}, {"batch_format": "arrow"}])
def test_a_line_end_of_another_kind_within_a_row_is_a_bad_record(write, read_all, kind):
    back = read_all(FileSource.csv(write("a,b\n1,2\r3,4\n5,6\n"), on_error="dead_letter", **kind))
    assert [str(row["a"]) for row in back.rows] == ["5"]
    assert [letter.record for letter in back.dead_letters] == ["1,2\r3,4"]


def test_quotes_are_text_without_a_quote_character(write, read_all):
    path = write('a,b\n5" disk,"x\n')
    for kind in KINDS:
        assert read_all(FileSource.csv(path, quotechar=None, **kind)).rows == [{"a": '5" disk', "b": '"x'}]


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize("schema", [None, "infer", {"n": pa.int64(), "t": pa.string()}])
def test_null_texts_are_none_in_every_column(write, read_all, batch_format, schema):
    path = write('n,t\n1,x\nNA,NA\n-,"-"\n,\n')
    back = read_all(FileSource.csv(path, null_values=["NA", "-"], schema=schema, batch_format=batch_format))
    one = "1" if schema is None else 1
    empty = "" if schema is None else None
    assert back.rows == [
        {"n": one, "t": "x"},
        {"n": None, "t": None},
        {"n": None, "t": None},
        {"n": empty, "t": ""},
    ]
    back = read_all(FileSource.csv(path, null_values=[""], schema={"n": str}, batch_format=batch_format))
    assert back.rows[-1] == {"n": None, "t": None}


@pytest.mark.parametrize("kind", [*KINDS, {"schema": "infer"}])
def test_columns_of_one_name_are_left_out_or_named_by_the_program(write, read_all, kind):
    path = write("a,b,b\n1,2,3\n")
    kind = {} if "schema" in kind and kind["schema"] != "infer" else kind

    def texts(**settings):
        rows = read_all(FileSource.csv(path, **settings, **kind)).rows
        return [{name: str(value) for name, value in row.items()} for row in rows]

    assert texts(columns=["a"]) == [{"a": "1"}]
    named = texts(skip_rows=1, header=False, columns=["a", "b", "c"])
    assert named == [{"a": "1", "b": "2", "c": "3"}]
    for columns in (None, ["b"]):
        with pytest.raises(ConnectorError, match=r"\['b'\] more than once"):
            texts(columns=columns)


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_file_of_thousands_of_columns_is_read_by_a_bounded_number_of_calls(
    write, read_all, monkeypatch, batch_format
):
    from penstock.runtime.io.connectors.file_formats import csv_columns

    calls = []
    real = csv_columns.checked_column
    monkeypatch.setattr(csv_columns, "checked_column", lambda *args: calls.append(1) or real(*args))
    names = [f"column_{at}" for at in range(3_000)]
    path = write(",".join(names) + "\n" + ",".join(map(str, range(3_000))) + "\n")
    (row,) = read_all(FileSource.csv(path, schema="infer", batch_format=batch_format)).rows
    assert row == dict(zip(names, range(3_000), strict=True))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("head", "end"),
    [
        (b"a\rb\n", b"\r"),
        (b"a\r\nb", b"\n"),
        (b"a\r", b"\r"),
        (b"a\nb\r", b"\n"),
        (b'"x\ry",b\nc', b"\n"),
        (b'"x\ny",b\rc', b"\r"),
        (b"", b"\n"),
    ],
)
def test_the_first_line_end_outside_of_quotes_counts(head, end):
    handle = io.BytesIO(head)
    assert line_end_of(handle, "file", b'"') == end
    assert handle.tell() == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"quotechar": "''"}, "quotechar=\"''\" is not allowed"),
        ({"quotechar": ","}, "are not three different characters"),
        ({"escapechar": '"'}, "are not three different characters"),
        ({"null_values": "NA"}, "null_values='NA' is not allowed: give a list"),
        ({"skip_rows": -1}, "skip_rows=-1 is not allowed"),
    ],
)
def test_settings_that_can_not_be_meant_are_refused(setting, message):
    with pytest.raises(ConfigurationError, match=message):
        FileSource.csv("/data", **setting)


NUMBERS = [
    "0x10",
    "0X1F",
    "+5",
    " 7 ",
    "007",
    "1_000",
    "1e5",
    "٣",
    "9223372036854775807",
    "9223372036854775808",
]


@pytest.mark.parametrize(
    "text", [*NUMBERS, "-9223372036854775808", "-0", "nan", "", " ", "5.", ".5", "1,5", "true"]
)
@pytest.mark.parametrize("kind", [int, float])
def test_rows_and_batches_take_the_same_texts_for_numbers(write, read_all, text, kind):
    path = write(f'a,b\n"{text}",0x10\n1,0x\n')
    read = [
        read_all(FileSource.csv(path, schema={"a": kind}, batch_format=batch_format, on_error="skip"))
        for batch_format in ("rows", "arrow")
    ]
    assert str(read[0].rows) == str(read[1].rows)
    assert read[0].skipped == read[1].skipped
    assert read[0].rows[-1]["a"] == 1
