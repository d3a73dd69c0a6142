"""Container files of Avro: of other writers, in ranges, by another schema, and damaged ones."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import BadRecordError, ConfigurationError, ConnectorError, FileSink, FileSource
from penstock.formats import Avro
from penstock.runtime.io.formats.varints import varint
from penstock.runtime.record.elements import ArrowBatch, RowBatch


def record(*fields: Any) -> dict[str, Any]:
    described = [one if isinstance(one, dict) else {"name": one[0], "type": one[1]} for one in fields]
    return {"type": "record", "name": "Order", "fields": described}


ORDER = record(("id", "long"), ("user", "string"))
#: A schema that only fastavro decodes.
SLOW = record(("id", "long"), ("data", "bytes"))
ROWS = [{"id": number, "user": "x" * (number % 7)} for number in range(500)]


def write(path: Any, schema: Any, rows: Any, **more: Any) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, **more)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_files_of_other_writers_are_read(tmp_path, read_all, codec, batch_format):
    write(tmp_path / "in.avro", ORDER, ROWS, codec=codec, sync_interval=100)
    source = FileSource.records(tmp_path, Avro(), batch_format=batch_format)
    assert read_all(source).rows == ROWS
    assert read_all(source, 5, restore_every=1).rows == ROWS


def with_codec(codec: str, data: bytes, packed: bytes) -> bytes:
    """A file of one block whose block is replaced by a compressed one."""
    header, block, _ = data.split(data[-16:])
    assert b"\x14avro.codec\x08null" in header
    named = bytes([2 * len(codec)]) + codec.encode()
    header = header.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + named)
    count = block[: len(fastavro_long(len(ROWS)))]
    return data[-16:].join([header, count + fastavro_long(len(packed)) + packed, b""])


def snappy(records: bytes) -> bytes:
    return pa.Codec("snappy").compress(records, asbytes=True) + zlib.crc32(records).to_bytes(4, "big")


def records_of(data: bytes) -> bytes:
    """The records in a file of one block that is not compressed."""
    block = data.split(data[-16:])[1]
    count = len(fastavro_long(len(ROWS)))
    return block[count + len(fastavro_long(len(block) - count - 2)) :]


@pytest.mark.parametrize(
    ("codec", "compress"),
    [("snappy", snappy), ("zstandard", lambda data: pa.Codec("zstd").compress(data, asbytes=True))],
)
def test_codecs_of_arrow_are_read(tmp_path, read_all, codec, compress):
    write(tmp_path / "in.avro", ORDER, ROWS)
    data = (tmp_path / "in.avro").read_bytes()
    (tmp_path / "in.avro").write_bytes(with_codec(codec, data, compress(records_of(data))))
    assert read_all(FileSource.records(tmp_path, Avro())).rows == ROWS


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda packed: packed.replace(b"xxxx", b"xxyx", 1), "its checksum does not match its records"),
        (lambda packed: packed[:-1] + bytes([packed[-1] ^ 1]), "its checksum does not match its records"),
        # Arrow would reserve the memory for these bytes.
        (lambda packed: varint(1 << 40) + packed[2:], f"of snappy can't become {1 << 40} bytes"),
        (lambda packed: b"", "can't be read"),
    ],
)
def test_a_damaged_block_of_snappy_is_one_bad_record(tmp_path, read_all, damage, why):
    write(tmp_path / "in.avro", ORDER, ROWS)
    data = (tmp_path / "in.avro").read_bytes()
    packed = snappy(records_of(data))
    assert damage(packed) != packed
    (tmp_path / "in.avro").write_bytes(with_codec("snappy", data, damage(packed)))
    back = read_all(FileSource.records(tmp_path, Avro(), on_error="dead_letter"))
    (letter,) = back.dead_letters
    assert (back.rows, letter.record) == ([], damage(packed))
    assert f"the block of {len(ROWS)} records can't be read" in letter.error
    assert why in letter.error


def fastavro_long(number: int) -> bytes:
    output = BytesIO()
    fastavro.schemaless_writer(output, "long", number)
    return output.getvalue()


@given(st.integers(1, 3000), st.integers(50, 400), st.lists(st.integers(0, 30), max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
def test_each_record_belongs_to_one_range(tmp_path, context, drain, split_size, interval, sizes):
    rows = [{"id": number, "user": "x" * size} for number, size in enumerate(sizes)]
    write(tmp_path / "in.avro", ORDER, rows, sync_interval=interval)
    source = FileSource.records(tmp_path, Avro(ORDER))
    size = (tmp_path / "in.avro").stat().st_size
    (split,) = source.splits(1)
    found = []
    for start in range(0, size, split_size):
        part = replace(split, start=start, end=min(start + split_size, size))
        reader = source.reader(context(), [part])
        found += drain(reader, 3).rows
        reader.close()
    assert found == rows


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize(
    ("writer", "reader", "row", "read"),
    [
        (ORDER, record(("id", "double")), {"id": 1, "user": "u"}, {"id": 1.0}),
        (
            ORDER,
            record(
                {"name": "n", "type": "long", "aliases": ["id"]},
                {"name": "c", "type": "string", "default": "EUR"},
            ),
            {"id": 1, "user": "u"},
            {"n": 1, "c": "EUR"},
        ),
        (SLOW, record(("data", "bytes")), {"id": 1, "data": b"\xff"}, {"data": b"\xff"}),
    ],
)
def test_a_reader_schema_is_resolved(tmp_path, read_all, writer, reader, row, read, batch_format):
    write(tmp_path / "in.avro", writer, [row] * 3)
    for format_ in (Avro(reader), Avro(reader_schema=reader), Avro(writer, json.dumps(reader))):
        assert read_all(FileSource.records(tmp_path, format_, batch_format=batch_format)).rows == [read] * 3


def test_columns_have_the_schema_of_the_first_file(tmp_path, read_all):
    write(tmp_path / "1.avro", ORDER, ROWS[:2])
    more = record(*ORDER["fields"], ("paid", "boolean"))
    write(tmp_path / "2.avro", more, [{**ROWS[2], "paid": True}])
    assert read_all(FileSource.records(tmp_path, Avro())).rows == [*ROWS[:2], {**ROWS[2], "paid": True}]
    assert read_all(FileSource.records(tmp_path, Avro(), batch_format="arrow")).rows == ROWS[:3]


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize("slow", [False, True])
def test_a_record_that_does_not_fit_the_reader_is_found_in_its_block(tmp_path, read_all, batch_format, slow):
    more = [("data", "bytes")] if slow else []
    writer = record(("id", ["null", "long"]), *more)
    rows = [{"id": number, **({"data": b"d"} if slow else {})} for number in (1, None, 3)]
    write(tmp_path / "in.avro", writer, rows)
    reader = record(("id", "long"), *more)
    source = FileSource.records(tmp_path, Avro(reader), batch_format=batch_format, on_error="dead_letter")
    back = read_all(source)
    assert back.rows == [rows[0], rows[2]]
    (letter,) = back.dead_letters
    assert letter.record == (b"\0\x02d" if slow else b"\0")
    assert "field 'id' does not fit the reader's schema" in letter.error
    assert letter.error.endswith("(record 1 of the block)")


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize("schema", [ORDER, SLOW])
def test_a_block_that_can_not_be_read_is_one_bad_record(tmp_path, read_all, batch_format, schema):
    rows = [{"id": 1 << 40, "user": "é", "data": b"d"}] * 3
    fields = [field["name"] for field in schema["fields"]]
    rows = [{name: row[name] for name in fields} for row in rows]
    write(tmp_path / "in.avro", schema, rows, sync_interval=1)
    data = (tmp_path / "in.avro").read_bytes()
    marker = data[-16:]
    header, first, second, third, rest = data.split(marker)
    broken = first[:2] + b"\xff" * (len(first) - 2)
    (tmp_path / "in.avro").write_bytes(marker.join([header, first, broken, third, rest]))
    source = FileSource.records(tmp_path, Avro(), batch_format=batch_format, on_error="dead_letter")
    back = read_all(source)
    assert back.rows == [rows[0], rows[2]]
    (letter,) = back.dead_letters
    assert letter.record == broken[2:]
    assert "the block of 1 records can't be read" in letter.error
    assert letter.origin == f"{tmp_path}/in.avro:{len(header) + len(first) + 32}"
    assert second == first


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (lambda data: data[:-1], "ends within a block"),
        (lambda data: data + b"\x02", "ends within a block"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "no marker follows the block"),
        (lambda data: data + b"\x01\x02", "a block would have -1 records"),
        (lambda data: data + b"\xff" * 11, "more than ten bytes"),
        (lambda data: data[:20], "not an Avro container file, or its header is damaged"),
        (lambda data: b"PAR1" + data, "not an Avro container file"),
        (lambda data: data.replace(b"\x08null", b"\x08lzma"), "codec 'lzma'; known codecs are null, deflate"),
    ],
)
def test_a_damaged_file_fails(tmp_path, read_all, cut, why):
    write(tmp_path / "in.avro", ORDER, ROWS)
    (tmp_path / "in.avro").write_bytes(cut((tmp_path / "in.avro").read_bytes()))
    with pytest.raises(BadRecordError, match=rf"in\.avro.*{why}"):
        read_all(FileSource.records(tmp_path, Avro(), on_error="skip"))


def test_files_that_were_written_are_read_by_fastavro(tmp_path, context, permit, read_all):
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    schema = record(("id", "long"), ("price", price), ("text", "string"))
    rows = [{"id": number, "price": Decimal("1.50"), "text": "x" * 50} for number in range(2_000)]
    writer = FileSink.records(tmp_path, Avro(schema)).writer(context())
    writer.write(RowBatch(rows))
    kinds = pa.schema({"id": pa.int64(), "price": pa.decimal128(6, 2), "text": pa.string()})
    writer.write(ArrowBatch(pa.RecordBatch.from_pylist(rows, kinds)))
    writer.commit(writer.prepare_commit(), permit)
    (file,) = tmp_path.iterdir()
    with file.open("rb") as stream:
        assert list(fastavro.reader(stream)) == rows * 2
    with file.open("rb") as stream:
        assert max(block.num_records for block in fastavro.block_reader(stream)) < 2_000
    assert read_all(FileSource.records(tmp_path, Avro())).rows == rows * 2


def test_an_avro_file_that_is_compressed_as_a_whole_is_refused(tmp_path):
    (tmp_path / "in.avro.gz").write_bytes(b"x")
    with pytest.raises(ConnectorError, match="Avro files have compressed blocks"):
        FileSource.records(tmp_path, Avro()).splits(1)


def test_single_values_of_avro_need_a_schema():
    for make in (lambda: Avro().decoder("rows"), lambda: Avro().encoder()):
        with pytest.raises(ConfigurationError, match="only files have their own"):
            make()
    with pytest.raises(ConfigurationError, match="is recursive"):
        FileSource.records("/in", Avro(record(("next", ["null", "Order"]))), batch_format="arrow")
