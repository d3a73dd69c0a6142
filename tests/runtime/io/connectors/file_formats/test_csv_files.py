from __future__ import annotations

import csv
import gzip
import tracemalloc
from datetime import date
from decimal import Decimal

import pytest

from penstock import BadRecordError, ConnectorError, FileSource
from penstock.runtime.errors import ConfigurationError


@pytest.fixture
def write(tmp_path):
    def to_file(content: str | bytes, name: str = "a.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def test_rows_are_dicts_named_by_the_header(write, read_all):
    path = write('\ufeffid,name\r\n1,"a ""b"", c"\r\n\r\n2,\r\n')
    assert read_all(FileSource.csv(path)).rows == [{"id": "1", "name": 'a "b", c'}, {"id": "2", "name": ""}]


def test_quoted_newlines_stay_in_their_field_and_positions_are_exact(write, tmp_path, read_all):
    rows = [{"id": str(i), "text": "x\ny\r\n\n" * (i % 4) + "é,\"'" * (i % 3)} for i in range(500)]
    path = tmp_path / "a.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(rows)
    source = FileSource.csv(path)
    assert len(source.splits(4)) == 1
    assert read_all(source).rows == rows
    for max_rows in (1, 7, 100):
        assert read_all(source, max_rows, restore_every=1).rows == rows
    packed = write(gzip.compress(path.read_bytes()), "a.csv.gz")
    assert read_all(FileSource.csv(packed), 37, restore_every=2).rows == rows


def test_a_restored_reader_goes_on_at_a_byte_offset(write, context):
    path = write('a\n1\n"2\n2"\n3\n')
    source = FileSource.csv(path)
    reader = source.reader(context(), source.splits(1))
    assert reader.poll(2).batch.rows == [{"a": "1"}, {"a": "2\n2"}]
    (split,) = reader.snapshot()
    reader.close()
    assert split.position == path.read_bytes().index(b"3")


def test_without_a_header_columns_are_named_by_the_source(write, read_all):
    path = write("1;x\n2;y\n")
    source = FileSource.csv(path, header=False, delimiter=";", columns=["n", "t"])
    expected = [{"n": "1", "t": "x"}, {"n": "2", "t": "y"}]
    assert read_all(source).rows == expected
    assert read_all(source, 1, restore_every=1).rows == expected


def test_columns_and_types_choose_and_convert(write, read_all):
    path = write("id,price,day,ok,note\n1,2.50,2024-01-02,True,\n2,,2024-01-03,0,hello\n")
    schema = {"id": int, "price": Decimal, "day": date.fromisoformat, "ok": bool, "note": str}
    assert read_all(FileSource.csv(path, schema=schema)).rows == [
        {"id": 1, "price": Decimal("2.50"), "day": date(2024, 1, 2), "ok": True, "note": ""},
        {"id": 2, "price": None, "day": date(2024, 1, 3), "ok": False, "note": "hello"},
    ]
    chosen = FileSource.csv(path, columns=["note", "id"], schema={"id": int})
    assert read_all(chosen).rows == [{"note": "", "id": 1}, {"note": "hello", "id": 2}]


BAD = b'id,v\n1,a\n2\n3,"b"x\n4,c\nfive,d\n6,\xff\n7,e,e\n8,"f\nf"\n'


def test_every_kind_of_bad_row_is_found_and_the_good_ones_are_kept(write, read_all):
    path = write(BAD)
    good = [{"id": 1, "v": "a"}, {"id": 4, "v": "c"}, {"id": 8, "v": "f\nf"}]
    for max_rows, restore_every in ((1000, 0), (1, 0), (1, 1), (2, 1), (3, 2)):
        source = FileSource.csv(path, schema={"id": int}, on_error="dead_letter")
        back = read_all(source, max_rows, restore_every)
        assert back.rows == good
        assert [each.record for each in back.dead_letters] == ["2", '3,"b"x', "five,d", b"6,\xff", "7,e,e"]
        offsets = [int(each.origin.removeprefix(f"{path}:")) for each in back.dead_letters]
        assert offsets == [BAD.index(start) for start in (b"2\n", b"3,", b"five", b"6,", b"7,")]
        skipping = read_all(
            FileSource.csv(path, schema={"id": int}, on_error="skip"), max_rows, restore_every
        )
        assert (skipping.rows, skipping.skipped) == (good, 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "id\n1\n2,3\n",
            r"a\.csv, line 3 \(byte 5\): the number of fields is 2 in this row, but 1 in.*'2,3'",
        ),
        ("id\nx\n", r"a\.csv, line 2 \(byte 3\): column 'id' can't be converted from 'x': invalid literal"),
        ('id\n"1\n2\n', r"a\.csv, line 2 \(byte 3\): the row is not CSV: unexpected end of data"),
    ],
)
def test_a_bad_row_fails_the_source_with_file_offset_and_text(write, read_all, content, message):
    with pytest.raises(BadRecordError, match=message):
        read_all(FileSource.csv(write(content), schema={"id": int}))


def test_long_fields_are_read(write, read_all):
    path = write(f"a\n{'x' * 500_000}\n")
    assert len(read_all(FileSource.csv(path)).rows[0]["a"]) == 500_000


def test_only_the_part_that_is_being_read_is_kept_in_memory(write, read_all, context):
    path = write("a\n" + ("x" * 9_999 + "\n") * 1000)
    source = FileSource.csv(path)
    reader = source.reader(context(), source.splits(1))
    tracemalloc.start()
    try:
        while not reader.poll(10).finished:
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        reader.close()
    assert peak < 5_000_000


def test_a_header_that_does_not_fit_is_named(write, read_all):
    path = write("a,b,a\n1,2,3\n")
    with pytest.raises(ConnectorError, match=r"the header has \['a'\] more than once.*skip_rows=1"):
        read_all(FileSource.csv(path))
    path = write("a,b\n1,2\n")
    with pytest.raises(ConnectorError, match=r"lacks \['c'\]; it has \['a', 'b'\]"):
        read_all(FileSource.csv(path, columns=["a", "c"]))
    path = write(b"\xff,b\n1,2\n")
    with pytest.raises(ConnectorError, match="the header is not text in utf-8"):
        read_all(FileSource.csv(path))


@pytest.mark.parametrize("content", ["", "a,b\n", "a,b", "\n\n"])
def test_a_file_without_rows_gives_none(write, read_all, content):
    assert read_all(FileSource.csv(write(content)), restore_every=1).rows == []


def test_settings_that_are_not_allowed_are_named(tmp_path):
    with pytest.raises(ConfigurationError, match="delimiter='ab'"):
        FileSource.csv(tmp_path, delimiter="ab")
    with pytest.raises(ConfigurationError, match="header=False needs columns"):
        FileSource.csv(tmp_path, header=False)
    with pytest.raises(ConfigurationError, match=r"schema has \['b'\]"):
        FileSource.csv(tmp_path, columns=["a"], schema={"b": int})
    with pytest.raises(ConfigurationError, match="give a list of names"):
        FileSource.csv(tmp_path, columns="a")
    with pytest.raises(ConfigurationError, match="a column twice"):
        FileSource.csv(tmp_path, columns=["a", "a"])
