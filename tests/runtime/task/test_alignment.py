"""A source's subtask that waits for the other sources of its group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pytest
from subtask_setup import ScriptedReader, ScriptedSource, SubtaskSetup, rows
from work_graphs import MakeSubtask

from penstock import CollectionSource, DiscardSink, HybridSource, StreamEnvironment, WatermarkStrategy
from penstock.connectors import ConnectorContext, Polled, SplitEnumeratorContext, SplitProgress
from penstock.operators import RowBatch
from penstock.runtime.operators.source_watermarks import WatermarkReported, WatermarksAligned
from penstock.runtime.record.elements import END_OF_TIME, StreamStatus, Watermark

STRATEGY = (
    WatermarkStrategy.for_monotonous_timestamps()
    .with_timestamp_assigner(abs)
    .with_alignment("all", max_drift=0.00001, interval=1)
)


def reading(source: Any, strategy: WatermarkStrategy[Any] = STRATEGY) -> StreamEnvironment:
    env = StreamEnvironment("job")
    env.from_source("source", source, watermarks=strategy).rebalance().sink("sink", DiscardSink())
    return env


def reports(task: SubtaskSetup) -> list[tuple[int | None, bool]]:
    """Watermark and whether the subtask counts, report by report, since the last call."""
    sent, task.events_sent = task.events_sent, []
    assert all(isinstance(event, WatermarkReported) for _, event in sent)
    return [(event.reached, event.counts) for _, event in sent]


def allow(task: SubtaskSetup, number: int, allowed: int | None) -> None:
    task.subtask.operator_event("source", WatermarksAligned(number, allowed))
    task.run_freely()


QUIET: Polled[Any] = Polled(ready_at=10_000.0)


def test_it_reports_at_once_and_then_every_interval(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([Polled(rows(7)), QUIET])), "source")
    task.run_freely()
    assert reports(task) == [(6, True)]
    task.wait(2.5)
    assert reports(task) == [(6, True), (6, True)]


def test_a_subtask_that_is_ahead_reads_nothing_until_it_may(make_subtask: MakeSubtask) -> None:
    script = [Polled(rows(7)), QUIET, Polled(rows(100)), Polled(rows(200)), QUIET]
    source = ScriptedSource([script[0], *script[2:]])
    task = make_subtask(reading(source), "source")
    task.subtask.step()
    allow(task, 1, 50)
    assert task.rows() == [7, 100], "the record that brings it too far ahead has been read"
    assert reports(task)[-1] == (99, True), "it asks at once"
    assert task.subtask.statistics().is_paused
    task.wait(3)
    assert task.rows() == [7, 100]
    allow(task, 3, 99)
    assert task.rows() == [7, 100, 200]


def test_while_somebody_has_no_watermark_those_who_have_one_wait(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([Polled(rows(7)), Polled(rows(8)), QUIET])), "source")
    allow(task, 1, None)
    assert task.rows() == [7]
    allow(task, 2, END_OF_TIME)
    assert task.rows() == [7, 8]


def test_an_older_answer_does_nothing(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([Polled(rows(7)), Polled(rows(8)), QUIET])), "source")
    task.subtask.operator_event("source", WatermarksAligned(2, END_OF_TIME))
    allow(task, 1, None)
    assert task.rows() == [7, 8]


def test_a_pause_is_no_idleness(make_subtask: MakeSubtask) -> None:
    strategy = STRATEGY.with_idleness(5)
    source = ScriptedSource([Polled(rows(7)), Polled(rows(100)), QUIET])
    task = make_subtask(reading(source, strategy), "source")
    allow(task, 1, 0)
    task.wait(60)
    assert task.events() == [Watermark(6)]
    assert set(reports(task)) == {(6, True)}
    allow(task, 100, END_OF_TIME)
    task.wait(4.5)
    assert task.events() == [Watermark(6), Watermark(99)]
    task.wait(2)
    assert task.events()[2:] == [StreamStatus.IDLE]
    assert reports(task)[-1] == (99, False)


def test_a_paused_subtask_takes_checkpoints(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([Polled(rows(7)), Polled(rows(8)), QUIET])), "source")
    allow(task, 1, None)
    assert task.rows() == [7]
    task.checkpoint(1)
    assert task.rows() == [7]
    assert 1 in task.acknowledged


@dataclass
class MarkedSource(ScriptedSource):
    """Says behind which poll the mark of a checkpoint stands."""

    marks: dict[int, int] = field(default_factory=dict)

    def reader(self, context: ConnectorContext, splits: Sequence[int]) -> MarkedReader:
        return MarkedReader(self, 0)


class MarkedReader(ScriptedReader):
    _source: MarkedSource

    def should_trigger_checkpoint(self) -> int | None:
        return self._source.marks.pop(self._position, None)


def test_a_subtask_that_is_ahead_reads_on_to_the_mark_of_a_checkpoint_and_no_further(
    make_subtask: MakeSubtask,
) -> None:
    script = [*(Polled(rows(moment)) for moment in (7, 100, 200, 300, 400)), QUIET]
    task = make_subtask(reading(MarkedSource(script, marks={4: 1})), "source")
    allow(task, 1, 50)
    assert task.rows() == [7, 100]
    assert task.subtask.statistics().is_paused
    task.checkpoint(1)
    assert task.rows() == [7, 100, 200, 300]
    assert 1 in task.acknowledged
    task.run_freely()
    assert task.rows() == [7, 100, 200, 300], "it is ahead, and no checkpoint waits"
    allow(task, 9, 300)
    assert task.rows() == [7, 100, 200, 300, 400]


def test_the_end_is_reported_and_later_answers_do_nothing(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([Polled(rows(7))])), "source")
    task.run_freely()
    assert reports(task)[-1] == (6, False)
    allow(task, 1, None)
    task.wait(10)
    assert reports(task) == []


class Partitions:
    """Two partitions, of which one can be left out."""

    def __init__(self) -> None:
        self.left = {"fast": [50, 60, 70, 80], "slow": [1, 2, 30, 40]}
        self.paused: Set[Hashable] = frozenset()
        self.calls: list[list[Any]] = []

    def splits(self, parallelism: int) -> Sequence[Any]:
        return [0]

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Partitions:
        return self

    @property
    def split_progress(self) -> SplitProgress:
        return SplitProgress(tuple(name for name, moments in self.left.items() if moments))

    def pause_splits(self, paused: Set[Hashable]) -> None:
        self.calls.append(sorted(map(str, paused)))
        self.paused = paused

    def poll(self, max_rows: int) -> Polled[Any]:
        for name, moments in self.left.items():
            if moments and name not in self.paused:
                return Polled(RowBatch([moments.pop(0)]), split=name)
        return Polled(finished=not any(self.left.values()))

    def snapshot(self) -> Sequence[Any]:
        return []

    def close(self) -> None:
        pass


def test_of_a_reader_that_can_leave_splits_out_only_those_wait_that_are_ahead(
    make_subtask: MakeSubtask,
) -> None:
    source = Partitions()
    task = make_subtask(reading(source), "source")
    allow(task, 1, 20)
    assert [row for batch in task.sent[0] if isinstance(batch, RowBatch) for row in batch.rows] == [
        50,
        1,
        2,
        30,
    ]
    assert source.calls == [["fast"], ["fast", "slow"]]
    assert task.subtask.statistics().is_paused
    allow(task, 2, 55)
    assert source.calls[2] == []
    assert task.rows() == [50, 1, 2, 30, 60, 40]


class FoundPartitions(Partitions):
    """The same behind an enumerator, which gives them out as one split."""

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_splits_that_an_enumerator_gives_out_are_left_out_one_by_one_too(
    make_subtask: MakeSubtask, is_hybrid: bool
) -> None:
    found = FoundPartitions()
    source = HybridSource(CollectionSource([]), then=found) if is_hybrid else found
    task = make_subtask(reading(source), "source", splits=((1, None, 0),) if is_hybrid else (0,))
    allow(task, 1, 20)
    assert found.calls == [["fast"], ["fast", "slow"]]
    assert task.subtask.statistics().is_paused
    allow(task, 2, 55)
    assert task.rows() == [50, 1, 2, 30, 60, 40]


def test_a_reader_behind_an_enumerator_that_leaves_no_split_out_waits_as_a_whole(
    make_subtask: MakeSubtask,
) -> None:
    class Whole(ScriptedSource):
        enumerator = FoundPartitions.enumerator

    script = [Polled(rows(7)), Polled(rows(100)), Polled(rows(200)), QUIET]
    task = make_subtask(reading(Whole(script)), "source")
    task.subtask.step()
    allow(task, 1, 50)
    assert task.rows() == [7, 100]
    assert task.subtask.statistics().is_paused
