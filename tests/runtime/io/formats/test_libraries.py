"""Libraries of formats: imported late, and named with their extra when they are missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from proto_messages import message_of

from penstock import ConfigurationError
from penstock.formats import Avro, JsonSchema, Protobuf
from penstock.runtime.io.formats import json_rows, json_text

LIBRARIES = ("fastavro", "pyruhvro", "ptars", "google.protobuf", "jsonschema_rs", "msgspec")


def test_no_library_is_loaded_by_other_formats():
    program = (
        "from penstock.formats import Avro, CsvLines, Json, JsonSchema, Protobuf, Raw, SchemaRegistry, Text\n"
        "Raw().decoder('rows'); Text().decoder('arrow'); Json().encoder(); SchemaRegistry('http://h')\n"
        "import sys; print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *LIBRARIES], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize(
    ("library", "make", "extra"),
    [
        ("fastavro", lambda: Avro(SCHEMA), "avro"),
        ("pyruhvro", lambda: Avro(SCHEMA).decoder("rows"), "avro"),
        ("ptars", lambda: Protobuf(message_of([("id", "int64")])).decoder("rows"), "protobuf"),
        ("jsonschema_rs", lambda: JsonSchema({}), "formats"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(library, make, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigurationError, match=rf"needs the library {library}.*'penstock\[{extra}\]'"):
        make()


def test_the_faster_parser_of_json_is_used_where_it_is_installed():
    json_rows._fast_parser.cache_clear()
    json_text.fast_encoder.cache_clear()
    assert json_rows._fast_parser() is not None
    assert json_text.fast_encoder() is not None
    assert Path(sys.modules["msgspec"].__file__ or "").exists()
