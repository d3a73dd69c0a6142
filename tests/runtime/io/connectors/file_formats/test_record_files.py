"""Files of values of the formats: what `FileSink.records` writes, `FileSource.records` reads."""

from __future__ import annotations

import gzip
import pickle
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proto_messages import add_fields, classes_of, message_of, new_file

from penstock import BadRecordError, ConfigurationError, FileSink, FileSource
from penstock.formats import Avro, CsvLines, Decoded, Json, JsonSchema, Protobuf, Raw, SchemaRegistry, Text
from penstock.runtime.io.formats.varints import varint
from penstock.runtime.record.elements import ArrowBatch, RowBatch

Order = message_of([("id", "int64"), ("user", "string")])
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "user", "type": "string"}],
}
COLUMNS = pa.schema({"id": pa.int64(), "user": pa.string()})
SCHEMA = {"type": "object", "required": ["id"]}
REGISTRY = SchemaRegistry("http://localhost:1")

FORMATS: dict[str, tuple[Any, str]] = {
    "json": (Json(COLUMNS), "jsonl"),
    "json_schema": (JsonSchema(SCHEMA, COLUMNS), "jsonl"),
    "csv": (CsvLines(schema=COLUMNS), "csv"),
    "avro": (Avro(AVRO), "avro"),
    "protobuf": (Protobuf(Order), "bin"),
}
ROWS = [{"id": number, "user": f"üser {number}" * (number % 3 + 1)} for number in range(50)]


@pytest.fixture
def written(tmp_path, context, permit):
    """Write batches with `FileSink.records` to a folder, and return it."""

    def write(format_: Any, *batches: Any, **more: Any) -> Any:
        writer = FileSink.records(tmp_path, format_, **more).writer(context())
        for batch in batches:
            writer.write(batch)
        writer.commit(writer.prepare_commit(), permit)
        writer.close()
        return tmp_path

    return write


def framings(name: str) -> list[str | None]:
    lines = "lines" if name in ("json", "json_schema", "csv") else None
    return [lines, "length_delimited"]


CASES = [(name, framing) for name in FORMATS for framing in framings(name)]


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize(("name", "framing"), CASES)
def test_what_was_written_is_read_wherever_the_reader_is_restored(
    written, read_all, name, framing, batch_format
):
    format_, extension = FORMATS[name]
    columns = ArrowBatch(pa.RecordBatch.from_pylist(ROWS, COLUMNS))
    folder = written(format_, RowBatch(ROWS[:30]), columns, framing=framing)
    (file,) = folder.iterdir()
    assert file.suffix == f".{extension if framing in (None, 'lines') else 'bin'}"
    source = FileSource.records(
        folder, format_, framing=framing, batch_format=batch_format, split_size=1 << 30
    )
    assert read_all(source).rows == [*ROWS[:30], *ROWS]
    assert read_all(source, 3, restore_every=1).rows == [*ROWS[:30], *ROWS]
    assert pickle.loads(pickle.dumps(source)) == source


def test_json_csv_and_text_are_read_by_the_readers_of_these_files():
    """Each of these sources is the same value, so there is one reader for each kind of file."""
    assert FileSource.records("/in", Json()) == FileSource.json("/in")
    in_columns = FileSource.records("/in", Json(COLUMNS), batch_format="arrow")
    assert in_columns == FileSource.json("/in", schema=COLUMNS, batch_format="arrow")
    assert FileSource.records("/in", Text("latin-1")) == FileSource.text("/in", encoding="latin-1")
    assert FileSource.records("/in", CsvLines(["a"])) == FileSource.csv("/in", header=False, columns=["a"])
    assert FileSink.records("/out", Json()) == FileSink.json("/out")


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize(
    ("format_", "values"),
    [(Raw(), [b"", b"\xff\n\r\n", b"x" * 300_000, b""]), (Text(), ["", "a\r\n", "é"])],
)
def test_behind_its_length_a_value_may_hold_anything(written, read_all, format_, values, batch_format):
    folder = written(format_, RowBatch(values), framing="length_delimited")
    source = FileSource.records(folder, format_, framing="length_delimited", batch_format=batch_format)
    for back in (read_all(source), read_all(source, 1, restore_every=1)):
        rows = [row["value"] for row in back.rows] if batch_format == "arrow" else back.rows
        assert rows == values


def test_lengths_are_varints_as_in_protobuf(written, tmp_path, read_all):
    orders = [Order(id=number, user="x" * number) for number in (0, 1, 127, 128, 20_000)]
    data = b"".join(part for one in orders for part in (varint(one.ByteSize()), one.SerializeToString()))
    rows = [{"id": one.id, "user": one.user} for one in orders]
    folder = written(Protobuf(Order), RowBatch(rows))
    (file,) = folder.iterdir()
    assert file.read_bytes() == data
    assert read_all(FileSource.records(folder, Protobuf(Order))).rows == rows


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        (Protobuf(Order), Order(id=5, user="u").SerializeToString(), b"\xff"),
        (Json(COLUMNS), b'{"id": 5, "user": "u"}', b'{"id": "x"}'),
        (CsvLines(schema=COLUMNS), b"5,u", b"x,u"),
        (JsonSchema(SCHEMA, COLUMNS), b'{"id": 5, "user": "u"}', b'{"user": "u"}'),
    ],
)
def test_bad_values_become_dead_letters_with_file_and_offset(
    tmp_path, read_all, format_, good, bad, batch_format
):
    values = [good, bad, good, good, bad]
    framing = "lines" if b"\n" not in good and not isinstance(format_, Protobuf) else "length_delimited"
    data, starts = b"", []
    for value in values:
        data += b"" if framing == "lines" else varint(len(value))
        starts.append(len(data))
        data += value + (b"\n" if framing == "lines" else b"")
    (tmp_path / "in").write_bytes(data)
    source = FileSource.records(
        tmp_path / "in", format_, framing=framing, on_error="dead_letter", batch_format=batch_format
    )
    back = read_all(source)
    assert back.rows == [{"id": 5, "user": "u"}] * 3
    assert [letter.origin for letter in back.dead_letters] == [
        f"{tmp_path}/in:{starts[1]}",
        f"{tmp_path}/in:{starts[4]}",
    ]
    assert {letter.record for letter in back.dead_letters} <= {bad, bad.decode("latin-1")}
    failing = FileSource.records(tmp_path / "in", format_, framing=framing, batch_format=batch_format)
    place = f", line 2 (byte {starts[1]}): " if framing == "lines" else f":{starts[1]}: "
    with pytest.raises(BadRecordError, match=re.escape(f"in{place}")):
        read_all(failing)


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (lambda data: data[:-1], "ends within a value"),
        (lambda data: data + b"\x80", "ends within a value"),
        (lambda data: data + b"\xff" * 11, "more than ten bytes"),
        (lambda data: data + b"\xff\xff\xff\xff\x0f", "would have 4294967295 bytes"),
    ],
)
def test_a_file_that_ends_within_a_value_is_damaged(tmp_path, read_all, cut, why):
    data = b"\x02ab" * 3
    (tmp_path / "in").write_bytes(cut(data))
    with pytest.raises(BadRecordError, match=rf"in is damaged at byte \d+: .*{why}.*leave it out"):
        read_all(FileSource.records(tmp_path / "in", Raw(), on_error="skip"))


def test_a_compressed_file_of_values_is_read_from_its_position(tmp_path, read_all):
    values = [bytes([number]) * 100 for number in range(200)]
    data = b"".join(varint(100) + value for value in values)
    (tmp_path / "in.gz").write_bytes(gzip.compress(data))
    source = FileSource.records(tmp_path / "in.gz", Raw())
    assert read_all(source, 7, restore_every=2).rows == values


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=9), st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_lines_of_each_split_are_the_values(tmp_path, read_all, texts, split_size):
    lines = [text.replace("\n", " ").replace("\r", " ") for text in texts]
    path = tmp_path / "in"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    raw = FileSource.records(path, Raw(), framing="lines", split_size=split_size)
    columns = FileSource.records(path, Text(), batch_format="arrow", split_size=split_size)
    assert read_all(raw, 2, restore_every=1).rows == [line.encode() for line in lines]
    assert [row["value"] for row in read_all(columns, 2, restore_every=1).rows] == lines


def test_blank_lines_are_values_of_text_only(tmp_path, read_all):
    (tmp_path / "in").write_bytes(b'{"id": 1}\n\n  \r\n{"id": 2}\r\n')
    source = FileSource.records(tmp_path / "in", JsonSchema(SCHEMA))
    assert read_all(source).rows == [{"id": 1}, {"id": 2}]
    raw = FileSource.records(tmp_path / "in", Raw(), framing="lines")
    assert read_all(raw).rows == [b'{"id": 1}', b"", b"  ", b'{"id": 2}']


@pytest.mark.parametrize("value", ["a\nb", "a\r"])
def test_a_value_with_a_line_end_is_no_line(written, value):
    with pytest.raises(BadRecordError, match=r'a record has a line end.*framing="length_delimited"'):
        written(Text(), RowBatch(["fine", value]))


def test_a_row_of_csv_may_have_a_line_end_in_quotes(written, read_all):
    rows = [{"a": "x\ny", "b": "\r\n"}, {"a": "", "b": "z"}]
    folder = written(CsvLines(["a", "b"]), RowBatch(rows))
    assert read_all(FileSource.records(folder, CsvLines(["a", "b"]))).rows == rows


def test_none_is_null_in_json_and_refused_elsewhere(written, read_all):
    folder = written(Json(), RowBatch([None, 1]))
    assert read_all(FileSource.records(folder, Json())).rows == [None, 1]
    with pytest.raises(BadRecordError, match="a record is None, which a file of the format Text can't hold"):
        written(Text(), RowBatch([None]))


def test_columns_of_folders_are_added(tmp_path, read_all):
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "in").write_bytes(b"\x01a")
    source = FileSource.records(tmp_path, Raw(), partitioning="hive")
    assert read_all(source).rows == [{"value": b"a", "day": 1}]
    plain = FileSource.records(tmp_path, Raw())
    assert read_all(plain).rows == [b"a"]
    (notice,) = plain.splits(1).warnings
    assert "folders such as 'day=1' are ignored, because records have no fields" in notice
    (tmp_path / "day=1" / "in").write_bytes(b'{"id": 7}')
    source = FileSource.records(
        tmp_path, JsonSchema(SCHEMA, COLUMNS), batch_format="arrow", partitioning="hive"
    )
    assert read_all(source).rows == [{"id": 7, "user": None, "day": 1}]


@dataclass(frozen=True)
class Numbers:
    """A format of a user: decimal numbers."""

    def decoder(self, batch_format: str) -> Numbers:
        return self

    def encoder(self) -> Numbers:
        return self

    def decode(self, values: Any) -> Decoded:
        return Decoded(RowBatch([int(value) for value in values]))

    def encode(self, batch: Any) -> list[bytes]:
        return [str(row).encode() for row in batch.rows]

    def close(self) -> None:
        pass


def test_a_format_of_a_user_has_lines(written, read_all):
    folder = written(Numbers(), RowBatch([1, 22]), extension="num")
    (file,) = folder.iterdir()
    assert (file.suffix, file.read_bytes()) == (".num", b"1\n22\n")
    assert read_all(FileSource.records(folder, Numbers())).rows == [1, 22]
    assert not FileSink.records(folder, Numbers()).only_reads
    assert FileSink.records(folder, Text()).only_reads


class Tracked(Numbers):
    """Counts how often its decoder or encoder was closed."""

    closed = 0

    def close(self) -> None:
        Tracked.closed += 1


@pytest.mark.parametrize("framing", ["lines", "length_delimited"])
def test_decoders_and_encoders_are_closed(written, read_all, framing):
    Tracked.closed = 0
    folder = written(Tracked(), RowBatch([1]), RowBatch([2]), framing=framing)
    assert Tracked.closed == 1
    source = FileSource.records(folder, Tracked(), framing=framing)
    assert read_all(source).rows == [1, 2]
    assert Tracked.closed == 2


@pytest.mark.parametrize(
    ("format_", "more", "why"),
    [
        (Json, {}, r"is not a format of penstock.formats: call it, Json\(\)"),
        ("json", {}, r"format='json' is not a format of penstock.formats, such as Json\(\)"),
        (Json(), {"framing": "blocks"}, "framing='blocks' is not allowed: use one of 'lines'"),
        (Protobuf(Order), {"framing": "lines"}, "does not fit Protobuf, whose values may have line ends"),
        (Avro(registry=REGISTRY), {"framing": "lines"}, "does not fit Avro"),
        (JsonSchema(registry=REGISTRY), {"framing": "lines"}, "does not fit JsonSchema"),
        (Avro(registry=REGISTRY), {"framing": "container"}, "is for Avro without a registry"),
        (Json(), {"framing": "container"}, "is for Avro without a registry"),
    ],
)
def test_a_framing_that_does_not_fit_is_refused(format_, more, why):
    for make in (FileSource.records, FileSink.records):
        with pytest.raises(ConfigurationError, match=why):
            make("/data", format_, **more)


def test_what_has_no_columns_is_refused_before_the_job_starts():
    file = new_file("node.proto")
    add_fields(file.message_type.add(name="Node"), [("next", ".shop.Node")])
    with pytest.raises(ConfigurationError, match="is recursive, so it has no columns"):
        FileSource.records("/in", Protobuf(classes_of(file)["Node"]), batch_format="arrow")
    with pytest.raises(ConfigurationError, match="JSON Schema has no columns: the value has no prop"):
        FileSource.records("/in", JsonSchema(SCHEMA), batch_format="arrow")
    with pytest.raises(ConfigurationError, match="Json needs schema= for Arrow batches"):
        FileSource.records("/in", Json(), batch_format="arrow", framing="length_delimited")


def test_what_can_not_be_written_is_refused_before_the_job_starts():
    with pytest.raises(ConfigurationError, match="Avro needs schema= for FileSink"):
        FileSink.records("/out", Avro())
    with pytest.raises(ConfigurationError, match=r"extension='a/b' is not allowed"):
        FileSink.records("/out", Json(), extension="a/b")
    with pytest.raises(ConfigurationError, match="can't be written as lines"):
        FileSink.records("/out", Text("utf-16"))
    with pytest.raises(ConfigurationError, match="Arrow batches of lines"):
        FileSource.records("/in", Text("utf-16"), batch_format="arrow")
