"""Values of Confluent's own serialiser of JSON Schema (`make_confluent_json.py`) against the format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record_values import columns_of, rows_of
from registry_server import running_registry

from penstock import BadRecordError
from penstock.formats import JsonSchema, SchemaRegistry
from penstock.runtime.record.elements import ArrowBatch, RowBatch

GOLDEN = json.loads((Path(__file__).parent / "confluent_json.json").read_text())
VALUES = [bytes.fromhex(text) for text in GOLDEN["values"]]
RECORDS = GOLDEN["records"]
NOTHING = {"id": None, "name": None, "address": None}


@pytest.fixture
def customers():
    """A format of a registry with the schemas under the ids that Confluent's serialiser got."""
    with running_registry() as running:
        for number, (subject, schema) in enumerate(
            zip(GOLDEN["subjects"], GOLDEN["schemas"], strict=True), 1
        ):
            references = schema.get("references", ())
            assert running.add(subject, schema["schema"], schema["schemaType"], references) == number
        yield JsonSchema(registry=SchemaRegistry(running.url)).for_topic("customers")


def test_json_of_confluent_is_read_to_rows_and_to_columns_of_its_schemas(customers):
    broken = VALUES[0].replace(b'"id":42', b'"id":0')
    values = [VALUES[0], None, broken, VALUES[1]]
    assert rows_of(customers, values) == ([RECORDS[0], None, RECORDS[1]], [2])
    assert columns_of(customers, values) == ([RECORDS[0], NOTHING, RECORDS[1]], [2])


def test_json_is_written_as_by_confluent_from_rows_and_from_columns(customers):
    columns = customers.decoder("arrow").decode(VALUES).batch
    assert isinstance(columns, ArrowBatch)
    encoder = customers.encoder()
    assert encoder.encode(RowBatch(RECORDS)) == VALUES
    assert encoder.encode(columns) == VALUES


def test_a_record_that_the_referred_schema_refuses_is_not_written(customers):
    with pytest.raises(BadRecordError, match="city"):
        customers.encoder().encode(RowBatch([{"id": 1, "address": {}}]))
