"""Values of Confluent's own serialisers (`make_confluent_bytes.py`) against the formats."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from proto_messages import add_fields
from record_values import columns_of, rows_of
from registry_server import running_registry

from penstock.formats import Avro, Protobuf, SchemaRegistry
from penstock.runtime.record.elements import RowBatch

FILES = runpy.run_path(str(Path(__file__).parent / "make_confluent_bytes.py"))["FILES"]
GOLDEN = json.loads((Path(__file__).parent / "confluent_bytes.json").read_text())
VALUES = {name: bytes.fromhex(text) for name, text in GOLDEN["values"].items()}

ORDER = {"id": 42, "user": "Zoë", "amount": 12.5, "note": None}


@pytest.fixture
def registry():
    """A registry with the schemas under the ids that Confluent's serialisers got."""
    with running_registry() as running:
        for number, schema in enumerate(GOLDEN["schemas"], 1):
            (subject,) = (name for name, ids in GOLDEN["subjects"].items() if number in ids)
            kind, references = schema.get("schemaType", "AVRO"), schema.get("references", ())
            assert running.add(subject, schema["schema"], kind, references) == number
        yield running


def descriptors() -> bytes:
    """The descriptors of `shop.proto`, as protoc makes them."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    fields = [("id", "int64"), ("text", "string")]
    add_fields(file.message_type.add(name="Order"), fields)
    refund = file.message_type.add(name="Refund")
    add_fields(refund, fields)
    add_fields(refund.nested_type.add(name="Reason"), fields)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_avro_of_confluent_is_read_each_value_by_its_own_schema(registry):
    values = [VALUES["avro_order"], None, VALUES["avro_order2"], VALUES["avro_order"]]
    format_ = Avro(registry=SchemaRegistry(registry.url))
    second = {**ORDER, "country": "LU"}
    assert rows_of(format_, values) == ([ORDER, None, second, ORDER], [])
    first = {**ORDER, "country": "DE"}
    format_ = Avro(FILES["order2.avsc"], registry=SchemaRegistry(registry.url))
    assert rows_of(format_, values) == ([first, None, second, first], [])
    assert columns_of(format_, values) == ([first, dict.fromkeys(first), second, first], [])


def test_avro_is_written_as_by_confluent(registry):
    format_ = Avro(FILES["order.avsc"], registry=SchemaRegistry(registry.url)).for_topic("orders")
    assert format_.encoder().encode(RowBatch([ORDER])) == [VALUES["avro_order"]]
    newest = Avro(registry=SchemaRegistry(registry.url)).for_topic("orders")
    assert newest.encoder().encode(RowBatch([{**ORDER, "country": "LU"}])) == [VALUES["avro_order2"]]
    key = Avro(FILES["key.avsc"], registry=SchemaRegistry(registry.url)).for_topic("orders", is_key=True)
    assert key.encoder().encode(RowBatch([{"id": 42}, None])) == [VALUES["avro_key"], None]


MESSAGES = ["Order", "Refund", "Refund.Reason"]


@pytest.mark.parametrize("name", MESSAGES)
def test_protobuf_of_confluent_is_read_and_other_messages_are_bad(registry, name):
    format_ = Protobuf(descriptors(), f"shop.{name}", registry=SchemaRegistry(registry.url))
    values = [VALUES[f"protobuf_{one}"] for one in MESSAGES]
    others = [index for index, one in enumerate(MESSAGES) if one != name]
    row = {"id": 42, "text": "Zoë"}
    assert rows_of(format_, values) == ([row], others)
    assert columns_of(format_, values) == ([row], others)
    assert rows_of(format_, [values[MESSAGES.index(name)]] * 3) == ([row] * 3, [])


@pytest.mark.parametrize("name", MESSAGES)
def test_protobuf_is_written_as_by_confluent_behind_the_id(registry, name):
    format_ = Protobuf(
        descriptors(), f"shop.{name}", registry=SchemaRegistry(registry.url), register=True
    ).for_topic("bought")
    (value,) = format_.encoder().encode(RowBatch([{"id": 42, "text": "Zoë"}]))
    assert value is not None
    assert value[:5] == bytes([0, 0, 0, 0, len(GOLDEN["schemas"]) + 1])
    assert value[5:] == VALUES[f"protobuf_{name}"][5:]
    assert rows_of(format_, [value]) == ([{"id": 42, "text": "Zoë"}], [])


def test_the_indexes_of_the_first_message_may_be_written_in_full(registry):
    value = VALUES["protobuf_Order"]
    full = value[:5] + b"\2\0" + value[6:]
    format_ = Protobuf(descriptors(), "shop.Order", registry=SchemaRegistry(registry.url))
    assert rows_of(format_, [value, full, full + b"\xff"]) == ([{"id": 42, "text": "Zoë"}] * 2, [2])


WALLET = {"id": 42, "cash": {"cents": 250}, "saved": None}


def test_avro_that_uses_another_schema_is_read_and_written_as_by_confluent(registry):
    format_ = Avro(registry=SchemaRegistry(registry.url)).for_topic("wallets")
    values = [VALUES["avro_wallet"], None]
    assert rows_of(format_, values) == ([WALLET, None], [])
    assert columns_of(format_, values) == ([WALLET, dict.fromkeys(WALLET)], [])
    assert format_.encoder().encode(RowBatch([WALLET, {**WALLET, "saved": {"cents": 1}}])) == [
        VALUES["avro_wallet"],
        VALUES["avro_wallet"][:-1] + b"\2\2",
    ]


def purse_descriptors() -> bytes:
    """The descriptors of `purse.proto` and the file that it imports."""
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    add_fields(money.message_type.add(name="Money"), [("cents", "int64")])
    purse = descriptor_pb2.FileDescriptorProto(
        name="purse.proto", package="shop", syntax="proto3", dependency=["shop/money.proto"]
    )
    add_fields(purse.message_type.add(name="Purse"), [("id", "int64"), ("cash", ".shop.Money")])
    return descriptor_pb2.FileDescriptorSet(file=[money, purse]).SerializeToString()


def test_protobuf_that_imports_a_file_is_read_and_written_as_by_confluent(registry):
    row = {"id": 42, "cash": {"cents": 250}}
    reading = Protobuf(purse_descriptors(), "shop.Purse", registry=SchemaRegistry(registry.url))
    assert rows_of(reading, [VALUES["protobuf_Purse"]]) == ([row], [])
    assert columns_of(reading, [VALUES["protobuf_Purse"]]) == ([row], [])
    writing = Protobuf(
        purse_descriptors(), "shop.Purse", registry=SchemaRegistry(registry.url), register=True
    ).for_topic("bought")
    (value,) = writing.encoder().encode(RowBatch([row]))
    assert value is not None
    assert value[5:] == VALUES["protobuf_Purse"][5:]
    client = SchemaRegistry(registry.url).client()
    written, of_confluent = (client.latest(name) for name in ("bought-value", "purses-value"))
    # The imported file has the same name and subject; its version is new, for its text is a descriptor.
    (reference,), (other,) = written.references, of_confluent.references
    assert {**reference, "version": 1} == {**other, "version": 1}
    assert [name for name, _ in written.parts] == ["shop/money.proto"]
    # Registered once: another encoder finds both files.
    found = Protobuf(purse_descriptors(), "shop.Purse", registry=SchemaRegistry(registry.url))
    assert found.for_topic("bought").encoder().encode(RowBatch([row])) == [value]
