from __future__ import annotations

import json
import pickle
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from record_values import columns_of, reason, rows_of
from registry_server import running_registry

from penstock import ConfigurationError, ConnectorError
from penstock.formats import Avro, HasSubject, Json, JsonSchema, SchemaRegistry
from penstock.runtime.record.elements import RowBatch

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
RECURSIVE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


@pytest.fixture
def server():
    with running_registry() as running:
        yield running


def value_of(schema_id: int, number: int = 5) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + bytes([2 * number])


def test_formats_with_a_registry_have_a_subject():
    assert isinstance(Avro(SCHEMA), HasSubject)
    assert not isinstance(Json(), HasSubject)
    assert Avro(SCHEMA).for_topic("orders", is_key=True).subject == "orders-key"
    assert Avro(SCHEMA, subject="own").for_topic("orders").subject == "own"


def test_a_schema_is_asked_for_once(server):
    schema_id = server.add("orders-value", json.dumps(SCHEMA))
    decoder = Avro(registry=SchemaRegistry(server.url)).decoder("rows")
    for _ in range(3):
        assert decoder.decode([value_of(schema_id)]).batch.rows == [{"id": 5}]
    assert server.requests == [("GET", f"/schemas/ids/{schema_id}")]
    decoder.close()


def test_values_without_an_id_or_with_an_unknown_one_are_bad(server):
    schema_id = server.add("orders-value", json.dumps(SCHEMA))
    format_ = Avro(SCHEMA, registry=SchemaRegistry(server.url))
    values = [value_of(schema_id), b"", b"\0\0", b"{}", value_of(99), None, value_of(schema_id)[:5]]
    assert rows_of(format_, values) == ([{"id": 5}, None], [1, 2, 3, 4, 6])
    assert columns_of(format_, values) == ([{"id": 5}, {"id": None}], [1, 2, 3, 4, 6])
    assert columns_of(format_, [None, b""]) == ([{"id": None}], [1])
    assert columns_of(format_, [b""]) == ([], [0])
    decoder = format_.decoder("rows")
    assert "does not begin with the id of a schema, but with b'{}'" in reason(decoder, b"{}")
    assert "not registered" in reason(decoder, value_of(99))


def test_values_of_a_schema_that_can_not_be_used_are_bad(server):
    proto = server.add("shop-value", 'syntax = "proto3";', "PROTOBUF")
    decoder = Avro(registry=SchemaRegistry(server.url)).decoder("rows")
    assert "has the type PROTOBUF, not AVRO" in reason(decoder, value_of(proto))


def reference(name: str, subject: str) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": 1}


def test_references_of_references_are_followed_and_asked_for_once(server):
    cents = {"type": "enum", "name": "Unit", "symbols": ["CENT", "EURO"]}
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "unit", "type": "Unit"}]}
    order = {**SCHEMA, "fields": [{"name": name, "type": "shop.Money"} for name in ("net", "gross")]}
    server.add("unit", json.dumps({**cents, "namespace": "shop"}))
    server.add("money", json.dumps(money), references=[reference("shop.Unit", "unit")])
    both = [reference("shop.Money", "money"), reference("shop.Unit", "unit")]
    schema_id = server.add("orders-value", json.dumps(order), references=both)
    format_ = Avro(registry=SchemaRegistry(server.url), subject="orders-value")
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\0\2"
    row = {"net": {"unit": "CENT"}, "gross": {"unit": "EURO"}}
    server.requests.clear()
    assert rows_of(format_, [value] * 3) == ([row] * 3, [])
    assert [path for _, path in server.requests] == [
        "/schemas/ids/3",
        "/subjects/money/versions/1",
        "/subjects/unit/versions/1",
    ]
    assert columns_of(format_, [value]) == ([row], [])
    assert format_.encoder().encode(RowBatch([row])) == [value]


def test_a_reference_that_is_gone_makes_the_values_of_its_schema_bad(server):
    split = server.add("split-value", json.dumps(SCHEMA), references=[reference("Money", "money")])
    decoder = Avro(registry=SchemaRegistry(server.url)).decoder("rows")
    assert "names a schema that is not registered: " in reason(decoder, value_of(split))


@pytest.mark.parametrize("own_id", ["", "http://shop/schemas/order.json"])
def test_a_json_schema_finds_the_schemas_that_it_refers_to(server, own_id):
    server.add("money", json.dumps({"type": "object", "required": ["cents"]}), "JSON")
    order = {"properties": {"cash": {"$ref": "money.json"}}} | ({"$id": own_id} if own_id else {})
    schema_id = server.add("orders-value", json.dumps(order), "JSON", [reference("money.json", "money")])
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    format_ = JsonSchema(registry=SchemaRegistry(server.url), subject="orders-value")
    values = [prefix + b'{"cash":{"cents":1}}', prefix + b'{"cash":{}}']
    assert rows_of(format_, values) == ([{"cash": {"cents": 1}}], [1])
    assert format_.encoder().encode(RowBatch([{"cash": {"cents": 1}}])) == values[:1]
    lost = server.add("lost-value", json.dumps({"$ref": "other.json"}), "JSON")
    decoder = format_.decoder("rows")
    assert "'other.json' is not present in a registry" in reason(decoder, value_of(lost))


def test_columns_have_the_newest_schema_of_the_subject(server):
    schema_id = server.add("orders-value", json.dumps(SCHEMA))
    newer = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "n", "type": "int", "default": 3}]}
    server.add("orders-value", json.dumps(newer))
    format_ = Avro(registry=SchemaRegistry(server.url)).for_topic("orders")
    assert columns_of(format_, [value_of(schema_id)]) == ([{"id": 5, "n": 3}], [])
    with pytest.raises(ConfigurationError, match="Avro needs subject="):
        Avro(registry=SchemaRegistry(server.url)).decoder("arrow")


def test_a_schema_is_registered_on_request_only(server):
    format_ = Avro(SCHEMA, registry=SchemaRegistry(server.url), subject="orders-value")
    with pytest.raises(ConnectorError, match=r"Subject 'orders-value' not found.*register=True"):
        format_.encoder()
    server.add("orders-value", json.dumps(RECURSIVE))
    with pytest.raises(ConnectorError, match=r"Schema not found.*register=True"):
        format_.encoder()
    registering = Avro(SCHEMA, registry=SchemaRegistry(server.url), subject="orders-value", register=True)
    assert registering.encoder().encode(RowBatch([{"id": 5}])) == [value_of(2)]
    assert format_.encoder().encode(RowBatch([{"id": 5}, None])) == [value_of(2), None]
    with pytest.raises(ConfigurationError, match="Avro needs subject="):
        Avro(SCHEMA, registry=SchemaRegistry(server.url)).encoder()


@pytest.mark.parametrize("failures", [[503, 500], [0, 0], [429]])
def test_a_failure_that_passes_is_tried_again(server, failures):
    schema_id = server.add("orders-value", json.dumps(SCHEMA))
    server.failures += failures
    assert rows_of(Avro(registry=SchemaRegistry(server.url)), [value_of(schema_id)]) == ([{"id": 5}], [])
    assert len(server.requests) == len(failures) + 1


def test_a_registry_that_is_gone_fails_the_decoder_and_no_value_is_called_bad(server):
    registry = SchemaRegistry(server.url, give_up_after=0.2)
    server.failures += [503] * 1_000
    with pytest.raises(
        ConnectorError, match=r"gives no answer to GET /schemas/ids/1 within 0.2 .*status 503"
    ):
        rows_of(Avro(registry=registry), [value_of(1)])


def test_a_request_that_hangs_has_a_bound(server):
    server.answers.clear()
    registry = SchemaRegistry(server.url, timeout=0.1, give_up_after=0.2)
    with pytest.raises(ConnectorError, match="TimeoutError"):
        rows_of(Avro(registry=registry), [value_of(1)])


def test_a_port_where_nothing_listens_is_named():
    with running_registry() as running:
        url = running.url
    with pytest.raises(ConnectorError, match=r"http://127.0.0.1:\d+ gives no answer.*ConnectionRefused"):
        rows_of(Avro(registry=SchemaRegistry(url, give_up_after=0.1)), [value_of(1)])


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate of this machine's loopback."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "registry")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file = folder / "registry.pem"
    file.write_bytes(key.private_bytes(pem, form, plain) + made.public_bytes(pem))
    return file


def test_a_registry_with_tls_is_asked_if_its_certificate_is_trusted(tmp_path):
    file = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with running_registry(context) as server:
        schema_id = server.add("orders-value", json.dumps(SCHEMA))
        trusting = SchemaRegistry(server.url, ca_file=str(file))
        assert rows_of(Avro(registry=trusting), [value_of(schema_id)]) == ([{"id": 5}], [])
        other = Avro(registry=SchemaRegistry(server.url))
        with pytest.raises(
            ConnectorError, match=r"certificate verify failed.*Give SchemaRegistry a ca_file="
        ):
            rows_of(other, [value_of(schema_id)])


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("header", "settings"),
    [
        ("Basic bWU6aHVudGVyMi1odW50ZXIy", {"auth": ("me", SECRET)}),
        ("Bearer hunter2-hunter2", {"token": SECRET}),
        ("Basic bWU6aHVudGVyMi1odW50ZXIy", {"url": "me:hunter2-hunter2@"}),
    ],
)
def test_secrets_are_sent_and_never_shown(server, header, settings):
    user = settings.pop("url", "")
    registry = SchemaRegistry(server.url.replace("://", f"://{user}"), **settings)
    format_ = Avro(registry=registry)
    schema_id = server.add("orders-value", json.dumps(SCHEMA))
    server.authorization = header
    assert rows_of(format_, [value_of(schema_id)]) == ([{"id": 5}], [])
    assert pickle.loads(pickle.dumps(registry)) == registry
    server.authorization = "another"
    with pytest.raises(ConnectorError, match=r"status 401, Unauthorized. Give SchemaRegistry") as refused:
        rows_of(format_, [value_of(schema_id)])
    for text in (repr(registry), repr(format_), str(refused.value), repr(refused.value)):
        assert SECRET not in text
        assert "bWU6" not in text


def test_an_answer_that_is_no_schema_is_refused(server):
    with pytest.raises(
        ConnectorError, match=r"refuses GET .* with status 404, HTTP 404 Not Found. Check the URL"
    ):
        rows_of(Avro(registry=SchemaRegistry(f"{server.url}/no/")), [value_of(1)])
    registry = SchemaRegistry(server.url).client()
    with pytest.raises(ConnectorError, match="status 422, Invalid schema"):
        registry.id_of("a", "AVRO", "{", register=True)


def test_subjects_are_quoted(server):
    server.add("a/b c-value", json.dumps(SCHEMA))
    assert SchemaRegistry(server.url).client().latest("a/b c-value").schema_id == 1


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"url": "localhost:8081"}, "is not the URL of a schema registry"),
        ({"url": "htp://me:word@host"}, r"htp://\*\*\*@host' is not the URL of a schema registry"),
        ({"url": "http://host", "auth": ("a", "b"), "token": "c"}, "only one of these: auth, a bearer token"),
        ({"url": "http://a:b@host", "token": "c"}, "only one of these: auth, a bearer token"),
    ],
)
def test_settings_that_are_wrong_are_refused(settings, why):
    with pytest.raises(ConfigurationError, match=why):
        SchemaRegistry(**settings)
