from __future__ import annotations

import csv
import gzip
import io
import math
import random
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import BadRecordError, ConnectorError, FileSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.file_formats import line_blocks
from penstock.runtime.io.connectors.file_formats.csv_dialect import checked_column, inferred_type
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.testing import SourceHarness

FORMATS = ["rows", "arrow"]


@pytest.fixture
def write(tmp_path):
    def to_file(content: str | bytes, name: str = "a.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", "0", ""], pa.int64()),
        (["1", "2.50", "-3e5"], pa.float64()),
        (["007"], pa.string()),
        (["1", "007.5"], pa.string()),
        (["+1"], pa.string()),
        ([" 1"], pa.string()),
        (["1_000"], pa.string()),
        (["0x1F"], pa.string()),
        (["12345678901234567890"], pa.string()),
        (["0.12345678901234567"], pa.string()),
        (["12345678901234567", "0.5"], pa.string()),
        (["nan"], pa.string()),
        (["1e400", "1.5"], pa.string()),
        (["-0.1e-400", "1.5"], pa.string()),
        (["0.0", "-0e5"], pa.float64()),
        (["true", "False", "TRUE"], pa.bool_()),
        (["true", "1"], pa.string()),
        (["2024-02-29"], pa.date32()),
        (["2024-02-30"], pa.string()),
        (["2024-02-29 10:00:00", "2024-02-29T10:00:00.000001"], pa.timestamp("us")),
        (["2024-02-29T10:00:00Z", "2024-02-29 10:00:00.5+01:00"], pa.timestamp("us", "UTC")),
        (["2024-02-29", "2024-02-29 10:00:00"], pa.string()),
        (["", ""], pa.string()),
        ([], pa.string()),
    ],
)
def test_a_type_is_inferred_only_where_it_keeps_every_value(texts, kind):
    assert inferred_type(texts) == kind


def test_inferred_types_are_the_same_in_rows_and_columns(write, read_all):
    path = write(
        "id,price,day,at,ok,zip,none\n"
        "1,2.5,2024-01-02,2024-01-02T03:04:05Z,true,01234,\n"
        ",,,,,,\n"
        '3,-1,2024-01-03,2024-01-02T03:04:05.5+01:00,False,"a\nb",\n'
    )
    expected = [
        {
            "id": 1,
            "price": 2.5,
            "day": date(2024, 1, 2),
            "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
            "ok": True,
            "zip": "01234",
            "none": "",
        },
        {"id": None, "price": None, "day": None, "at": None, "ok": None, "zip": "", "none": ""},
        {
            "id": 3,
            "price": -1.0,
            "day": date(2024, 1, 3),
            "at": datetime(2024, 1, 2, 2, 4, 5, 500_000, tzinfo=UTC),
            "ok": False,
            "zip": "a\nb",
            "none": "",
        },
    ]
    for batch_format in FORMATS:
        rows = read_all(FileSource.csv(path, schema="infer", batch_format=batch_format)).rows
        assert rows == expected
        assert [type(value) for value in rows[2].values()] == [int, float, date, datetime, bool, str, str]


@pytest.mark.parametrize("batch_format", FORMATS)
def test_declared_types_are_the_same_in_rows_and_columns(write, read_all, batch_format):
    path = write("id,price,day,note\n1,2.5,2024-01-02,x\n2,,,\n")
    schema = {"id": pa.int16(), "price": pa.decimal128(9, 2), "day": pa.date32()}
    for declared in (schema, pa.schema(schema)):
        assert read_all(FileSource.csv(path, schema=declared, batch_format=batch_format)).rows == [
            {"id": 1, "price": Decimal("2.50"), "day": date(2024, 1, 2), "note": "x"},
            {"id": 2, "price": None, "day": None, "note": ""},
        ]
    chosen = FileSource.csv(
        path, columns=["note", "id"], schema={"id": pa.int16()}, batch_format=batch_format
    )
    assert [list(row.items()) for row in read_all(chosen).rows] == [
        [("note", "x"), ("id", 1)],
        [("note", ""), ("id", 2)],
    ]


def test_arrow_batches_without_types_are_text_and_functions_of_python_name_arrow_types(write, context):
    path = write("id,v\n1,2\n")
    for schema, kinds in ((None, [pa.string()] * 2), ({"id": int, "v": float}, [pa.int64(), pa.float64()])):
        source = FileSource.csv(path, schema=schema, batch_format="arrow")
        reader = source.reader(context(), source.splits(1))
        batch = reader.poll(10).batch
        reader.close()
        assert isinstance(batch, ArrowBatch)
        assert batch.batch.schema.types == kinds
    with pytest.raises(
        ConfigurationError, match=r"schema\['id'\] is 'Decimal', which is not a column type: give an"
    ):
        FileSource.csv(path, schema={"id": Decimal}, batch_format="arrow")
    with pytest.raises(ConfigurationError, match=r"schema\['id'\] is list<item: int64>, which a CSV field"):
        FileSource.csv(path, schema={"id": pa.list_(pa.int64())})
    with pytest.raises(ConfigurationError, match="schema='guess'"):
        FileSource.csv(path, schema="guess")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the field 'id' twice"):
        FileSource.csv(path, schema=pa.schema([("id", pa.int64()), ("id", pa.string())]))
    with pytest.raises(ConfigurationError, match="batch_format='pandas'"):
        FileSource.csv(path, batch_format="pandas")  # type: ignore[arg-type]


def random_fields(chosen: random.Random, count: int) -> list[dict[str, str]]:
    pieces = ["a", "é", '"', ",", "\n", "\r\n", "\r", " ", "7"]
    return [
        {"id": str(i), "text": "".join(chosen.choices(pieces, k=chosen.randrange(6))), "v": f"{i / 4}"}
        for i in range(count)
    ]


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_positions_are_exact_to_the_record_also_with_quoted_newlines(
    tmp_path, read_all, batch_format, packed
):
    rows = random_fields(random.Random(3), 3_000)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["id", "text", "v"])
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    expected = [{"id": int(row["id"]), "text": row["text"], "v": float(row["v"])} for row in rows]
    source = FileSource.csv(path, schema={"id": pa.int64(), "v": pa.float64()}, batch_format=batch_format)
    assert read_all(source).rows == expected
    assert read_all(source, 5, restore_every=3).rows == expected
    inferred = FileSource.csv(path, schema="infer", batch_format=batch_format)
    assert read_all(inferred, 100, restore_every=1).rows == expected


BAD = b'id,v\n1,a\n2\n3,"b"x\n4,c\nfive,d\n6,\xff\n7,e,e\n\n8,"f\nf"\n9,5" disk\n'


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize(("max_rows", "restore_every"), [(1000, 0), (1, 0), (1, 1), (3, 2)])
def test_every_kind_of_bad_row_is_found_and_the_good_ones_are_kept(
    write, read_all, batch_format, max_rows, restore_every
):
    path = write(BAD)
    good = [{"id": 1, "v": "a"}, {"id": 4, "v": "c"}, {"id": 8, "v": "f\nf"}, {"id": 9, "v": '5" disk'}]
    source = FileSource.csv(
        path, schema={"id": pa.int64()}, on_error="dead_letter", batch_format=batch_format
    )
    back = read_all(source, max_rows, restore_every)
    assert back.rows == good
    assert [each.record for each in back.dead_letters] == ["2", '3,"b"x', "five,d", b"6,\xff", "7,e,e"]
    offsets = [int(each.origin.removeprefix(f"{path}:")) for each in back.dead_letters]
    assert offsets == [BAD.index(start) for start in (b"2\n", b"3,", b"five", b"6,", b"7,")]
    skipping = FileSource.csv(path, schema={"id": pa.int64()}, on_error="skip", batch_format=batch_format)
    back = read_all(skipping, max_rows, restore_every)
    assert (back.rows, back.skipped) == (good, 5)


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "id\n1\n2,3\n",
            r"a\.csv, line 3 \(byte 5\): the number of fields is 2 in this row, but 1 in.*'2,3'",
        ),
        ("id\nx\n", r"a\.csv, line 2 \(byte 3\): column 'id' of type int64 can't be converted from 'x'"),
        ('id\n"1\n2\n', r"a\.csv, line 2 \(byte 3\): the row is not CSV: unexpected end of data"),
    ],
)
def test_a_bad_row_fails_the_source_with_file_offset_and_text(
    write, read_all, content, message, batch_format
):
    with pytest.raises(BadRecordError, match=message):
        read_all(FileSource.csv(write(content), schema={"id": pa.int64()}, batch_format=batch_format))


def test_one_bad_row_in_a_large_file_leaves_the_others_in_large_batches(write, read_all):
    lines = [f"{i},{i}" for i in range(50_000)]
    lines[30_000] = "oops,1"
    path = write("id,v\n" + "\n".join(lines) + "\n")
    source = FileSource.csv(path, schema="infer", on_error="dead_letter", batch_format="arrow")
    back = read_all(source, 4_096)
    assert [row["id"] for row in back.rows] == [i for i in range(50_000) if i != 30_000]
    assert [each.record for each in back.dead_letters] == ["oops,1"]
    assert read_all(source, 4_096, restore_every=1).rows == back.rows


def test_types_that_were_inferred_stay_when_a_later_value_does_not_fit(write, read_all):
    filler = "".join(f"{i}\n" for i in range(100_000))
    path = write("id\n" + filler + "1.5\n")
    for batch_format in FORMATS:
        with pytest.raises(BadRecordError, match=r"column 'id' of type int64 can't be converted from '1\.5'"):
            read_all(FileSource.csv(path, schema="infer", batch_format=batch_format))


#: What Arrow's parser takes for a number, a truth or a time, beside what it should.
ODD_TEXTS = (
    st.sampled_from(
        ["02134", "-0", "+5", " 7", "7 ", "0x1F", "1_000", "1e5", "1E5", "-0.0", "00.5", "5.", ".5"]
    )
    | st.sampled_from(["nan", "inf", "12345678901234567890", "0.12345678901234567", "1", "0", "-20", "2.50"])
    | st.sampled_from(
        ["TRUE", "True", "t", "1.0", "2024-02-29", "2024-2-9", "20240229", "2024-02-29 10:00:00"]
    )
    | st.sampled_from(["2024-02-29T10:00Z", "2024-02-29T10:00:00Z"])
)


@given(
    st.lists(ODD_TEXTS | st.from_regex(r"[-+0-9eE.]{1,6}", fullmatch=True), min_size=1, max_size=6),
    st.sampled_from([pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us")]),
)
def test_what_is_not_in_every_letter_a_value_of_the_inferred_type_is_refused(
    texts: list[str], kind: pa.DataType
) -> None:
    try:
        values = checked_column(pa.array(texts), kind).to_pylist()
    except pa.ArrowInvalid:
        return
    for text, value in zip(texts, values, strict=True):
        if kind == pa.float64():
            assert Decimal(text) == Decimal(repr(value))
            assert not re.match("-?0[0-9]|[+ ]", text)
        elif kind == pa.bool_():
            assert text.lower() == str(value).lower()
        elif kind == pa.timestamp("us"):
            assert value.isoformat(text[10]).startswith(text[:19])
        else:
            assert str(value) == text


@pytest.mark.parametrize("batch_format", FORMATS)
def test_a_postcode_behind_the_sample_keeps_its_zeros_or_is_a_bad_record(
    write, read_all, monkeypatch, batch_format
):
    monkeypatch.setattr(line_blocks, "SAMPLED_BYTES", 64)
    path = write("zip\n" + "90210\n" * 100 + "02134\n" + "10001\n")
    with pytest.raises(BadRecordError, match=r"column 'zip' of type int64 can't be converted from '02134'"):
        read_all(FileSource.csv(path, schema="infer", batch_format=batch_format))
    skipped = read_all(FileSource.csv(path, schema="infer", batch_format=batch_format, on_error="skip")).rows
    assert [row["zip"] for row in skipped] == [90210] * 100 + [10001]


def test_types_travel_in_the_splits_so_a_restored_source_does_not_infer_anew(write, context):
    path = write("id\n" + "1\n" * 10)
    source = FileSource.csv(path, schema="infer", batch_format="arrow")
    (split,) = source.splits(1)
    floats = replace(split, schema=pa.schema({"id": pa.float64()}).serialize().to_pybytes())
    declared = FileSource.csv(path, schema={"id": pa.string()}, batch_format="arrow")
    for restored, at, kind in ((source, floats, pa.float64()), (declared, split, pa.string())):
        reader = restored.reader(context(), [at])
        assert reader.poll(4).batch.batch.schema.types == [kind]
        reader.close()
    with pytest.raises(ConnectorError, match="read text without types"):
        source.reader(context(), FileSource.csv(path).splits(1)).poll(1)


def test_files_may_order_their_columns_as_they_like_but_have_the_same(write, read_all):
    write("a,b\n1,x\n", "1.csv")
    path = write("b,a\ny,2\n", "2.csv")
    source = FileSource.csv(path.parent, schema="infer", batch_format="arrow")
    assert read_all(source).rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    write("a,c\n3,z\n", "3.csv")
    with pytest.raises(ConnectorError, match=r"3\.csv: there is no column 'b', but all files must have"):
        read_all(FileSource.csv(path.parent, schema={"a": pa.int64()}, batch_format="arrow"))
    write("a,b,c\n3,z,1\n", "3.csv")
    with pytest.raises(ConnectorError, match=r"3\.csv: column 'c' is new, but all files must have"):
        read_all(FileSource.csv(path.parent, schema={"a": pa.int64()}, batch_format="arrow"))
    assert (
        len(read_all(FileSource.csv(path.parent, columns=["a"], schema="infer", batch_format="arrow")).rows)
        == 3
    )


@pytest.mark.parametrize("content", ["", "a,b\n", "a,b", "\n\n"])
@pytest.mark.parametrize("batch_format", FORMATS)
def test_a_file_without_rows_gives_none(write, read_all, content, batch_format):
    source = FileSource.csv(write(content), schema="infer", batch_format=batch_format)
    assert read_all(source, restore_every=1).rows == []


@pytest.mark.parametrize("batch_format", FORMATS)
def test_other_encodings_delimiters_and_files_without_headers_are_read(write, read_all, batch_format):
    path = write("1;é\n2;x\n".encode("latin-1"))
    source = FileSource.csv(
        path,
        header=False,
        delimiter=";",
        columns=["n", "t"],
        schema="infer",
        encoding="latin-1",
        batch_format=batch_format,
    )
    assert read_all(source, 1, restore_every=1).rows == [{"n": 1, "t": "é"}, {"n": 2, "t": "x"}]


@pytest.mark.parametrize("batch_format", FORMATS)
def test_a_slow_job_gets_few_rows_at_a_time(write, context, batch_format):
    path = write("id\n" + "".join(f"{i}\n" for i in range(100_000)))
    source = FileSource.csv(path, schema="infer", batch_format=batch_format)
    reader = source.reader(context(), source.splits(1))
    few = [len(reader.poll(10).batch) for _ in range(3)]
    assert max(few) < 3_000
    if batch_format == "arrow":
        assert len(reader.poll(4_096).batch) > 20_000
    else:
        assert isinstance(reader.poll(10).batch, RowBatch)
    reader.close()


def test_special_floats_have_the_values_of_python(write, read_all):
    path = write("v\nnan\ninf\n-inf\n1e400\n-0.0\n")
    for batch_format in FORMATS:
        values = [
            row["v"]
            for row in read_all(
                FileSource.csv(path, schema={"v": pa.float64()}, batch_format=batch_format)
            ).rows
        ]
        assert math.isnan(values[0])
        assert values[1:4] == [math.inf, -math.inf, math.inf]
        assert math.copysign(1, values[4]) == -1


@pytest.mark.parametrize("batch_format", FORMATS)
def test_inferred_types_are_in_the_snapshots_of_a_job(write, batch_format):
    path = write("id\n" + "".join(f"{i}\n" for i in range(2_000)))
    source = FileSource.csv(path, schema="infer", batch_format=batch_format)
    with SourceHarness(source) as harness:
        first, snapshot = harness.poll(10), harness.snapshot()
    with SourceHarness(source, restored=[snapshot]) as harness:
        rest = harness.read_all()
    assert 0 < len(first) < 2_000
    assert [row["id"] for row in first + rest] == list(range(2_000))


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", "-0.01e-400"])
@pytest.mark.parametrize("batch_format", FORMATS)
def test_a_number_behind_the_sample_that_no_float_holds_is_a_bad_record(
    write, read_all, batch_format, text, monkeypatch
):
    monkeypatch.setattr(line_blocks, "SAMPLED_BYTES", 64)
    path = write("v\n" + "1.5\n" * 100 + f"{text}\n0.0\n")
    found = read_all(FileSource.csv(path, schema="infer", batch_format=batch_format, on_error="skip"))
    assert [row["v"] for row in found.rows] == [1.5] * 100 + [0.0]
    assert found.skipped == 1


@pytest.mark.parametrize("text", ["99999999.9", "99999999", "1e8"])
@pytest.mark.parametrize("batch_format", FORMATS)
def test_a_decimal_of_more_digits_than_its_column_has_is_a_bad_record(write, read_all, batch_format, text):
    path = write(f"v\n9999999.99\n{text}\n1.5\n")
    source = FileSource.csv(
        path, schema={"v": pa.decimal128(9, 2)}, batch_format=batch_format, on_error="skip"
    )
    assert [str(row["v"]) for row in read_all(source).rows] == ["9999999.99", "1.50"]
    with pytest.raises(BadRecordError, match=rf"column 'v' of type decimal128\(9, 2\) .*{text}"):
        read_all(FileSource.csv(path, schema={"v": pa.decimal128(9, 2)}, batch_format=batch_format))


@pytest.mark.parametrize("text", ["a,b\n1,2", "a,b\n1,2\n3,x", "a,b\n1,2\n3,4.5", 'a,b\n1,2\n3,"x"'])
@pytest.mark.parametrize("batch_format", FORMATS)
def test_the_end_of_the_last_line_changes_no_type(write, read_all, batch_format, text):
    with_end = read_all(FileSource.csv(write(f"{text}\n"), schema="infer", batch_format=batch_format)).rows
    assert repr(
        read_all(FileSource.csv(write(text), schema="infer", batch_format=batch_format)).rows
    ) == repr(with_end)
    assert type(with_end[0]["a"]) is int


@pytest.mark.parametrize("batch_format", FORMATS)
def test_a_byte_order_mark_behind_the_beginning_is_a_character(write, read_all, batch_format):
    path = write("a,b\n\ufeff1,2\n\ufeff3,4\n")
    rows = read_all(FileSource.csv(path, schema={"b": pa.int64()}, batch_format=batch_format)).rows
    assert rows == [{"a": "\ufeff1", "b": 2}, {"a": "\ufeff3", "b": 4}]


@pytest.mark.parametrize(
    ("columns", "schema"),
    [
        (["x"], {"x": pa.int64()}),
        (None, {"x": pa.int64(), "y": pa.binary()}),
        (None, {"x": pa.int64(), "y": pa.dictionary(pa.int32(), pa.binary())}),
    ],
    ids=["left out", "bytes", "dictionary"],
)
@pytest.mark.parametrize("beside", [b"", b'3,5" disk\n'], ids=["regular", "irregular"])
def test_a_row_that_is_no_text_is_bad_in_any_column_and_any_block(
    tmp_path, read_all, columns, schema, beside
):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n1,a\n2,\xff\n" + beside)
    back = read_all(FileSource.csv(path, columns=columns, schema=schema, on_error="dead_letter"))
    assert [letter.record for letter in back.dead_letters] == [b"2,\xff"]
    assert [row["x"] for row in back.rows] == ([1, 3] if beside else [1])
