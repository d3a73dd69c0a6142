"""A webhook passes the tests that every source must pass, with real senders that repeat their requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest
from deep import DEEP
from kit_steps import SOURCE_STEPS
from serving.kafka import free_ports
from serving.senders import senders

from penstock.http import WebhookSource
from penstock.testing import Fate
from penstock.testing.connectors import SourceTests

pytestmark = pytest.mark.usefixtures("short_turns")


class Hooks:
    """Senders of orders, each of which repeats its request until it is accepted."""

    secret = "open-sesame"

    def __init__(self, *, with_keys: bool) -> None:
        self._with_keys = with_keys
        self._numbers = count()
        self._running = ExitStack()
        (self.port,) = free_ports(1)
        url = f"http://127.0.0.1:{self.port}/orders"
        headers = {"Authorization": f"Bearer {self.secret}"}
        self.senders = self._running.enter_context(senders(url, headers))

    def source(self, **settings: Any) -> WebhookSource[Any]:
        return WebhookSource(self.port, path="/orders", token=self.secret, **settings)

    def write(self, records: Sequence[Any]) -> None:
        for record in records:
            self._send(json.dumps(record).encode())

    def write_bad(self) -> None:
        self._send(b"{")

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> WebhookSource[Any]:
        return self.source(on_error=on_error)

    def acknowledged(self) -> list[Any]:
        self.senders.settle()
        return [json.loads(body) for body in self.senders.accepted if body != b"{"]

    def next_fate(self, fate: Fate | None) -> None:
        """Cut the connections of all senders, which get no answer."""
        if fate not in (None, Fate.ANSWER_LOST):
            raise NotImplementedError
        if fate is not None:
            self.senders.cut()

    def kill(self, reader: Any) -> None:
        self.senders.cut()
        reader.close()

    def cleanup(self) -> None:
        self._running.close()

    def _send(self, body: bytes) -> None:
        key = {"Idempotency-Key": f"order-{next(self._numbers)}"} if self._with_keys else {}
        self.senders.send(body, **key)


class TestWebhookSource(SourceTests):
    is_bounded = False
    is_exclusive = True
    refuses_bad_records = True
    simulated = False
    knows_lag = False
    steps = ("complete",) if DEEP == 1 else SOURCE_STEPS

    def make_world(self, folder: Path) -> Hooks:
        return Hooks(with_keys=True)


@pytest.mark.long
class TestWebhookSourceWithoutKeys(TestWebhookSource):
    guarantee = "at_least_once"

    def make_world(self, folder: Path) -> Hooks:
        return Hooks(with_keys=False)
