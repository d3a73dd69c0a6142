"""An event that can't be encoded, or not be read, is named in a job, and nothing committed is lost."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from threading import Lock
from typing import Any

import pytest
from simulated_jobs.scripted_job import ScriptedJob

from penstock import Checkpointing, CollectSink, GeneratorSource, JobConfig, OperatorError, StreamEnvironment
from penstock.operators import (
    CoordinatorAnswer,
    Operator,
    OperatorContext,
    OperatorCoordinator,
    OperatorCoordinatorContext,
    RowBatch,
)
from penstock.runtime.errors import CodecError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.snapshot.storage import MemoryStorage

COUNT = 200
CONFIG = JobConfig(checkpointing=Checkpointing(every=1))
LOCK = r"a value of type _thread.lock can't be pickled: .* Turn it into a dataclass, a named tuple or plain"


class Unreadable:
    """Its class is there where it is written, and gone where it is read."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return read_once, ()


_CLASS_IS_THERE = itertools.cycle((True, False))


def read_once() -> Unreadable:
    if next(_CLASS_IS_THERE):
        return Unreadable()
    msg = "gone"
    raise LookupError(msg)


class Outside:
    """The side that sends something odd, and its first odd row; the same for all processes."""

    def __init__(self, side: str = "", event: Any = None, first: int = COUNT // 2) -> None:
        self.side, self.event, self.first = side, event, first

    def __deepcopy__(self, memo: object) -> Outside:
        return self

    def sent_by(self, side: str, row: int) -> Any:
        """The events of this side for a row; odd things are sent once."""
        if side != self.side or row < self.first:
            return row
        self.side = ""
        return self.event


class Echoes(OperatorCoordinator):
    def __init__(self, context: OperatorCoordinatorContext, outside: Outside) -> None:
        self.context, self.outside, self.newest = context, outside, 0

    def handle_event(self, subtask: int, event: int) -> None:
        self.newest = event
        self.context.send_event(subtask, self.outside.sent_by("coordinator", event))

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        answer.complete(self.outside.sent_by("state", self.newest))

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        pass


class Talks(Operator):
    def __init__(self, outside: Outside) -> None:
        self.outside = outside

    def coordinator(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        return Echoes(context, self.outside)

    def open(self, context: OperatorContext) -> None:
        self.context = context

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        for row in batch.rows:
            self.context.send_event(self.outside.sent_by("operator", row))
        yield batch

    def handle_event(self, event: Any) -> None:
        pass


def talking(outside: Outside, rows: InMemoryCollector) -> ExecutionGraph:
    env = StreamEnvironment("talking")
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT, rate=1_000.0))
    numbers.rebalance().transform("talks", Talks(outside)).sink("out", CollectSink(rows))
    return build_execution_graph(env.build())


def started(side: str, event: Any) -> tuple[ScriptedJob, InMemoryCollector]:
    """A job with committed rows; the second half of its rows makes one side send something odd."""
    rows = InMemoryCollector()
    job = ScriptedJob(talking(Outside(side, event), rows), CONFIG, MemoryStorage())
    job.until(lambda: job.subtask("talks").statistics().records_in > COUNT // 4, "some rows")
    job.complete_checkpoint()
    job.until(lambda: rows.rows() != [], "committed rows")
    return job, rows


@pytest.mark.parametrize(
    ("side", "event", "message"),
    [
        ("coordinator", Lock(), rf"handle_event failed: an event for subtask 0 can't be sent: {LOCK}"),
        ("state", Lock(), rf"checkpoint failed: its state can't be saved: {LOCK}"),
        ("operator", Unreadable(), "handle_event failed: a pickled value can't be read: LookupError: gone"),
    ],
    ids=["an event", "its state", "an event that it gets"],
)
def test_a_coordinator_with_something_odd_is_named_and_the_job_goes_on_from_its_checkpoint(
    side: str, event: Any, message: str
) -> None:
    job, rows = started(side, event)
    if side == "state":
        job.until(lambda: job.subtask("talks").statistics().records_in > COUNT * 3 // 4, "more rows")
        job.trigger_checkpoint()
    job.finish()

    (failure,) = job.scheduler.statistics().failures
    named = r"operator 'talks', defined at \S+:\d+ in talking: coordinator Echoes: "
    assert re.match(named + message, str(failure.root)), failure.root
    assert sorted(rows.rows()) == list(range(COUNT))


@pytest.mark.parametrize(
    ("side", "event", "message"),
    [
        (
            "operator",
            Lock(),
            r"operator 'talks' \(subtask 1 of 1\), defined at \S+:\d+ in talking: "
            rf"operator Talks\.process .* failed: an event can't be sent to the coordinator: {LOCK}",
        ),
        (
            "coordinator",
            Unreadable(),
            "an event of the coordinator of operator 'talks' can't be read: .*LookupError: gone. "
            "Send plain values, or objects of classes that every node can import",
        ),
    ],
    ids=["an event", "an event that it gets"],
)
def test_an_operator_with_something_odd_is_named_and_the_next_job_goes_on_from_its_checkpoint(
    side: str, event: Any, message: str
) -> None:
    job, rows = started(side, event)
    with pytest.raises((OperatorError, CodecError), match=message):
        job.finish()
    committed = sorted(rows.rows())
    assert committed == list(range(len(committed)))

    next_job = ScriptedJob(
        talking(Outside(), rows), CONFIG, job.storage, job_id="mended", restore_from=job.newest_url
    )
    next_job.finish()
    assert sorted(rows.rows()) == list(range(COUNT))
