from __future__ import annotations

import gzip
import json
import random

import pyarrow as pa
import pytest

from penstock import BadRecordError, ConnectorError, FileSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.file_formats import line_blocks
from penstock.runtime.record.elements import ArrowBatch


@pytest.fixture
def write(tmp_path):
    def to_file(content: str | bytes, name: str = "a.jsonl"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def objects(count: int) -> list[dict[str, object]]:
    chosen = random.Random(5)
    return [
        {
            "id": i,
            "v": None if i % 7 == 0 else i / 4,
            "text": chosen.choice(["é", '"', "}\n{", "", "2024-01-01", "\u2028"]),
            "list": [1, None] * (i % 3),
            "in": {"a": i % 2 == 0, "b": None if i % 2 else "x"},
        }
        for i in range(count)
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_columns_have_the_values_of_rows_and_positions_are_exact(write, read_all, packed):
    rows = objects(4_000)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path = write(gzip.compress(data), "a.jsonl.gz") if packed else write(data)
    assert read_all(FileSource.json(path)).rows == rows
    assert read_all(FileSource.json(path, batch_format="arrow")).rows == rows
    source = FileSource.json(path, batch_format="arrow", split_size=10_000)
    assert read_all(source, 7, restore_every=2).rows == rows


def test_columns_and_types_can_be_given(write, context):
    path = write('{"a": 1, "b": "x", "c": [1]}\n{"b": "y"}\n')
    schema = pa.schema({"b": pa.string(), "a": pa.float32(), "z": pa.int64()})
    source = FileSource.json(path, batch_format="arrow", schema=schema)
    reader = source.reader(context(), source.splits(1))
    batch = reader.poll(10).batch
    reader.close()
    assert isinstance(batch, ArrowBatch)
    assert batch.batch.schema == schema
    assert batch.batch.to_pylist() == [{"b": "x", "a": 1.0, "z": None}, {"b": "y", "a": None, "z": None}]
    with pytest.raises(ConfigurationError, match=r"schema= needs batch_format=.arrow."):
        FileSource.json(path, schema=schema)


BAD = (
    b'{"a": 1}\n\noops\n{"a": 2}{"a": 3}\n{"a": "x"}\n[1]\n{"a":\n4}\n'
    b'{"a": 5, "b": 1}\n\xff\n{"a": 6}\r\n \n{"a": 7}'
)
BAD_LINES = [b"oops", b'{"a": 2}{"a": 3}', b'{"a": "x"}', b"[1]", b'{"a":', b"4}", b"\xff"]


@pytest.mark.parametrize(("max_rows", "restore_every"), [(4_096, 0), (1, 1), (2, 3)])
@pytest.mark.parametrize("split_size", [3, 20, 1_000])
def test_bad_lines_are_found_and_the_good_ones_kept(write, read_all, max_rows, restore_every, split_size):
    path = write(BAD)
    schema = pa.schema({"a": pa.int64()})

    def read(on_error):
        source = FileSource.json(
            path, batch_format="arrow", schema=schema, on_error=on_error, split_size=split_size
        )
        return read_all(source, max_rows, restore_every)

    back = read("dead_letter")
    assert [row["a"] for row in back.rows] == [1, 5, 6, 7]
    found = [each.record for each in back.dead_letters]
    assert [each if isinstance(each, bytes) else each.encode() for each in found] == BAD_LINES
    offsets = [int(each.origin.removeprefix(f"{path}:")) for each in back.dead_letters]
    assert offsets == [BAD.index(line + b"\n") for line in BAD_LINES]
    back = read("skip")
    assert ([row["a"] for row in back.rows], back.skipped) == ([1, 5, 6, 7], 7)


def test_why_a_line_is_bad_is_said_with_file_and_offset(write, read_all):
    good = '{"a": 1}\n' * 40_000
    for line, message in (
        (
            '{"a": "x"}',
            r"field 'a' does not fit its column of type int64: give a schema= that fits",
        ),
        (
            '{"a": 1, "b": 2}',
            r"field 'b' is not one of the columns \['a'\]: give a schema= that has it",
        ),
        (
            "[1]",
            r"the line is a JSON value of type list, but columns need objects",
        ),
        ("{", r"the line is not a JSON value"),
    ):
        path = write(good + line + "\n")
        with pytest.raises(BadRecordError, match=rf"a\.jsonl, line 40001 \(byte 360000\): {message}"):
            read_all(FileSource.json(path, batch_format="arrow"))


def test_columns_that_can_t_be_inferred_are_refused(write):
    path = write('{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(
        ConnectorError, match=r"a\.jsonl: the columns can't be inferred .* Give FileSource\.json a schema="
    ):
        FileSource.json(path, batch_format="arrow").splits(1)
    path = write('{"a": 123456789012345678901}\n')
    with pytest.raises(ConnectorError, match=r"column 'a' would have floats, which round integers"):
        FileSource.json(path, batch_format="arrow").splits(1)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("elements", [[{"a": 1}, {"a": 2}], [[1], [2, 3]], [1, 2, 3], ["x", "y"]])
def test_a_file_that_is_one_json_array_over_several_lines_is_refused_by_name(write, elements, indent):
    lines = "[\n" + ",\n".join(json.dumps(each, indent=indent) for each in elements) + "\n]\n"
    for content in (lines, "\n " + lines, json.dumps(elements, indent=4)):
        path = write(content)
        for batch_format in ("rows", "arrow"):
            with pytest.raises(ConnectorError, match=r"a\.jsonl is one JSON array .*`jq -c '\.\[\]'`"):
                FileSource.json(path, batch_format=batch_format, on_error="skip").splits(1)


def test_an_array_of_objects_on_one_line_is_one_record_and_a_warning(write, read_all):
    path = write('[{"a": 1}, {"a": 2}]\n')
    source = FileSource.json(path)
    (warning,) = source.splits(1).warnings
    assert "a.jsonl is one JSON array on one line: it is read as one record, which is a list" in warning
    assert read_all(source).rows == [[{"a": 1}, {"a": 2}]]
    with pytest.raises(ConnectorError, match="is one JSON array on one line, not JSON lines"):
        FileSource.json(path, batch_format="arrow").splits(1)


@pytest.mark.parametrize("content", ["[1, 2]\n[3]\n", "[]\n", "[1]", "[1, 2\n3\n", "[\n", '["a\n"b"]\n', ""])
def test_lines_that_are_arrays_are_json_lines(write, content):
    assert list(FileSource.json(write(content or "\n")).splits(1).warnings) == []


@pytest.mark.parametrize("wrap", ["%s", '{"b": %s}', "[%s]"])
def test_an_integer_that_no_float_keeps_is_bad_also_behind_the_sample(write, read_all, wrap, monkeypatch):
    monkeypatch.setattr(line_blocks, "SAMPLED_BYTES", 64)
    numbers = ["1.5"] * 100 + ["9007199254740993", "1e20", "9007199254740992", "-9007199254740993", "3"]
    path = write("".join('{"a": ' + wrap % number + "}\n" for number in numbers))
    kept = [json.loads(f'{{"a": {wrap % number}}}') for number in numbers if not number.endswith("93")]
    assert read_all(FileSource.json(path, batch_format="arrow", on_error="skip")).rows == kept
    with pytest.raises(BadRecordError, match=r"field 'a' does not fit its column of type .*double"):
        read_all(FileSource.json(path, batch_format="arrow"))


@pytest.mark.parametrize("text", ["99999999.9", '"99999999"', "1e8"])
def test_a_decimal_of_more_digits_than_its_column_has_is_a_bad_line(write, read_all, text):
    path = write(f'{{"v": 9999999.99}}\n{{"v": {text}}}\n{{"v": 1.5}}\n')
    schema = pa.schema({"v": pa.decimal128(9, 2)})
    source = FileSource.json(path, batch_format="arrow", schema=schema, on_error="skip")
    assert [str(row["v"]) for row in read_all(source).rows] == ["9999999.99", "1.50"]


#: Lines that Python's parser reads, and Arrow's does not.
ARROW_REFUSES = [
    '{"v": 1, "v": 2}',
    '{"v": 1e400}',
    '{"v": 1, "t": "\\ud800"}',
    '{"v": 1, "in": {"a": 1, "a": 2}}',
]


@pytest.mark.parametrize("line", ARROW_REFUSES)
@pytest.mark.parametrize("before", [0, 5_000])
def test_a_line_that_arrow_does_not_read_is_a_bad_record_wherever_it_stands(write, read_all, line, before):
    good = [{"v": float(i), "t": "x" * 90, "in": {"a": i}} for i in range(before)]
    last = {"v": 0.5, "t": "y", "in": {"a": 7}}
    path = write("".join(f"{json.dumps(each)}\n" for each in good) + f"{line}\n{json.dumps(last)}\n")
    back = read_all(FileSource.json(path, batch_format="arrow", on_error="dead_letter"))
    assert back.rows == [*good, last]
    (letter,) = back.dead_letters
    assert letter.record == line
    place = rf"{path}, line {before + 1} \(byte {path.read_text().index(line)}\)"
    with pytest.raises(BadRecordError, match=f"{place}: .* does not fit"):
        read_all(FileSource.json(path, batch_format="arrow"))


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("a", pa.int64()), ("a", pa.int64())]),
        pa.schema([("a", pa.list_(pa.struct([("b", pa.int64()), ("b", pa.string())])))]),
    ],
)
def test_a_schema_that_names_a_field_twice_is_refused(schema):
    with pytest.raises(ConfigurationError, match="twice"):
        FileSource.json("/in", batch_format="arrow", schema=schema)


@pytest.mark.parametrize(
    ("kind", "kept", "lost"),
    [
        (pa.float64(), 2**53, 2**53 + 1),
        (pa.list_(pa.float64()), [1], [2**60 + 1]),
        (pa.timestamp("us"), "2020-01-01T05:00:00.5", "2020-01-01T05:00:00.5+02:00"),
        (pa.timestamp("us"), "2020-01-01 05:00", "2020-01-01T05Z"),
        (pa.struct({"t": pa.timestamp("s")}), {"t": "2020-01-01"}, {"t": "2020-01-01T05:00:00-0800"}),
    ],
)
def test_a_value_that_a_given_column_would_change_is_a_bad_record(write, read_all, kind, kept, lost):
    lines = [json.dumps({"v": value, "z": "2020-01-01T05:00:00Z"}) for value in (kept, lost, kept)]
    path = write("\n".join(lines) + "\n")
    schema = pa.schema({"v": kind})
    back = read_all(FileSource.json(path, batch_format="arrow", schema=schema, on_error="dead_letter"))
    assert len(back.rows) == 2
    (letter,) = back.dead_letters
    assert letter.record == lines[1]
    assert "field 'v' does not fit its column" in letter.error
    assert letter.origin == f"{path}:{len(lines[0]) + 1}"


@pytest.mark.parametrize("bad", ['{"v": "x"}', '{"v": 1, "v": 2}', '{"v": [1, "x"]}', "nothing"])
def test_lines_of_the_sample_that_fit_no_column_are_skipped_on_request(write, read_all, bad):
    path = write('{"v": 1}\n' + bad + '\n{"v": 2.5, "w": null}\n')
    back = read_all(FileSource.json(path, batch_format="arrow", on_error="dead_letter"))
    assert [row["v"] for row in back.rows] == [1.0, 2.5]
    assert [letter.record for letter in back.dead_letters] == [bad]
    assert read_all(FileSource.json(path, batch_format="arrow", on_error="skip")).skipped == 1
    with pytest.raises(ConnectorError, match=r"a\.jsonl"):
        read_all(FileSource.json(path, batch_format="arrow"))
