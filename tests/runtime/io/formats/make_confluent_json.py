"""Writes `confluent_json.json`: values of JSON Schema as Confluent's own serialiser writes them.

    pip install --target FOLDER 'confluent-kafka[json,schemaregistry]'
    PYTHONPATH=FOLDER python tests/runtime/io/formats/make_confluent_json.py

`test_confluent_json.py` compares the format with the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

ADDRESS: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Address",
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
CUSTOMER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Customer",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "address": {"$ref": "address.json"},
    },
    "required": ["id"],
}
RECORDS: list[dict[str, Any]] = [
    {"id": 42, "name": "Zoë", "address": {"city": "Lëtzebuerg"}},
    {"id": 43, "name": None, "address": {"city": "Diekirch"}},
]


def main() -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    sys.path.append(str(HERE.parent))
    from registry_server import running_registry

    with running_registry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        client.register_schema("addresses", Schema(json.dumps(ADDRESS), "JSON"))
        references = [SchemaReference("address.json", "addresses", 1)]
        schema = Schema(json.dumps(CUSTOMER), "JSON", references)
        serializer = JSONSerializer(schema, client)
        context = SerializationContext("customers", MessageField.VALUE)
        values = [serializer(record, context).hex() for record in RECORDS]
        schemas = [registry.answer("GET", f"/schemas/ids/{number}", None) for number in (1, 2)]
    found = {
        "records": RECORDS,
        "values": values,
        "schemas": schemas,
        "subjects": ["addresses", "customers-value"],
    }
    (HERE / "confluent_json.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
