"""Listeners of a real broker: plain, with TLS, with passwords or tokens, with both, and behind a proxy.

Passwords are for SCRAM-SHA-256. Tokens are for OAUTHBEARER; the broker believes tokens that are not signed.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Listener = Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL", "PROXIED"]
#: As clients of `confluent_kafka` take them.
Settings = dict[str, str | int | float | bool]

_MECHANISM: Final = "SCRAM-SHA-256"
_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_TOKEN_LOGIN: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)
_USERS: Final = {"alice": "alice's password"}


class Security:
    """The listeners of one broker.

    Attributes:
        ports: By listener; that of `PROXIED` is the proxy's.
        users: Passwords by name.
        behind_proxy: The port at which the broker itself has the listener `PROXIED`.
    """

    def __init__(
        self,
        folder: Path,
        ports: Mapping[Listener, int],
        users: Mapping[str, str] | None = None,
        behind_proxy: int | None = None,
    ) -> None:
        self.ports = dict(ports)
        self.behind_proxy = behind_proxy
        self.users = dict(_USERS if users is None else users)
        self._authority = folder / "authority.pem"
        self._identity = folder / "server.pem"
        if any("SSL" in listener for listener in ports) and not self._identity.exists():
            _make_certificates(self._authority, self._identity)

    def broker(self, *others: str) -> dict[str, object]:
        """Settings of the broker, with the addresses of its listeners that are not for clients."""
        own = self.ports if self.behind_proxy is None else self.ports | {"PROXIED": self.behind_proxy}
        addresses = [f"{listener}://127.0.0.1:{port}" for listener, port in own.items()]
        advertised = [f"{listener}://127.0.0.1:{port}" for listener, port in self.ports.items()]
        protocols = ["CONTROLLER:PLAINTEXT", *(f"{listener}:{_protocol(listener)}" for listener in own)]
        settings: dict[str, object] = {
            "listeners": ",".join([*addresses, *others]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(protocols),
        }
        for listener in self.ports:
            name = f"listener.name.{listener.lower()}"
            if "SSL" in listener:
                settings[f"{name}.ssl.keystore.type"] = "PEM"
                settings[f"{name}.ssl.keystore.location"] = self._identity
            if "SASL" in listener:
                settings[f"{name}.sasl.enabled.mechanisms"] = f"{_MECHANISM},OAUTHBEARER"
                settings[f"{name}.{_MECHANISM.lower()}.sasl.jaas.config"] = _LOGIN
                settings[f"{name}.oauthbearer.sasl.jaas.config"] = _TOKEN_LOGIN
        return settings

    def scram_users(self) -> list[str]:
        """The users, as the tool that formats a broker's storage takes them."""
        if not any("SASL" in listener for listener in self.ports):
            return []
        return [f'{_MECHANISM}=[name="{name}",password="{word}"]' for name, word in self.users.items()]

    def client(self, protocol: Listener) -> Settings:
        """Settings of librdkafka for a client."""
        settings: Settings = {
            "bootstrap.servers": f"127.0.0.1:{self.ports[protocol]}",
            "security.protocol": _protocol(protocol),
        }
        if "SSL" in protocol:
            settings["ssl.ca.location"] = str(self._authority)
        if "SASL" in protocol:
            user, password = next(iter(self.users.items()))
            settings |= {"sasl.mechanism": _MECHANISM, "sasl.username": user, "sasl.password": password}
        return settings


def unsigned_token(user: str, valid_for: float = 3600.0) -> tuple[str, float]:
    """A token of OAUTHBEARER, and the moment in seconds since the epoch when it expires."""
    now = time.time()
    claims = {"sub": user, "iat": now, "exp": now + valid_for}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(
        [*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), ""]
    ), now + valid_for


def _protocol(listener: Listener) -> str:
    return "PLAINTEXT" if listener == "PROXIED" else listener


def _make_certificates(authority: Path, identity: Path) -> None:
    """Write the certificate of an authority, and the key and certificate of a server on 127.0.0.1."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    authority_certificate = (
        _certificate(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.IPv4Address("127.0.0.1")), x509.DNSName("localhost")]
    )
    certificate = (
        _certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")]), authority_name, key)
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    unencrypted = serialization.NoEncryption()
    authority.write_bytes(authority_certificate.public_bytes(pem))
    identity.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, unencrypted) + certificate.public_bytes(pem)
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
