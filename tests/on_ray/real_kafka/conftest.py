"""One broker of Apache Kafka with all its listeners; a test that kills it starts it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from serving.kafka import Broker, kafka_broker
from serving.kafka_security import Listener

_PASSWORD: Final = "correct-horse-battery-staple"
_LISTENERS: Final[tuple[Listener, ...]] = ("PROXIED", "SASL_PLAINTEXT", "SSL", "SASL_SSL")


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    users = {"alice": _PASSWORD}
    with kafka_broker(tmp_path_factory.mktemp("kafka"), listeners=_LISTENERS, users=users) as started:
        yield started


@pytest.fixture
def password() -> str:
    """The password of the user `alice`."""
    return _PASSWORD
