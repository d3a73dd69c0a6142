"""A webhook answers a request when a completed checkpoint covers its record."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from errno import EISCONN
from http.client import HTTPConnection
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from polling import covered, eventually, failure_of, polled
from serving.kafka import free_ports

from penstock import Checkpointing, ConfigurationError, JobConfig
from penstock.formats import Json
from penstock.http import HttpSink, WebhookSource
from penstock.runtime.io.connectors.webhook import _WebhookReceiver  # noqa: PLC2701
from penstock.testing import OperatorHarness, SourceHarness

TOKEN = "open-sesame"


class Webhook:
    """A source on a port of its own, and senders that wait for their answers in threads."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        (self.port,) = free_ports(1)
        self._threads = threads

    def source(self, **settings: Any) -> WebhookSource[Any]:
        return WebhookSource(self.port, **{"path": "/orders", "token": TOKEN, **settings})

    def send(self, body: Any, key: str | None = None, **headers: str) -> Future[tuple[int, Any]]:
        """Begin a request; its answer is the status and the headers."""
        given = {"Authorization": f"Bearer {TOKEN}"} | {"Idempotency-Key": key} if key else {}
        given = {"Authorization": f"Bearer {TOKEN}", **given, **headers}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._threads.submit(self._send, data, given)

    def _send(self, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        eventually(self.listens, "the webhook listens")
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", "/orders", body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers
        except OSError as error:
            return 0, error
        finally:
            connection.close()

    def listens(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with ThreadPoolExecutor(8) as threads:
        yield Webhook(threads)


def status(answer: Future[tuple[int, Any]]) -> int:
    return answer.result(60)[0]


def test_a_request_is_answered_when_a_completed_checkpoint_covers_its_record(webhook: Webhook) -> None:
    with SourceHarness(webhook.source()) as harness:
        first = webhook.send({"n": 1})
        assert polled(harness, 1) == [{"n": 1}]
        aborted = harness.snapshot()
        second = webhook.send({"n": 2})
        assert polled(harness, 1) == [{"n": 2}]
        assert not first.done()
        harness.complete_checkpoint(aborted)
        assert status(first) == 200
        assert not second.done()
        covered(harness)
        assert status(second) == 200


def test_columns_and_fields_of_the_request(webhook: Webhook) -> None:
    form = Json(pa.schema([("n", pa.int64())]))
    source = webhook.source(batch_format="arrow", value_format=form, metadata=("key", "headers", "timestamp"))
    with SourceHarness(source) as harness:
        answer = webhook.send({"n": 1}, "k", Color="red")
        (row,) = polled(harness, 1)
        covered(harness)
        assert status(answer) == 200
    assert (row["n"], row["key"]) == (1, "k")
    assert {"name": "Color", "value": "red"} in row["headers"]
    assert TOKEN not in str(row["headers"])


def test_a_repeated_request_makes_no_second_record_and_gets_the_same_answer(webhook: Webhook) -> None:
    with SourceHarness(webhook.source()) as harness:
        first = webhook.send(1, "a")
        assert polled(harness, 1) == [1]
        again = webhook.send(1, "a")
        other = webhook.send(2, "b")
        assert polled(harness, 1) == [2]
        covered(harness)
        assert [status(each) for each in (first, again, other)] == [200, 200, 200]
        assert status(webhook.send(1, "a")) == 200
        assert harness.poll() == []


def test_a_request_whose_answer_was_lost_makes_no_second_record_in_the_next_attempt(webhook: Webhook) -> None:
    with SourceHarness(webhook.source()) as harness:
        lost = webhook.send(1, "a")
        polled(harness, 1)
        snapshot = harness.snapshot()  # it is complete, but the process dies before the notice
        uncovered = webhook.send(2, "b")
        polled(harness, 1)
    assert (status(lost), status(uncovered)) == (503, 503)
    with SourceHarness(webhook.source(), restored=[snapshot], attempt=2) as harness:
        assert status(webhook.send(1, "a")) == 200
        repeated = webhook.send(2, "b")
        assert polled(harness, 1) == [2]
        covered(harness)
        assert status(repeated) == 200


def test_so_many_keys_are_remembered(webhook: Webhook) -> None:
    source = webhook.source(remembered_keys=2)
    with SourceHarness(source) as harness:
        for key in "abc":
            answer = webhook.send(1, key)
            polled(harness, 1)
            snapshot = covered(harness)
            assert status(answer) == 200
        assert [status(webhook.send(1, key)) for key in "bc"] == [200, 200]
        webhook.send(1, "a")
        assert polled(harness, 1) == [1]
    with SourceHarness(source, restored=[snapshot]) as harness:
        assert status(webhook.send(1, "c")) == 200
        webhook.send(1, "a")
        assert polled(harness, 1) == [1]


def test_requests_beyond_the_limit_are_told_to_come_later_while_checkpoints_are_late(
    webhook: Webhook,
) -> None:
    with SourceHarness(webhook.source(max_unacknowledged=2)) as harness:
        waiting = [webhook.send(number) for number in range(2)]
        assert sorted(polled(harness, 2)) == [0, 1]
        code, headers = webhook.send(2).result(60)
        assert (code, headers["Retry-After"]) == (429, "1")
        covered(harness)
        assert [status(each) for each in waiting] == [200, 200]
        last = webhook.send(3)
        assert polled(harness, 1) == [3]
        covered(harness)
        assert status(last) == 200


def test_a_request_that_no_checkpoint_covers_in_time_is_to_be_repeated(webhook: Webhook) -> None:
    with SourceHarness(webhook.source(answer_within=0.05)) as harness:
        answer = webhook.send(1, "a")
        assert polled(harness, 1) == [1]
        code, headers = answer.result(60)
        assert (code, headers["Retry-After"]) == (503, "1")
        covered(harness)
        eventually(lambda: harness.poll() or status(webhook.send(1, "a")) == 200, "it is covered")
        assert harness.poll() == []


@pytest.mark.parametrize("header", [{"Authorization": "Bearer wrong"}, {"Authorization": ""}])
def test_a_request_without_the_token_is_refused(webhook: Webhook, header: dict[str, str]) -> None:
    with SourceHarness(webhook.source()) as harness:
        assert status(webhook.send(1, **header)) == 401
        assert harness.poll() == []


def test_a_large_body_is_refused(webhook: Webhook) -> None:
    with SourceHarness(webhook.source(max_body_bytes=100)) as harness:
        assert status(webhook.send("x" * 200)) == 413
        assert status(webhook.send(1, "k" * 300)) == 400
        assert harness.poll() == []


def test_a_request_that_never_becomes_complete_leaves_room_for_others(webhook: Webhook) -> None:
    with SourceHarness(webhook.source(max_unacknowledged=1, answer_within=0.2)) as harness:
        eventually(webhook.listens, "the webhook listens")
        with socket.create_connection(("127.0.0.1", webhook.port), timeout=60) as slow:
            lines = (
                "POST /orders HTTP/1.1",
                "Host: x",
                f"Authorization: Bearer {TOKEN}",
                "Content-Length: 9",
            )
            slow.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 408")
        webhook.send(1)
        assert polled(harness, 1) == [1]


def test_headers_that_are_not_utf_8_fail_neither_the_listener_nor_the_job(webhook: Webhook) -> None:
    numbers = Json(pa.schema([("n", pa.int64())]))
    source = webhook.source(batch_format="arrow", metadata=("headers",), value_format=numbers)
    with SourceHarness(source) as harness:
        assert status(webhook.send({"n": 1}, Authorization="Bearer \xff")) == 401
        assert status(webhook.send({"n": 1}, "key-\xff")) == 400
        webhook.send({"n": 2}, **{"X-Name": "a\xff"})
        (row,) = polled(harness, 1)
        assert {"name": "X-Name", "value": "a\N{REPLACEMENT CHARACTER}"} in row["headers"]


def test_a_body_that_can_not_be_decoded_is_refused_at_once_and_may_come_again(webhook: Webhook) -> None:
    with SourceHarness(webhook.source()) as harness:
        bad, good = webhook.send(b"{", "a"), webhook.send(2, "b")
        assert polled(harness, 1) == [2]
        assert status(bad) == 400
        assert not harness.dead_letters
        webhook.send(3, "a")
        assert polled(harness, 1) == [3]
        covered(harness)
        assert status(good) == 200


def test_a_body_that_can_not_be_decoded_becomes_a_dead_letter_if_the_source_says_so(webhook: Webhook) -> None:
    with SourceHarness(webhook.source(on_error="dead_letter")) as harness:
        answer = webhook.send(b"{")
        eventually(lambda: harness.poll() or harness.dead_letters, "it is found")
        covered(harness)
        assert status(answer) == 200
    (letter,) = harness.dead_letters
    assert letter.record == b"{"
    assert letter.origin == "POST /orders of 127.0.0.1, request 1"


def test_a_sink_sends_to_a_webhook_of_another_job_once(webhook: Webhook) -> None:
    url = f"http://127.0.0.1:{webhook.port}/orders"
    sink: Any = HttpSink(url, headers={"Authorization": f"Bearer {TOKEN}"})

    def commit(restored: Any = ()) -> Any:
        with OperatorHarness.of(lambda stream: stream.sink("out", sink), restored=restored) as sender:
            sender.push([{"n": 1}, {"n": 2}])
            snapshot = sender.snapshot()
            sender.complete_checkpoint(snapshot)
            return snapshot

    with SourceHarness(webhook.source()) as harness, ThreadPoolExecutor(1) as sending:
        first = sending.submit(commit)
        assert sorted(row["n"] for row in polled(harness, 2)) == [1, 2]
        covered(harness)
        again = sending.submit(
            OperatorHarness.of, lambda stream: stream.sink("out", sink), restored=[first.result(60)]
        )
        again.result(60).close()
        assert harness.poll() == []


def test_a_port_is_taken_over_when_the_attempt_before_has_ended(webhook: Webhook) -> None:
    with SourceHarness(webhook.source()) as before:
        eventually(webhook.listens, "the first attempt listens")
        with SourceHarness(webhook.source(), attempt=2) as harness:
            harness.poll()
            before.close()
            webhook.send(1)
            assert polled(harness, 1) == [1]


@pytest.mark.parametrize("turns", range(8))
def test_a_listener_that_ends_while_it_starts_leaves_its_port(turns: int) -> None:
    (port,) = free_ports(1)
    source = WebhookSource[Any](port)
    (split,) = source.splits(1)

    async def begin_and_end() -> None:
        receiver = _WebhookReceiver(source, split, deserializer=MagicMock())
        receiving = asyncio.ensure_future(receiver.receive(MagicMock()))
        for _ in range(turns):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait([receiving])
        await receiver.close()
        with socket.create_server(("127.0.0.1", port)):
            pass

    asyncio.run(begin_and_end())


@pytest.mark.parametrize("turns", range(6))
def test_no_sender_is_left_without_an_answer_when_the_listener_ends(turns: int) -> None:
    (port,) = free_ports(1)
    source = WebhookSource[Any](port)
    (split,) = source.splits(1)

    async def connect_and_end() -> None:
        receiver = _WebhookReceiver(source, split, deserializer=MagicMock())
        receiving = asyncio.ensure_future(receiver.receive(MagicMock()))
        with socket.socket() as first:
            first.setblocking(False)
            while first.connect_ex(("127.0.0.1", port)) not in (0, EISCONN):
                await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait([receiving])
        senders = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await receiver.close()
        for sender in senders:
            with sender, contextlib.suppress(ConnectionResetError):
                sender.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\n1")
                assert sender.recv(100) == b""

    gc.disable()  # a collection would close lost connections
    try:
        asyncio.run(connect_and_end())
    finally:
        gc.enable()


def test_a_port_that_stays_in_use_fails_the_attempt(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.io.connectors.webhook._GIVE_UP_AFTER", 0.1)
    with SourceHarness(webhook.source()):
        eventually(webhook.listens, "the first job listens")
        failure = failure_of(webhook.source())
    assert f"the webhook at 127.0.0.1:{webhook.port} could not listen for 0.1 s: [Errno" in failure
    assert "Choose another port" in failure


def test_a_job_without_checkpoints_is_refused_and_a_token_is_not_shown(webhook: Webhook) -> None:
    source = webhook.source()
    with pytest.raises(ConfigurationError, match="this job takes none"):
        source.check_job_config(JobConfig())
    source.check_job_config(JobConfig(checkpointing=Checkpointing(every=1)))
    assert TOKEN not in repr(source)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"host": "0.0.0.0"}, "give a token="),
        ({"token": ""}, "an empty token is not allowed"),
        ({"port": 0}, "use 1 to 65535"),
        ({"path": "orders"}, "must begin with '/'"),
        ({"on_error": "fail"}, "on_error='fail' is not allowed"),
        ({"remembered_keys": 0}, "give at least 1"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: Any, why: str) -> None:
    make: Callable[..., Any] = WebhookSource
    with pytest.raises(ConfigurationError, match=why):
        make(**{"port": 8085, **settings})
