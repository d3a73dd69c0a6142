"""A sink sends records to a real HTTP server: each key is carried out once, whatever fails."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from polling import eventually
from serving.kafka import free_ports
from serving.receiver import Receiver, running_receiver

from penstock import ConfigurationError, JobConfig
from penstock.http import HttpSink
from penstock.operators import ArrowBatch, RowBatch
from penstock.runtime.errors import BadRecordError, ConnectorError, OperatorError, SuppressRestartsError
from penstock.runtime.io.connectors.errors import RefusedRecordError
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.snapshot.completed_checkpoint import permit_of_ended_input
from penstock.testing import ManualClock, OperatorHarness

PERMIT = permit_of_ended_input(1)
DIRECT = {"delivery_guarantee": "at_least_once"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


@contextmanager
def writer(receiver: Receiver, attempt: int = 1, **settings: Any) -> Iterator[Any]:
    context = SinkContext("job-1", "job", "out", 0, 1, attempt, ManualClock())
    opened = HttpSink(receiver.url, **{"give_up_after": 10, **settings}).writer(context)
    try:
        yield opened
    finally:
        opened.close()


def rows(*numbers: int) -> RowBatch:
    return RowBatch([{"n": number} for number in numbers])


def bodies(*numbers: int) -> list[bytes]:
    return [b'{"n":%d}' % number for number in numbers]


def test_nothing_is_sent_before_a_completed_checkpoint_covers_it(receiver: Receiver) -> None:
    with OperatorHarness.of(lambda stream: stream.sink("out", HttpSink(receiver.url))) as harness:
        harness.push([{"n": 1}, {"n": 2}])
        snapshot = harness.snapshot()
        harness.push([{"n": 3}])
        assert receiver.requests == []
        harness.complete_checkpoint(snapshot)
        assert receiver.bodies == bodies(1, 2)


def test_a_commit_that_is_repeated_after_a_restore_sends_the_same_keys(receiver: Receiver) -> None:
    def build(stream: Any) -> Any:
        return stream.sink("out", HttpSink(receiver.url))

    with OperatorHarness.of(build) as harness:
        harness.push([{"n": 1}, {"n": 2}])
        snapshot = harness.snapshot()
        harness.complete_checkpoint(snapshot)
    with OperatorHarness.of(build, restored=[snapshot], attempt=2) as harness:
        assert len(receiver.requests) == 4
        assert receiver.bodies == bodies(1, 2)
        harness.push([{"n": 3}])
        harness.complete_checkpoint(harness.snapshot())
    assert receiver.bodies == bodies(1, 2, 3)


def test_an_answer_that_is_lost_makes_a_request_with_the_same_key(receiver: Receiver) -> None:
    receiver.failures = [0, 503, 429, 409]
    with writer(receiver) as opened:
        opened.write(rows(1))
        opened.commit(opened.prepare_commit(), PERMIT)
    assert [key for key, _, _ in receiver.requests] == ["job-1-out-0-1-0"] * 2
    assert receiver.bodies == bodies(1)


def test_keys_of_the_record_are_the_same_in_every_attempt(receiver: Receiver) -> None:
    for attempt in (1, 2):
        with writer(receiver, attempt, idempotency_key="n", **DIRECT) as opened:
            opened.write(rows(1, 2))
            assert opened.prepare_commit() == []
    assert sorted(key for key, _, _ in receiver.requests) == ["1", "1", "2", "2"]
    assert receiver.bodies == bodies(1, 2)


def test_requests_are_sent_at_once_if_they_may_repeat_and_a_checkpoint_waits_for_them(
    receiver: Receiver,
) -> None:
    with writer(receiver, **DIRECT) as opened:
        receiver.answers.clear()
        opened.write(rows(1, 2))
        covering = threading.Thread(target=opened.prepare_commit)
        covering.start()
        assert covering.is_alive()
        receiver.answers.set()
        covering.join(60)
        assert receiver.bodies == bodies(1, 2)


def test_so_many_requests_run_at_a_time_and_one_keeps_the_order(receiver: Receiver) -> None:
    with writer(receiver, max_concurrent=3, **DIRECT) as opened:
        receiver.answers.clear()
        opened.write(rows(*range(9)))
        eventually(lambda: receiver.most_at_once == 3, "three run")
        receiver.answers.set()
        opened.prepare_commit()
    assert receiver.most_at_once == 3
    with writer(receiver, max_concurrent=1, **DIRECT) as opened:
        opened.write(rows(*range(60)))
        opened.prepare_commit()
    assert [body for _, body, _ in receiver.requests[9:]] == bodies(*range(60))


def test_columns_are_sent_as_rows_with_their_keys(receiver: Receiver) -> None:
    batch = ArrowBatch(pa.record_batch({"n": [1, 2]}))
    with writer(receiver, idempotency_key=lambda row: f"k-{row['n']}", method="PUT") as opened:
        opened.write(batch)
        opened.commit(opened.prepare_commit(), PERMIT)
    assert {key: json.loads(body) for key, body in receiver.carried_out.items()} == {
        "k-1": {"n": 1},
        "k-2": {"n": 2},
    }


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_request_that_is_refused_fails_the_job_without_restarts_or_is_dropped(
    receiver: Receiver, guarantee: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for on_refused in ("fail", "skip"):
        receiver.failures = [422]
        with writer(receiver, delivery_guarantee=guarantee, on_refused=on_refused) as opened:
            opened.write(rows(1))

            def commit(opened: Any = opened) -> None:
                opened.commit(opened.prepare_commit(), PERMIT)

            if on_refused == "fail":
                with pytest.raises(SuppressRestartsError, match=r"refuses the record with .* status 422"):
                    commit()
            else:
                commit()
    assert receiver.requests == []
    assert "status 422" in caplog.text


def test_a_request_that_fails_ends_the_batch_or_commit_before_the_others_have_failed(
    receiver: Receiver,
) -> None:
    receiver.failures = [422] * 50
    with writer(receiver, max_concurrent=1, **DIRECT) as opened, pytest.raises(RefusedRecordError):
        opened.write(rows(*range(50)))
    with writer(receiver, max_concurrent=1) as opened:
        opened.write(rows(*range(50)))
        with pytest.raises(RefusedRecordError):
            opened.commit(opened.prepare_commit(), PERMIT)
    assert len(receiver.failures) >= 40


def test_a_receiver_that_stays_away_fails_the_attempt_and_secrets_are_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/?token=open-sesame"
    sink: Any = HttpSink(url, headers={"Authorization": "Bearer open-sesame"}, give_up_after=0.2)
    caplog.set_level(logging.DEBUG)
    with OperatorHarness.of(lambda stream: stream.sink("out", sink)) as harness:
        harness.push([{"n": 1}])
        snapshot = harness.snapshot()
        with pytest.raises(OperatorError, match=r"did not succeed within 0\.2 s") as found:
            harness.complete_checkpoint(snapshot)
    assert isinstance(found.value.__cause__, ConnectorError)
    assert "open-sesame" not in f"{found.value} {found.value.__cause__} {sink} {caplog.text}"


def test_a_receiver_that_comes_back_gets_what_it_missed() -> None:
    (port,) = free_ports(1)
    away = Receiver()
    away.url = f"http://127.0.0.1:{port}/orders"
    with writer(away, **DIRECT) as opened:
        opened.write(rows(1))
        with running_receiver(port) as back:
            opened.prepare_commit()
            assert back.bodies == bodies(1)


def test_a_record_without_a_key_is_a_bad_record(receiver: Receiver) -> None:
    with writer(receiver, idempotency_key="id") as opened:
        with pytest.raises(BadRecordError, match="gives no key for the record"):
            opened.write(rows(1))
        with pytest.raises(BadRecordError, match="not printable ASCII text"):
            opened.write(RowBatch([{"id": "a\r\nb"}]))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"url": "ftp://host"}, "give http://"),
        ({"method": "GET"}, "method='GET' is not allowed"),
        ({"max_concurrent": 0}, "give at least 1"),
        ({"on_refused": "retry"}, "on_refused='retry' is not allowed"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        HttpSink(**{"url": "http://127.0.0.1", **settings})


def test_a_job_that_keeps_all_requests_to_its_end_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    HttpSink("http://127.0.0.1").check_job_config(JobConfig())
    assert "kept in memory until the end" in caplog.text
