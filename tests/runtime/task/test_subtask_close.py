"""Closing a subtask, at whatever stage it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from subtask_setup import Log, LoggingSink, ScriptedSource, SubtaskSetup, rows

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import OperatorError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.operator import Operator, Output
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.operators.user_code.failure import failure_details
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot import metadata

CONFIG = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(credits=1))


class FailsToClose(LoggingSink):
    def writer(self, context: ConnectorContext) -> Any:
        writer = super().writer(context)

        def close() -> None:
            self.log.calls.append("sink closed")
            msg = "it can't be closed"
            raise OSError(msg)

        writer.close = close  # type: ignore[method-assign]
        return writer


def chained(log: Log, *script: Any, function: Callable[[Any], Any], sink: Any = None) -> StreamEnvironment:
    """Source, map and sink in one subtask."""
    env = StreamEnvironment("job")
    env.from_source("source", ScriptedSource(script, log)).flat_map(function).sink(
        "sink", sink or LoggingSink(log)
    )
    return env


def closed(task: SubtaskSetup) -> SubtaskSetup:
    task.subtask.close()
    return task


@pytest.fixture
def made() -> Callable[..., SubtaskSetup]:
    """makes subtasks that the test itself closes."""
    return lambda env, vertex="source", **more: SubtaskSetup(env, vertex, CONFIG, **more)


def test_everything_is_closed_before_the_first_step(made: Callable[..., SubtaskSetup], log: Log) -> None:
    closed(made(chained(log, function=lambda n: [n])))
    assert log.calls[1:] == ["source closed", "sink closed"]


def test_everything_is_closed_after_an_operator_failed(made: Callable[..., SubtaskSetup], log: Log) -> None:
    task = made(chained(log, Polled(rows(0)), function=lambda n: [1 // n]))
    with pytest.raises(OperatorError):
        task.run()
    closed(task)
    assert log.calls[1:] == ["source closed", "sink closed"]


def test_everything_is_closed_after_the_source_failed(made: Callable[..., SubtaskSetup], log: Log) -> None:
    task = made(chained(log, OSError("the file is gone"), function=lambda n: [n]))
    with pytest.raises(OperatorError, match="the file is gone"):
        task.run()
    closed(task)
    assert log.calls[1:] == ["source closed", "sink closed"]


def test_everything_is_closed_at_the_end(made: Callable[..., SubtaskSetup], log: Log) -> None:
    task = made(chained(log, function=lambda n: [n]))
    task.run()
    task.checkpoint(1)
    task.subtask.notify_checkpoint_complete(1)
    assert task.run().finished
    closed(task)
    assert log.calls[1:] == ["source closed", "sink closed"]


def test_generator_that_was_left_in_the_middle_is_closed_before_its_operator(
    made: Callable[..., SubtaskSetup], log: Log
) -> None:
    def endless(_: int) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            log.calls.append("generator closed")

    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource([Polled(rows(1))], log))
    stream.flat_map(endless).sink("sink", DiscardSink(), parallelism=2)
    task = made(env)
    task.run()
    assert "generator closed" not in log.calls
    closed(task)
    assert log.calls[1:] == ["generator closed", "source closed"]


class FailsToStop(Operator):
    """An operator that is in the middle of something and fails when that is closed."""

    def process(self, batch: Batch) -> Iterator[Output]:
        try:
            while True:
                yield rows(*range(5000))
        finally:
            msg = "can't stop"
            raise ValueError(msg)


def test_failure_to_stop_in_the_middle_is_told_and_all_others_are_closed(
    made: Callable[..., SubtaskSetup], log: Log
) -> None:
    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource([Polled(rows(1))], log)).map(lambda n: n)
    object.__setattr__(stream._builder.graph.nodes[-1].operator, "factory", FailsToStop)
    stream.sink("sink", DiscardSink(), parallelism=2)
    task = made(env)
    task.run()
    with pytest.raises(OperatorError, match=r"'map-1'.*can't stop"):
        task.subtask.close()
    assert log.calls[1:] == ["source closed"]


def test_operator_that_can_not_be_closed_is_told_after_all_others_are_closed(
    made: Callable[..., SubtaskSetup], log: Log
) -> None:
    task = made(chained(log, function=lambda n: [n], sink=FailsToClose(log)))
    with pytest.raises(OperatorError, match=r"'sink'.*it can't be closed"):
        task.subtask.close()
    assert log.calls[1:] == ["source closed", "sink closed"]


def test_everything_that_can_not_be_closed_is_told(made: Callable[..., SubtaskSetup], log: Log) -> None:
    class Unclosable(ScriptedSource):
        def reader(self, context: ConnectorContext, splits: Any) -> Any:
            reader = super().reader(context, splits)

            def close() -> None:
                msg = "the reader can't be closed"
                raise OSError(msg)

            reader.close = close  # type: ignore[method-assign]
            return reader

    env = StreamEnvironment("job")
    env.from_source("source", Unclosable([], log)).sink("sink", FailsToClose(log))
    with pytest.raises(OperatorError, match=r"'source'.*the reader can't be closed") as caught:
        made(env).subtask.close()
    assert "'sink'" in failure_details(caught.value)
    assert "it can't be closed" in failure_details(caught.value)


@pytest.mark.parametrize("moment", ["before the upload", "after the upload"])
def test_upload_that_nobody_will_acknowledge_leaves_no_file(
    made: Callable[..., SubtaskSetup], log: Log, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    task = made(chained(log, Polled(ready_at=9.0), function=lambda n: [n]))
    task.trigger(1)
    task.run()
    if moment == "after the upload":
        task.runner.do(0)
        assert task.storage.list("") != []
    closed(task)
    task.upload()
    assert task.acknowledged == {}
    assert task.storage.list("") == []


def test_acknowledged_files_stay(
    made: Callable[..., SubtaskSetup], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    task = made(chained(log, Polled(ready_at=9.0), function=lambda n: [n]))
    snapshot = task.checkpoint(1)
    closed(task)
    task.upload()
    assert set(task.storage.list("")) == {file.path for file in snapshot.files()} != set()
