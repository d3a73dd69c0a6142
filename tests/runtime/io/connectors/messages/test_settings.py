"""Settings that all sources of messages have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock import ConfigurationError
from penstock.formats import Json
from penstock.http import WebhookSource
from penstock.mqtt import MqttSource
from penstock.nats import JetStreamSource
from penstock.redis import RedisStreamSource


@pytest.mark.parametrize(
    "source",
    [
        partial(JetStreamSource, "nats://localhost", "orders"),
        partial(MqttSource, "localhost", "orders", client_id="plant-1"),
        partial(RedisStreamSource, "redis://localhost", "orders", value_field="order"),
        partial(WebhookSource, 8085),
    ],
)
def test_a_format_that_needs_a_sample_is_refused(source: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="no sample is read here before the job starts"):
        source(value_format=Json("infer"))
