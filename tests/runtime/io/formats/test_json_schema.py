from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from record_values import columns_of, reason, rows_of
from registry_server import running_registry

from penstock import BadRecordError, ConfigurationError
from penstock.formats import Format, JsonSchema, SchemaRegistry
from penstock.runtime.record.elements import ArrowBatch, RowBatch

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 1}, "user": {"type": "string"}},
    "required": ["id"],
}
COLUMNS = pa.schema({"id": pa.int64(), "user": pa.string()})

VALUES = [
    b'{"id": 1, "user": "u"}',
    b'{"id": 0}',
    None,
    b"oops",
    b'{"user": "u"}',
    b'{"id": 2, "more": 1}',
    b"[]",
    b'{"id": 1, "id": 2}',
    b'{"id": 9223372036854775808}',
]


def test_values_that_are_not_valid_are_bad():
    valid = [{"id": 1, "user": "u"}, None, {"id": 2, "more": 1}, {"id": 1 << 63}]
    assert rows_of(JsonSchema(SCHEMA), VALUES) == (valid, [1, 3, 4, 6, 7])


def test_columns_are_equal_to_rows_of_the_same_types():
    format_ = JsonSchema(json.dumps(SCHEMA), COLUMNS)
    rows = [{"id": 1, "user": "u"}, None, {"id": 2, "user": None}]
    assert rows_of(format_, VALUES) == (rows, [1, 3, 4, 6, 7, 8])
    rows[1] = {"id": None, "user": None}
    assert columns_of(format_, VALUES) == (rows, [1, 3, 4, 6, 7, 8])


def test_a_bad_value_comes_with_its_reason_and_the_place_in_it():
    decoder = JsonSchema(SCHEMA).decoder("rows")
    assert reason(decoder, b'{"id": 0}') == "0 is less than the minimum of 1 (at id)"
    assert "required" in reason(decoder, b"{}")
    assert "not JSON" in reason(decoder, b"{")


def test_a_record_that_is_not_valid_is_named():
    encoder = JsonSchema(SCHEMA).encoder()
    assert encoder.encode(RowBatch([{"id": 1}, None])) == [b'{"id":1}', None]
    assert encoder.encode(ArrowBatch(pa.record_batch({"id": [1]}))) == [b'{"id":1}']
    with pytest.raises(BadRecordError, match=r"minimum of 1'?; the record is \{'id': 0\}"):
        encoder.encode(RowBatch([{"id": 1}, {"id": 0}]))


def test_values_name_their_schema_in_the_registry():
    with running_registry() as server:
        registry = SchemaRegistry(server.url)
        writer = JsonSchema(SCHEMA, registry=registry, register=True).for_topic("orders")
        values = writer.encoder().encode(RowBatch([{"id": 5}, None]))
        assert values == [b'\0\0\0\0\1{"id":5}', None]
        values.append(b'\0\0\0\0\1{"id":0}')
        reader = JsonSchema(registry=registry, columns=COLUMNS)
        assert rows_of(reader, values) == ([{"id": 5, "user": None}, None], [2])
        assert columns_of(reader, values) == ([{"id": 5, "user": None}, {"id": None, "user": None}], [2])
        newest = JsonSchema(registry=registry, subject="orders-value").encoder()
        with pytest.raises(BadRecordError, match="required"):
            newest.encode(RowBatch([{}]))


@pytest.mark.parametrize(
    ("schema", "why"), [({"type": "nope"}, "not a JSON Schema"), (None, "JsonSchema needs schema=")]
)
def test_a_wrong_schema_is_refused(schema, why):
    with pytest.raises(ConfigurationError, match=why):
        JsonSchema(schema)


@pytest.mark.parametrize("place", ["http://127.0.0.1:1/schema", "file:///etc/hostname"])
def test_a_schema_makes_nobody_read_another_place(place):
    with pytest.raises(ConfigurationError, match=f"refers to {place}"):
        JsonSchema({"$ref": place})


def test_a_schema_may_refer_to_its_own_parts():
    schema = {"$defs": {"id": {"minimum": 1}}, "properties": {"id": {"$ref": "#/$defs/id"}}}
    assert rows_of(JsonSchema(schema), [b'{"id": 1}', b'{"id": 0}']) == ([{"id": 1}], [1])


DESCRIBED = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "kind": {"enum": ["new", "old"]},
        "name": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"properties": {"home": {"$ref": "#/$defs/place"}}},
    },
    "$defs": {
        "place": {"type": "object", "properties": {"city/town": {"$ref": "#/$defs/a~1b"}}},
        "a/b": {"const": "x"},
    },
}


def test_without_types_columns_have_the_properties_of_the_schema():
    columns = pa.schema(
        {
            "id": pa.int64(),
            "price": pa.float64(),
            "paid": pa.bool_(),
            "kind": pa.string(),
            "name": pa.string(),
            "tags": pa.list_(pa.string()),
            "owner": pa.struct({"home": pa.struct({"city/town": pa.string()})}),
        }
    )
    row = {
        "id": 1,
        "price": 2.5,
        "paid": True,
        "kind": "new",
        "name": None,
        "tags": ["a", "b"],
        "owner": {"home": {"city/town": "x"}},
    }
    values = [json.dumps({**row, "more": 1}).encode(), None, b'{"id": 0}', b'{"id": 9223372036854775808}']
    for schema in (DESCRIBED, json.dumps(DESCRIBED)):
        format_ = JsonSchema(schema)
        found = format_.decoder("arrow").decode(values)
        assert found.batch.batch.schema == columns
        assert columns_of(format_, values) == ([row, dict.fromkeys(row)], [2, 3])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "integer"}, "describes values of type int64, and columns need objects"),
        ({"type": "object"}, "the value has no properties"),
        ({"properties": {"a": {"properties": {"b": {}}}}}, r"the property 'a\.b' has no type"),
        ({"properties": {"a": True}}, "the property 'a' has no type"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "'a' has the types string, integer"),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}, "several alternatives"),
        ({"properties": {"a": {"$ref": "#"}}}, "'a.a' refers to itself by '#'"),
    ],
)
def test_a_schema_without_columns_is_refused_and_its_property_named(schema, why):
    with pytest.raises(ConfigurationError, match=f"{why}.*Give columns=|{why}"):
        JsonSchema(schema).decoder("arrow")


def test_without_a_schema_of_its_own_columns_are_those_of_the_newest_of_the_subject():
    newer = {**SCHEMA, "properties": {**SCHEMA["properties"], "note": {"type": "string"}}}
    with running_registry() as server:
        registry = SchemaRegistry(server.url)
        values = []
        for schema, row in ((SCHEMA, {"id": 1}), (newer, {"id": 2, "note": "n"})):
            writer = JsonSchema(schema, registry=registry, register=True).for_topic("orders")
            values += writer.encoder().encode(RowBatch([row]))
        reader = JsonSchema(registry=registry).for_topic("orders")
        rows = [{"id": 1, "user": None, "note": None}, {"id": 2, "user": None, "note": "n"}]
        assert columns_of(reader, values) == (rows, [])
        with pytest.raises(ConfigurationError, match="JsonSchema needs subject="):
            JsonSchema(registry=registry).decoder("arrow")


def test_a_json_schema_is_a_value_that_is_pickled():
    assert isinstance(JsonSchema(SCHEMA), Format)
    assert pickle.loads(pickle.dumps(JsonSchema(SCHEMA))) == JsonSchema(SCHEMA)
