"""Formats: a batch of values to columns, to rows and back, compared with the libraries alone.

    python benchmarks/formats.py --json formats.json

A record has seven fields: two integers, a float, a boolean and three strings. In every round each contender
decodes or encodes the same batch, one after another, in this process. The figures are nanoseconds of
processor time a record, the median of all rounds. Machines differ, so each target also stands as a
ratio to the fastest library, from the machine for which the target was set.

A library alone does less than a format. It fails the whole batch for one bad value. Most accept a string as a
number, keep one of two fields with the same name, or round an integer.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from io import BytesIO
from typing import Any

import duckdb
import fastavro
import msgspec
import orjson
import polars
import ptars
import pyarrow as pa
import pyarrow.json
import pyruhvro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from measure import Figures, machine, middle, options, spread, table, versions

from penstock.formats import Avro, CsvLines, Decoder, Json, Protobuf
from penstock.runtime.record.elements import Batch, RowBatch

FIELDS = pa.schema(
    {
        "id": pa.int64(),
        "user": pa.string(),
        "amount": pa.float64(),
        "currency": pa.string(),
        "at": pa.int64(),
        "paid": pa.bool_(),
        "note": pa.string(),
    }
)

#: Contender and its target in nanoseconds a record.
TARGETS = {
    "Json to columns": 700,
    "Avro to columns": 150,
    "Protobuf to columns": 250,
}
#: The fastest library of the same work, and its nanoseconds on the machine for which the target was set.
FASTEST = {
    "Json to columns": ("DuckDB from_json", 529),
    "Avro to columns": ("pyruhvro", 92),
    "Protobuf to columns": ("ptars", 190),
}


def records(count: int) -> list[dict[str, Any]]:
    draws = random.Random(7)
    return [
        {
            "id": number,
            "user": f"user-{draws.randrange(10_000)}",
            "amount": round(draws.random() * 1_000, 2),
            "currency": draws.choice(("EUR", "USD", "GBP")),
            "at": 1_764_000_000_000 + number * 37,
            "paid": draws.random() < 0.5,
            "note": f"{draws.randrange(10**9)} " * 4,
        }
        for number in range(count)
    ]


def avro_schema() -> dict[str, Any]:
    names = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double", pa.bool_(): "boolean"}
    fields = [{"name": field.name, "type": names[field.type]} for field in FIELDS]
    return {"type": "record", "name": "Order", "fields": fields}


def message_class() -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    types = {
        pa.int64(): kinds.TYPE_INT64,
        pa.string(): kinds.TYPE_STRING,
        pa.float64(): kinds.TYPE_DOUBLE,
        pa.bool_(): kinds.TYPE_BOOL,
    }
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, field in enumerate(FIELDS, 1):
        message.field.add(name=field.name, number=number, type=types[field.type], label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def decoded(decoder: Decoder, values: Sequence[bytes]) -> Callable[[], Batch]:
    return lambda: decoder.decode(values).batch


def json_contenders(rows: list[dict[str, Any]]) -> dict[str, Callable[[], object]]:
    values = [json.dumps(row).encode() for row in rows]
    columns = Json(FIELDS).decoder("arrow").decode(values).batch
    duck = duckdb.connect()
    duck.execute("SET threads = 1")
    structure = json.dumps(
        {
            name: {"int64": "BIGINT", "string": "VARCHAR", "double": "DOUBLE", "bool": "BOOLEAN"}[str(kind)]
            for name, kind in zip(FIELDS.names, FIELDS.types, strict=True)
        }
    )

    def by_arrow() -> object:
        text = b"\n".join(values)
        read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        parse = pyarrow.json.ParseOptions(explicit_schema=FIELDS)
        return pyarrow.json.read_json(pa.BufferReader(text), read, parse)

    def by_duckdb() -> object:
        lines = pa.table({"v": pa.array(values, pa.binary()).cast(pa.string())})
        return duck.from_arrow(lines).project(f"unnest(from_json(v, '{structure}'))").to_arrow_table()

    kinds = {pa.int64(): polars.Int64, pa.string(): polars.String, pa.float64(): polars.Float64}
    schema = {field.name: kinds.get(field.type, polars.Boolean) for field in FIELDS}
    msgspec_decode, msgspec_encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    encoder = Json().encoder()
    return {
        "Json to columns": decoded(Json(FIELDS).decoder("arrow"), values),
        "pyarrow.json": by_arrow,
        "polars.read_ndjson": lambda: polars.read_ndjson(b"\n".join(values), schema=schema).to_arrow(),
        "DuckDB from_json": by_duckdb,
        "Json to rows": decoded(Json().decoder("rows"), values),
        "Json to rows of a schema": decoded(Json(FIELDS).decoder("rows"), values),
        "orjson.loads": lambda: list(map(orjson.loads, values)),
        "msgspec decode": lambda: list(map(msgspec_decode, values)),
        "json.loads": lambda: list(map(json.loads, values)),
        "Json of rows": lambda: encoder.encode(RowBatch(rows)),
        "Json of columns": lambda: encoder.encode(columns),
        "msgspec encode": lambda: list(map(msgspec_encode, rows)),
        "json.dumps": lambda: [json.dumps(row).encode() for row in rows],
    }


def avro_contenders(rows: list[dict[str, Any]]) -> dict[str, Callable[[], object]]:
    schema = avro_schema()
    parsed, text = fastavro.parse_schema(schema), json.dumps(schema)
    encoder = Avro(schema).encoder()
    values = encoder.encode(RowBatch(rows))
    columns = Avro(schema).decoder("arrow").decode(values).batch

    def by_fastavro() -> object:
        return [fastavro.schemaless_reader(BytesIO(value), parsed, None) for value in values]

    def of_fastavro() -> object:
        found = []
        for row in rows:
            output = BytesIO()
            fastavro.schemaless_writer(output, parsed, row)
            found.append(output.getvalue())
        return found

    return {
        "Avro to columns": decoded(Avro(schema).decoder("arrow"), values),
        "pyruhvro": lambda: pyruhvro.deserialize_array(values, text),
        "Avro to rows": decoded(Avro(schema).decoder("rows"), values),
        "fastavro reader": by_fastavro,
        "Avro of rows": lambda: encoder.encode(RowBatch(rows)),
        "Avro of columns": lambda: encoder.encode(columns),
        "fastavro writer": of_fastavro,
    }


def protobuf_contenders(rows: list[dict[str, Any]]) -> dict[str, Callable[[], object]]:
    order = message_class()
    encoder = Protobuf(order).encoder()
    values = [order(**row).SerializeToString() for row in rows]
    columns = Protobuf(order).decoder("arrow").decode(values).batch
    handler = ptars.HandlerPool([order.DESCRIPTOR.file]).get_for_message(order.DESCRIPTOR)
    return {
        "Protobuf to columns": decoded(Protobuf(order).decoder("arrow"), values),
        "ptars": lambda: handler.list_to_record_batch(values),
        "Protobuf to rows": decoded(Protobuf(order).decoder("rows"), values),
        "upb messages": lambda: list(map(order.FromString, values)),
        "Protobuf of rows": lambda: encoder.encode(RowBatch(rows)),
        "Protobuf of columns": lambda: encoder.encode(columns),
        "upb of dicts": lambda: [order(**row).SerializeToString() for row in rows],
    }


def csv_contenders(rows: list[dict[str, Any]]) -> dict[str, Callable[[], object]]:
    lines = CsvLines(schema=FIELDS)
    values = lines.encoder().encode(RowBatch(rows))
    return {
        "CsvLines to columns": decoded(lines.decoder("arrow"), values),
        "CsvLines to rows": decoded(lines.decoder("rows"), values),
        "CsvLines of rows": lambda: lines.encoder().encode(RowBatch(rows)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, records=65_536, rounds=7).parse_args(arguments)
    rows = records(given.records)
    contenders = {
        **json_contenders(rows),
        **avro_contenders(rows),
        **protobuf_contenders(rows),
        **csv_contenders(rows),
    }
    runs: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(given.rounds):
        for name, work in contenders.items():
            before = time.process_time_ns()
            work()
            runs[name].append((time.process_time_ns() - before) / given.records)
    figures = Figures(
        seconds={f"{name}, a record": middle(each) / 1e9 for name, each in runs.items()},
        ratios={
            f"{name} against its target": middle(runs[name]) / target for name, target in TARGETS.items()
        },
        details={"nanoseconds": runs},
    )
    ratios = []
    for name, (library, usual) in FASTEST.items():
        ratio = middle(ours / theirs for ours, theirs in zip(runs[name], runs[library], strict=True))
        figures.ratios[f"{name} to {library}"] = ratio
        ratios.append([name, library, f"{ratio:.2f}", f"{TARGETS[name] / usual:.2f}"])
    lines = [
        [name, f"{middle(each):.0f}", TARGETS.get(name, ""), spread(each)] for name, each in runs.items()
    ]
    print(table(["contender", "ns a record", "target", "all rounds"], lines), end="\n\n")
    print(table(["contender", "fastest library", "ratio, same round", "target"], ratios), end="\n\n")
    libraries = ("duckdb", "fastavro", "msgspec", "orjson", "polars", "protobuf", "ptars", "pyruhvro")
    named = {name: version(name) for name in libraries}
    print(f"{given.records:,} records in a batch; {', '.join(map(' '.join, named.items()))}.")
    print(machine().in_words())
    figures.write(given.json, versions(**named))
    return 0


if __name__ == "__main__":
    sys.exit(main())
