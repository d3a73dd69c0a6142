"""Redis, NATS and HTTP pass the tests that every connector must pass, against real servers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from deep import DEEP
from kit_steps import SINK_STEPS, SOURCE_STEPS
from nats.js.api import RetentionPolicy
from nats.js.errors import NotFoundError
from serving import nats, redis
from serving.nats import NatsServer
from serving.receiver import running_receiver
from serving.redis import RedisServer

from penstock.http import HttpSink
from penstock.nats import JetStreamSource
from penstock.redis import RedisStreamSource
from penstock.testing import Fate
from penstock.testing.connectors import SinkTests, SourceTests

pytestmark = pytest.mark.usefixtures("short_turns")


class RedisStreams:
    """Two streams of Redis; each is a split."""

    secret = redis.PASSWORD

    def __init__(self, server: RedisServer) -> None:
        self.server, self.client = server, server.client()
        name = f"kit-{uuid.uuid4().hex}"
        self.streams = (f"{name}-0", f"{name}-1")

    def source(self, **settings: Any) -> RedisStreamSource[Any]:
        settings = {"value_field": "value", "bounded": True, "group": "jobs", **settings}
        return RedisStreamSource(self.server.url, self.streams, **settings)

    def write(self, records: Sequence[Any]) -> None:
        for split in (0, 1):
            self.write_to(split, records[split::2])

    def write_to(self, split: int, records: Sequence[Any]) -> None:
        for record in records:
            self.client.xadd(self.streams[split], {"value": json.dumps(record)})

    def write_bad(self) -> None:
        self.client.xadd(self.streams[1], {"value": "{"})

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> RedisStreamSource[Any]:
        return self.source(on_error=on_error)

    def next_fate(self, fate: Fate | None) -> None:
        """Close all other connections: requests that wait for an answer get none."""
        if fate not in (None, Fate.ANSWER_LOST):
            raise NotImplementedError
        if fate is not None:
            self.client.client_kill_filter(_type="normal", skipme=True)

    def kill(self, reader: Any) -> None:
        reader.close()

    def cleanup(self) -> None:
        self.client.close()


class TestRedisStreamSource(SourceTests):
    simulated = False
    knows_lag = False  # no split with an end has a lag
    steps = SOURCE_STEPS

    @pytest.fixture(autouse=True)
    def _use(self, shared_redis: RedisServer) -> None:
        self.server = shared_redis

    def make_world(self, folder: Path) -> RedisStreams:
        return RedisStreams(self.server)


class JetStream:
    """A stream of NATS with two subjects; each is a split."""

    secret = nats.PASSWORD
    retention = RetentionPolicy.LIMITS

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.name = f"kit-{uuid.uuid4().hex}"
        self.subjects = (f"{self.name}.0", f"{self.name}.1")
        server.run(
            lambda js: js.add_stream(name=self.name, subjects=list(self.subjects), retention=self.retention)
        )

    def source(self, **settings: Any) -> JetStreamSource[Any]:
        settings = {"subjects": self.subjects, "bounded": True, "consumer": self.name, **settings}
        return JetStreamSource(self.server.url, self.name, **settings)

    def write(self, records: Sequence[Any]) -> None:
        self._publish([(number % 2, json.dumps(record)) for number, record in enumerate(records)])

    def write_to(self, split: int, records: Sequence[Any]) -> None:
        self._publish([(split, json.dumps(record)) for record in records])

    def write_bad(self) -> None:
        self._publish([(1, "{")])

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> JetStreamSource[Any]:
        return self.source(on_error=on_error)

    def kill(self, reader: Any) -> None:
        reader.close()

    def cleanup(self) -> None:
        self.server.run(lambda js: js.delete_stream(self.name))

    def _publish(self, messages: Sequence[tuple[int, str]]) -> None:
        async def publish(js: Any) -> None:
            for split, text in messages:
                await js.publish(self.subjects[split], text.encode())

        self.server.run(publish)


class WorkQueue(JetStream):
    """A stream that deletes acknowledged messages."""

    retention = RetentionPolicy.WORK_QUEUE

    def __init__(self, server: NatsServer) -> None:
        super().__init__(server)
        self.written: list[Any] = []

    def _publish(self, messages: Sequence[tuple[int, str]]) -> None:
        self.written += [text for _, text in messages]
        super()._publish(messages)

    def next_fate(self, fate: Fate | None) -> None:
        """Kill the server, which keeps its files, and start it again."""
        if fate not in (None, Fate.ANSWER_LOST):
            raise NotImplementedError
        if fate is not None:
            self.server.kill()
            self.server.start()

    def acknowledged(self) -> list[Any]:
        async def left(js: Any) -> set[int]:
            state = (await js.stream_info(self.name)).state
            found = set()
            for sequence in range(state.first_seq, state.last_seq + 1):
                try:
                    found.add((await js.get_msg(self.name, sequence)).seq)
                except NotFoundError:
                    continue
            return found

        kept = self.server.run(left)
        return [json.loads(text) for number, text in enumerate(self.written, 1) if number not in kept]


class TestJetStreamSource(SourceTests):
    simulated = False
    knows_lag = False  # no split with an end has a lag
    steps = ("complete",) if DEEP == 1 else SOURCE_STEPS

    @pytest.fixture(autouse=True)
    def _use(self, shared_nats: NatsServer) -> None:
        self.server = shared_nats

    def make_world(self, folder: Path) -> JetStream:
        return JetStream(self.server)


class TestJetStreamSourceOfAWorkQueue(TestJetStreamSource):
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> JetStream:
        return WorkQueue(self.server)


class Orders:
    """A receiver that carries out each key once."""

    secret = "pa55-of-the-receiver"

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self._running = ExitStack()
        self.receiver = self._running.enter_context(running_receiver())

    def sink(self) -> HttpSink[Any]:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return HttpSink(self.receiver.url, headers=headers, **self.settings)

    def rows(self) -> list[Any]:
        return [json.loads(body) for body in self.receiver.bodies]

    def next_fate(self, fate: Fate | None) -> None:
        """Set the status of the next answer: the record is refused, or the sink tries again."""
        if fate not in _STATUSES:
            raise NotImplementedError
        self.receiver.failures = list(_STATUSES[fate])

    def kill(self, writer: Any) -> None:
        writer.close()

    def cleanup(self) -> None:
        self._running.close()


#: Statuses of the next answers, as `Receiver` takes them.
_STATUSES: Final = {None: (), Fate.REFUSED: (403,), Fate.ANSWER_LOST: (0,)}


class TestHttpSink(SinkTests):
    simulated = False
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> Orders:
        return Orders()

    def bad_record(self) -> Any:
        return {"number": object()}


class TestHttpSinkThatSendsAtOnce(TestHttpSink):
    guarantee = "at_least_once"

    def make_world(self, folder: Path) -> Orders:
        return Orders(delivery_guarantee="at_least_once")
