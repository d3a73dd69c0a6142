"""Operators in a chain: the order of their calls, what leaves it, and whose a failure is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from chain_recorder import Recorder

from penstock import GeneratorSource
from penstock.runtime.errors import CodecError, OperatorError, OperatorLocation, PenstockError
from penstock.runtime.operators.chain import LocatedSource, OperatorChain
from penstock.runtime.operators.functions.keyed_folds import KeyedReduceOperator
from penstock.runtime.operators.functions.record_functions import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.operator import Operator, OperatorContext, Output, Tagged
from penstock.runtime.operators.operator_state import SavedList
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.user_code.failure import failure_details
from penstock.runtime.record.elements import Batch, RowBatch, Watermark
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.runtime.testing.manual_time import ManualClock


class Splitter(Operator):
    """Even rows go on, odd ones go to a side output."""

    def process(self, batch: Batch) -> Iterator[Output]:
        assert isinstance(batch, RowBatch)
        yield Tagged("odd", RowBatch([row for row in batch.rows if row % 2]))
        yield RowBatch([row for row in batch.rows if not row % 2])


def contexts(chain: OperatorChain) -> dict[str, OperatorContext]:
    connector = ConnectorContext("job", "job", "own", 0, 1, 1, ManualClock())
    return {id: OperatorContext(OperatorLocation(id, 0, 1), connector) for id in chain.ids}


def a_source() -> LocatedSource:
    """A source, opened with one split."""
    location = OperatorLocation("numbers", 0, 1)
    connector = ConnectorContext("job", "job", "numbers", 0, 1, 1, ManualClock())
    generator = GeneratorSource(lambda n: n)
    source = SourceOperator(generator)
    source.open(OperatorContext(location, connector), generator.splits(1))
    return location, source


def two(fail_on: str = "", opened: bool = True) -> tuple[OperatorChain, list[str], list[tuple[int, object]]]:
    log: list[str] = []
    emitted: list[tuple[int, object]] = []
    operators = [Recorder("first", log, fail_on), Recorder("second", log, fail_on)]
    chain = OperatorChain(
        [(OperatorLocation(o.name, 0, 1), o) for o in operators],
        lambda index, tag, batch: emitted.extend((index, row) for row in batch.rows),  # type: ignore[union-attr]
        lambda watermark: log.append(f"{watermark.timestamp} left"),
    )
    if opened:
        chain.open(contexts(chain))
        log.clear()
    return chain, log, emitted


def test_a_chain_maps_filters_and_reduces(open_chain):
    running = open_chain(
        MapOperator(lambda n: (n % 3, n)),
        FilterOperator(lambda pair: pair[0] != 0),
        KeyedReduceOperator(lambda pair: pair[0], lambda a, b: (a[0], a[1] + b[1])),
    )
    for _ in running.chain.process(RowBatch([1, 2, 3, 4, 5])):
        pass
    assert running.rows() == [(1, 1), (2, 2), (1, 5), (2, 7)]
    assert {index for index, _, _ in running.emitted} == {2}


def test_it_can_be_left_after_every_batch_that_leaves_and_goes_on_from_there():
    chain, log, emitted = two()
    work = chain.process(RowBatch([1, 2]))
    next(work)
    assert (emitted, log, chain.is_busy) == ([(1, 1)], ["first row 1", "second row 1"], True)
    assert list(work) == [None]
    assert emitted == [(1, 1), (1, 2)]
    assert not chain.is_busy


def test_one_batch_goes_all_the_way_down_before_the_next_is_made():
    chain, log, _ = two()
    list(chain.process(RowBatch([1, 2])))
    assert log == ["first row 1", "second row 1", "first row 2", "second row 2"]


def test_an_empty_chain_passes_batches_on_as_the_source_before_it():
    emitted = []
    chain = OperatorChain([], lambda *emission: emitted.append(emission), emitted.append, source=a_source())
    batch = RowBatch([1])
    assert [*chain.process(batch), *chain.process_time(Watermark(1)), *chain.end_of_data()] == [None]
    assert emitted == [(0, None, batch), Watermark(1)]


class Forked:
    """A chain of `head -> (left -> leaf, right)` that records what its operators do and what leaves it."""

    def __init__(self, head: Operator, left: Operator, right: Operator, *, emitting: Sequence[int]) -> None:
        self.emitted: list[tuple[int, object]] = []
        names = ("head", "left", "leaf", "right")
        operators = (head, left, MapOperator(lambda row: row), right)
        self.times: list[object] = []
        self.chain = OperatorChain(
            [
                (OperatorLocation(name, 0, 1), operator)
                for name, operator in zip(names, operators, strict=True)
            ],
            lambda index, tag, batch: self.emitted.append((index, list(batch.rows))),  # type: ignore[union-attr]
            self.times.append,
            producers=[-1, 0, 1, 0],
            emitting=emitting,
        )
        self.chain.open(contexts(self.chain))


def test_all_readers_of_a_fork_get_each_batch_before_the_next_one_is_made():
    log: list[str] = []
    forked = Forked(Recorder("head", log), Recorder("left", log), Recorder("right", log), emitting=[2, 3])
    log.clear()
    list(forked.chain.process(RowBatch([1, 2])))
    assert log == [
        *("head row 1", "left row 1", "right row 1", "head row 2", "left row 2", "right row 2"),
    ]
    assert forked.emitted == [(2, [1]), (3, [1]), (2, [2]), (3, [2])]
    counts = forked.chain.statistics()
    assert {name: (c.records_in, c.records_out) for name, c in counts.items()} == dict.fromkeys(
        counts, (2, 2)
    )


def test_an_output_with_an_edge_and_readers_leaves_the_chain_and_reaches_them():
    forked = Forked(MapOperator(abs), FilterOperator(lambda n: n > 2), MapOperator(str), emitting=[0, 2, 3])
    list(forked.chain.process(RowBatch([-1, 3])))
    assert forked.emitted == [(0, [1, 3]), (2, [3]), (3, ["1", "3"])]


def test_a_watermark_passes_all_branches_and_leaves_once():
    log: list[str] = []
    forked = Forked(Recorder("head", log), Recorder("left", log), Recorder("right", log), emitting=[2, 3])
    log.clear()
    list(forked.chain.process_time(Watermark(7)))
    assert log == [
        *("head watermark 7", "left row head@7", "right row head@7"),
        *("left watermark 7", "right watermark 7"),
    ]
    assert forked.times == [Watermark(7)]


def test_readers_of_a_fork_do_not_see_what_another_one_changes_in_a_record():
    def grown(row: list[int]) -> list[int]:
        row.append(0)
        return row

    forked = Forked(MapOperator(lambda n: [n]), MapOperator(grown), MapOperator(grown), emitting=[0, 2, 3])
    list(forked.chain.process(RowBatch([1])))
    assert forked.emitted == [(0, [[1]]), (2, [[1, 0]]), (3, [[1, 0]])]


def test_an_edge_of_a_source_does_not_send_what_a_reader_changes_in_a_record():
    def grown(row: list[int]) -> list[int]:
        row.append(0)
        return row

    emitted: list[tuple[int, object]] = []
    chain = OperatorChain(
        [(OperatorLocation("grown", 0, 1), MapOperator(grown))],
        lambda index, tag, batch: emitted.append((index, batch.rows)),  # type: ignore[union-attr]
        lambda _: None,
        a_source(),
        emitting=[-1, 0],
    )
    chain.open(contexts(chain))
    list(chain.process(RowBatch([[1]])))
    assert emitted == [(0, [[1]]), (1, [[1, 0]])]


@pytest.mark.parametrize(("only_reads", "copies"), [(False, 2), (True, 0)])
def test_all_readers_but_the_last_get_copies_if_a_function_could_change_records(
    only_reads: bool, copies: int
) -> None:
    class Counted:
        copies = 0

        def __deepcopy__(self, memo: object) -> object:
            Counted.copies += 1
            return self

    emitted: list[object] = []
    operators = [(OperatorLocation(name, 0, 1), Passing()) for name in ("head", "left", "right")]
    for _, operator in operators:
        operator.isolates = not only_reads
    chain = OperatorChain(
        operators,
        lambda index, tag, batch: emitted.append(batch),
        lambda _: None,
        producers=[-1, 0, 0],
        emitting=[0, 1, 2],
    )
    batch = RowBatch([Counted()])
    list(chain.process(batch))
    assert (len(emitted), Counted.copies) == (3, copies)
    assert emitted[-1] is batch


class Unique:
    """A record that can't be copied."""

    def __deepcopy__(self, memo: object) -> object:
        msg = "there is only one"
        raise ValueError(msg)


class Passing(Operator):
    def process(self, batch: Batch) -> Iterator[Output]:
        yield batch


@pytest.mark.parametrize("emitting", [[2, 3], [0, 2, 3]], ids=["to readers", "to an edge and readers"])
def test_a_record_that_can_not_be_copied_for_a_fork_is_an_error_of_the_operator_before_it(
    emitting: list[int],
) -> None:
    forked = Forked(Passing(), Passing(), Passing(), emitting=emitting)
    with pytest.raises(OperatorError, match=r"operator 'head'.*Unique can't be copied.*there is only one"):
        list(forked.chain.process(RowBatch([Unique()])))
    assert not forked.chain.is_busy


def test_a_record_that_can_not_be_copied_for_the_readers_of_a_source_is_an_error_of_the_source() -> None:
    operators = [(OperatorLocation(name, 0, 1), Passing()) for name in ("left", "right")]
    chain = OperatorChain(operators, lambda *_: None, lambda _: None, a_source(), producers=[-1, -1])
    with pytest.raises(OperatorError, match=r"operator 'numbers'.*Unique can't be copied"):
        list(chain.process(RowBatch([Unique()])))


def test_the_end_of_data_passes_the_last_outputs_of_a_fork_to_all_branches():
    class Last(Operator):
        def process(self, batch: Batch) -> Iterator[Output]:
            return iter(())

        def end_of_data(self) -> Iterator[Output]:
            yield RowBatch([9])

    forked = Forked(Last(), MapOperator(lambda n: n), MapOperator(str), emitting=[2, 3])
    list(forked.chain.end_of_data())
    assert forked.emitted == [(2, [9]), (3, ["9"])]


def test_the_source_takes_part_in_snapshots_and_statistics_and_is_closed_first():
    log: list[str] = []
    location, source = a_source()
    chain = OperatorChain(
        [(OperatorLocation("op", 0, 1), Recorder("op", log))], *[lambda *_: None] * 2, (location, source)
    )
    chain.open(contexts(chain))
    source.poll(7)
    lists = chain.snapshot(1)
    assert isinstance(lists["numbers"]["splits"], SavedList)
    assert set(lists) == {"numbers", "op"}
    assert chain.statistics()["numbers"].records_out == 7
    with pytest.raises(PenstockError, match=r"GeneratorSource: handle_event failed: .*has no coordinator"):
        chain.handle_event("numbers", "an event")
    chain.close()
    assert log[-1] == "op close"
    with pytest.raises(AssertionError, match="open"):
        source.poll(1)


def test_side_outputs_leave_with_the_index_of_their_operator(open_chain):
    running = open_chain(Splitter(), MapOperator(lambda n: n * 10), source=a_source())
    list(running.chain.process(RowBatch([1, 2, 3])))
    assert [(i, tag, list(batch.rows)) for i, tag, batch in running.emitted] == [
        (1, "odd", [1, 3]),
        (2, None, [20]),
    ]


def test_a_watermark_reaches_an_operator_after_what_it_fired_above():
    chain, log, emitted = two()
    list(chain.process_time(Watermark(7)))
    assert log == ["first watermark 7", "second row first@7", "second watermark 7", "7 left"]
    assert emitted == [(1, "first@7"), (1, "second@7")]


def test_the_end_of_data_reaches_an_operator_after_the_last_rows_from_above():
    chain, log, emitted = two()
    list(chain.end_of_data())
    assert log == ["first end", "second row first-end", "second end"]
    assert emitted == [(1, "first-end"), (1, "second-end")]


def test_operators_are_opened_from_the_tail_and_closed_from_the_tail():
    chain, log, _ = two(opened=False)
    chain.open(contexts(chain))
    chain.close()
    assert log == ["second open", "first open", "second close", "first close"]


def test_notices_and_snapshots_go_from_head_to_tail():
    chain, log, _ = two()
    states = chain.snapshot(4)
    chain.notify_checkpoint_complete(permit_of_completed_checkpoint(4, 1))
    chain.notify_checkpoint_aborted(5)
    assert {name: list(state["name"].values) for name, state in states.items()} == {
        "first": ["first"],
        "second": ["second"],
    }
    assert log == [
        "first snapshot 4",
        "second snapshot 4",
        "first completed 4",
        "second completed 4",
        "first aborted 5",
        "second aborted 5",
    ]


def test_all_operators_are_closed_when_closing_fails_and_both_failures_are_told():
    chain, log, _ = two(fail_on="close")
    with pytest.raises(OperatorError, match="second can't close") as raised:
        chain.close()
    assert log == ["second close", "first close"]
    assert "first can't close" in failure_details(raised.value)
    chain.close()
    assert len(log) == 2


def test_ctrl_c_while_an_operator_closes_is_raised_before_a_failure_of_another_one():
    def interrupted() -> None:
        raise KeyboardInterrupt

    chain, _, _ = two(fail_on="close")
    chain.operators[0].close = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt) as raised:
        chain.close()
    assert any("second can't close" in note for note in raised.value.__notes__)


def test_only_operators_whose_open_was_tried_are_closed():
    chain, log, _ = two(fail_on="open", opened=False)
    with pytest.raises(OperatorError, match=r"operator 'second' .*second can't open"):
        chain.open(contexts(chain))
    chain.close()
    assert log == ["second open", "second close"]


def test_a_failure_below_is_not_blamed_on_the_operator_above():
    chain, _, _ = two(fail_on="row first@3")
    with pytest.raises(OperatorError) as raised:
        list(chain.process_time(Watermark(3)))
    assert raised.value.location.operator == "second"
    assert not chain.is_busy


def test_no_snapshot_is_taken_in_the_middle_of_a_batch():
    chain, _, _ = two()
    work = chain.process(RowBatch([1, 2]))
    next(work)
    with pytest.raises(RuntimeError, match="checkpoint 9 was taken in the middle of a batch"):
        chain.snapshot(9)
    with pytest.raises(RuntimeError, match="before the last was finished"):
        next(chain.process(RowBatch([3])))
    work.close()
    assert set(chain.snapshot(9)) == {"first", "second"}


def test_a_generator_of_the_users_that_is_left_is_closed(open_chain):
    ended = []

    def forever(_row):
        try:
            while True:
                yield 1
        finally:
            ended.append("closed")

    running = open_chain(FlatMapOperator(forever), MapOperator(str))
    work = running.chain.process(RowBatch(["go"]))
    next(work)
    work.close()
    assert ended == ["closed"]
    assert not running.chain.is_busy


def test_a_generator_above_a_failure_is_closed_while_the_failure_is_still_held(open_chain):
    ended = []

    def forever(_row):
        try:
            while True:
                yield 0
        finally:
            ended.append("closed")

    running = open_chain(FlatMapOperator(forever), MapOperator(lambda n: 1 // n))
    with pytest.raises(OperatorError, match="'op1'") as raised:
        list(running.chain.process(RowBatch(["go"])))
    assert ended == ["closed"]
    assert raised.value.__traceback__ is not None


def test_what_can_not_be_sent_is_the_fault_of_the_operator_that_emitted_it(open_chain):
    def refuse(_index, _tag, _batch):
        msg = "a lock can't be encoded"
        raise CodecError(msg)

    chain = OperatorChain([(OperatorLocation("locks", 0, 1), MapOperator(str))], refuse, refuse)
    with pytest.raises(OperatorError, match=r"'locks'.*sending its output failed: a lock can't be encoded"):
        list(chain.process(RowBatch([1])))


@pytest.mark.parametrize("garbage", [None, [1, 2], Tagged("side", [1])])  # type: ignore[arg-type]
def test_an_operator_that_yields_something_else_is_told_so(open_chain, garbage):
    class Wrong(Operator):
        def process(self, batch: Batch) -> Iterator[Output]:
            yield garbage

    running = open_chain(Wrong(), MapOperator(str))
    with pytest.raises(OperatorError, match=r"'op0'.*yields RowBatch, ArrowBatch or Tagged, not"):
        list(running.chain.process(RowBatch([1])))
    assert running.emitted == []


def test_statistics_count_what_each_operator_took_and_gave(open_chain):
    running = open_chain(FilterOperator(lambda n: n > 1), FlatMapOperator(lambda n: [n] * n))
    list(running.chain.process(RowBatch([1, 2, 3])))
    counted = running.chain.statistics()
    assert [(s.records_in, s.records_out) for s in counted.values()] == [(3, 2), (2, 5)]
    assert list(counted) == ["op0", "op1"]


class Hollow(Recorder):
    """Yields only empty batches."""

    def process(self, batch: Batch) -> Iterator[Output]:
        self.note("batch")
        yield RowBatch([])
        yield Tagged("side", RowBatch([]))


def test_no_operator_receives_an_empty_batch_and_none_leaves_the_chain() -> None:
    log: list[str] = []
    emitted: list[object] = []
    operators = [Hollow("first", log), Hollow("second", log)]
    chain = OperatorChain(
        [(OperatorLocation(o.name, 0, 1), o) for o in operators],
        lambda *emission: emitted.append(emission),
        emitted.append,
    )
    chain.open(contexts(chain))
    for batch in (RowBatch([]), RowBatch([1, 2])):
        for _ in chain.process(batch):
            pass
    assert log[2:] == ["first batch"]
    assert emitted == []
    assert [(s.records_in, s.records_out) for s in chain.statistics().values()] == [(2, 0), (0, 0)]
