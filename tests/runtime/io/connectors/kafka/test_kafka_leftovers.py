"""Transactions of dead writers are aborted several at a time, and the job does not wait for long."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving.kafka import light_broker
from topics import PATIENCE, Topic

from penstock.connectors import SinkContext
from penstock.operators import RowBatch
from penstock.runtime.io.connectors.daemon_threads import for_each
from penstock.runtime.io.connectors.kafka import writers
from penstock.runtime.io.connectors.kafka.transaction_requests import list_transactions
from penstock.runtime.snapshot.completed_checkpoint import permit_of_ended_input
from penstock.testing import ManualClock

PERMIT = permit_of_ended_input(1)


def writer(topic: Topic, attempt: int) -> Any:
    context = SinkContext(topic.name, "job", "out", 0, 1, attempt, ManualClock())
    return topic.sink().writer(context)


def open_ids(topic: Topic) -> list[str]:
    found = list_transactions(topic.broker.client(), states=["Ongoing"])
    return [each.transactional_id for each in found if topic.name in each.transactional_id]


def test_calls_run_at_the_same_time_and_one_that_fails_does_not_keep_the_others() -> None:
    together = threading.Barrier(4)
    done: list[int] = []

    def work(number: int) -> None:
        together.wait(PATIENCE)
        if number == 5:
            message = "no"
            raise ValueError(message)
        done.append(number)

    with pytest.raises(ValueError, match="no"):
        for_each(work, range(8), threads=4)
    assert sorted(done) == [0, 1, 2, 3, 4, 6, 7]


def test_many_leftovers_are_aborted(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    dead = writer(topic, 1)
    for number in range(4):
        dead.write(RowBatch([number]))
        dead.prepare_commit()
    assert len(open_ids(topic)) == 4
    opened = writer(topic, 2)
    opened.remove_leftovers(PERMIT)
    assert open_ids(topic) == []
    opened.close()
    dead.close()


def test_the_job_continues_while_a_broker_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writers, "_CLEAN_UP", 0.1)
    with light_broker(tmp_path) as broker:
        topic = Topic(broker, "t", 1, {})
        dead = writer(topic, 1)
        dead.write(RowBatch([1]))
        dead.prepare_commit()
        opened = writer(topic, 2)
        broker.pause()
        try:
            with caplog.at_level(logging.WARNING):
                opened.remove_leftovers(PERMIT)
        finally:
            broker.resume()
        assert "the job continues meanwhile" in caplog.text
        deadline = time.monotonic() + PATIENCE
        while open_ids(topic):
            assert time.monotonic() < deadline, "the leftover is not aborted in the background"
            time.sleep(0.02)
        opened.close()
        dead.close()
