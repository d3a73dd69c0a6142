from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.source import DeadLetter, Polled, Source
from penstock.runtime.operators.source_operator import SPLITS, SourceOperator
from penstock.runtime.record.elements import RowBatch


@dataclass
class Numbers:
    """Splits are (next number, end)."""

    readers: list[Reader] = field(default_factory=list)

    def splits(self, parallelism: int) -> Sequence[Any]:
        return [(0, 5), (100, 103)]

    def reader(self, context, splits):
        self.readers.append(Reader(list(splits)))
        return self.readers[-1]


class Reader:
    def __init__(self, splits: list[tuple[int, int]]) -> None:
        self.splits = splits
        self.closed = 0

    def poll(self, max_rows: int) -> Polled[int]:
        if not self.splits:
            return Polled(finished=True)
        position, end = self.splits.pop(0)
        stop = min(end, position + max_rows)
        if stop < end:
            self.splits.insert(0, (stop, end))
        bad = [DeadLetter("x", "no number", "line 1")] if position == 0 else []
        return Polled(RowBatch(list(range(position, stop))), bad, skipped=1)

    def snapshot(self) -> Sequence[Any]:
        return self.splits

    def close(self) -> None:
        self.closed += 1


def opened(make_context, source=None, splits=(), **more):
    operator = SourceOperator(source or Numbers())
    operator.open(make_context(0, **more), splits)
    return operator


def rows_to_the_end(operator):
    rows = []
    while not (polled := operator.poll(2)).finished:
        rows += polled.batch.rows
    return rows


def test_the_source_of_these_tests_keeps_to_the_protocol():
    assert isinstance(Numbers(), Source)


def test_it_reads_fresh_splits(make_context):
    operator = opened(make_context, splits=[(0, 3)])
    assert rows_to_the_end(operator) == [0, 1, 2]


def test_it_goes_on_from_the_snapshot_and_repeats_nothing(make_context):
    operator = opened(make_context, splits=[(0, 5), (100, 102)])
    before = list(operator.poll(3).batch.rows)
    saved = operator.snapshot(1)[SPLITS].values
    operator.poll(2)
    restored = opened(make_context, restored={SPLITS: saved}, is_restored=True)
    assert before + rows_to_the_end(restored) == [0, 1, 2, 3, 4, 100, 101]


def test_restored_splits_win_over_fresh_ones_even_when_there_are_none(make_context):
    operator = opened(make_context, splits=[(0, 5)], restored={SPLITS: []}, is_restored=True)
    assert operator.poll(10).finished


def test_the_snapshot_does_not_change_with_the_reader(make_context):
    operator = opened(make_context, splits=[(0, 4)])
    saved = operator.snapshot(1)[SPLITS]
    operator.poll(2)
    assert list(saved.values) == [(0, 4)]


def test_it_counts_records_dead_letters_and_skipped_ones(make_context):
    operator = opened(make_context, splits=[(0, 5)])
    rows_to_the_end(operator)
    counted = operator.statistics()
    assert (counted.records_out, counted.dead_letters, counted.records_skipped) == (5, 1, 3)


def test_it_closes_its_reader_once(make_context):
    source = Numbers()
    operator = opened(make_context, source)
    operator.close()
    operator.close()
    assert source.readers[0].closed == 1


def test_a_source_that_was_never_opened_closes():
    SourceOperator(Numbers()).close()


@pytest.mark.parametrize("method", ["poll", "snapshot", "close"])
def test_a_failing_reader_is_a_located_error(make_context, method):
    def fail(*_):
        msg = "connection lost"
        raise OSError(msg)

    source = Numbers()
    operator = opened(make_context, source)
    setattr(source.readers[0], method, fail)
    with pytest.raises(
        OperatorError, match=rf"'op0'.*source Numbers: {method} failed: OSError: connection lost"
    ):
        getattr(operator, method)(*[1] * (method != "close"))


def test_a_reader_that_can_not_be_made_is_a_located_error(make_context):
    class Missing(Numbers):
        def reader(self, context, splits):
            raise FileNotFoundError("data.csv")

    with pytest.raises(OperatorError, match=r"source Missing: reader failed: FileNotFoundError: data\.csv"):
        opened(make_context, Missing())


def test_a_poll_that_returns_something_else_is_told_so(make_context):
    class Lazy(Numbers):
        def reader(self, context, splits):
            reader = Reader([])
            reader.poll = lambda max_rows: [1, 2]  # type: ignore[method-assign, assignment]
            return reader

    with pytest.raises(OperatorError, match=r"poll returned \[1, 2\] of type list; return a Polled"):
        opened(make_context, Lazy()).poll(1)


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(
    ("polled", "says"),
    [
        (lambda: Polled(RowBatch(n for n in [1, 2])), "rows are of type generator, which has no length"),  # type: ignore[arg-type]
        (lambda: Polled(RowBatch(map(int, "12"))), "rows are of type map, which has no length"),  # type: ignore[arg-type]
        (lambda: Polled([1, 2]), r"batch is \[1, 2\] of type list; give Polled\(RowBatch"),  # type: ignore[arg-type]
        (lambda: Polled(pa.record_batch({"a": [1]})), r"give .* Polled\(ArrowBatch\(record_batch\)\)"),  # type: ignore[arg-type]
        (
            lambda: Polled(RowBatch([1, 2], [1])),
            "rows of length 2 and timestamps of length 1; give a list with one timestamp for each",
        ),
        (lambda: Polled(RowBatch([1], iter([1]))), "rows of length 1 and timestamps of type list_iterator"),  # type: ignore[arg-type]
        (lambda: Polled(ready_at="soon"), "ready_at 'soon' of type str; give seconds"),  # type: ignore[arg-type]
    ],
)
def test_a_batch_that_is_none_is_refused_and_no_record_of_it_is_lost(make_context, polled, says, copies):
    class Wrong(Numbers):
        def reader(self, context, splits):
            reader: Any = Reader([])
            reader.poll, reader.makes_new_records = lambda max_rows: polled(), not copies
            return reader

    with pytest.raises(OperatorError, match=f"(?s)poll failed: poll returned a .*{says}"):
        opened(make_context, Wrong()).poll(1)


class FollowingReader(Reader):
    """Writes down its calls about checkpoints."""

    def __init__(self, splits: list[tuple[int, int]]) -> None:
        super().__init__(splits)
        self.told: list[tuple[str, int]] = []

    def snapshot_taken(self, checkpoint_id: int) -> None:
        self.told.append(("taken", checkpoint_id))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.told.append(("completed", checkpoint_id))


class FollowedNumbers(Numbers):
    def reader(self, context, splits):
        self.readers.append(FollowingReader(list(splits)))
        return self.readers[-1]


def test_a_reader_that_follows_checkpoints_is_told_of_them(make_context) -> None:
    source = FollowedNumbers()
    operator = opened(make_context, source, [(0, 5)])
    operator.snapshot(3)
    operator.snapshot(4)
    operator.notify_checkpoint_complete(4)
    assert source.readers[0].told == [("taken", 3), ("taken", 4), ("completed", 4)]


def test_a_reader_that_does_not_follow_checkpoints_is_left_alone(make_context) -> None:
    operator = opened(make_context, splits=[(0, 5)])
    operator.snapshot(3)
    operator.notify_checkpoint_complete(3)


class AsyncReader(FollowingReader):
    async def snapshot_taken(self, checkpoint_id: int) -> None:  # type: ignore[override]
        self.told.append(("taken", checkpoint_id))

    def notify_checkpoint_complete(self, checkpoint_id: int):
        yield "never reached"

    async def close(self) -> None:  # type: ignore[override]
        """Never awaited."""


@pytest.mark.parametrize(
    ("call", "method", "says"),
    [
        (lambda operator: operator.snapshot(1), "snapshot_taken", "declared `async def`"),
        (lambda operator: operator.notify_checkpoint_complete(1), "notify_checkpoint_complete", "yields"),
        (lambda operator: operator.close(), "close", "declared `async def`"),
    ],
)
def test_a_method_of_a_reader_that_never_runs_is_refused(make_context, call, method, says) -> None:
    class Asynchronous(Numbers):
        def reader(self, context, splits):
            return AsyncReader([(0, 5)])

    operator = opened(make_context, Asynchronous())
    with pytest.raises(OperatorError, match=f"source Asynchronous: {method} failed: .*{method}.*{says}"):
        call(operator)


class Given(Numbers):
    """A source with an enumerator, which is not needed: each reader returns one given record."""

    def __init__(self, record: Any, *, makes_new_records: bool) -> None:
        super().__init__()
        self.record, self.makes_new_records = record, makes_new_records

    def enumerator(self, context, state):
        raise NotImplementedError

    def reader(self, context, splits):
        reader: Any = Reader([])
        reader.poll = lambda max_rows: Polled(RowBatch([self.record]), finished=True)
        reader.makes_new_records = self.makes_new_records
        return reader


@pytest.mark.parametrize("makes_new_records", [True, False])
def test_new_records_are_not_copied_where_a_coordinator_assigns_the_splits(
    make_context, makes_new_records
) -> None:
    record = {"tags": ["a"]}
    operator = SourceOperator(Given(record, makes_new_records=makes_new_records))
    operator.open(make_context(0), ["split"], lambda event: None)
    polled = operator.poll(10)
    assert isinstance(polled.batch, RowBatch)
    assert polled.batch.rows == [record]
    assert (polled.batch.rows[0] is record) is makes_new_records
