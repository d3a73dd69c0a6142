"""Operators of users' own, as `stream.transform` runs them: formats, state, keys and what they may yield."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock import DataStream, OperatorError
from penstock.operators import ArrowBatch, Operator, OperatorContext, RowBatch, Watermark
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.operators.operator import Tagged
from penstock.state import RawState
from penstock.testing import HarnessSnapshot, OperatorHarness

Build = Callable[[DataStream[Any]], object]


def plain(operator: Operator) -> Build:
    return lambda stream: stream.transform("own", operator)


def keyed(operator: Operator, key: Callable[[Any], Any] = lambda row: row[0]) -> Build:
    return lambda stream: stream.key_by(key).transform("own", operator)


class Passes(Operator):
    """Passes everything on."""

    def process(self, batch: Any) -> Iterator[Any]:
        yield batch


class Yields(Operator):
    """Yields what a test wants for every batch."""

    def __init__(self, *outputs: Any, returns: Any = None) -> None:
        self.outputs, self.returns = outputs, returns

    def process(self, batch: Any) -> Any:
        return iter(self.outputs) if self.returns is None else self.returns


class Formats(Operator):
    """Says what it gets."""

    def __init__(self, batch_format: Any) -> None:
        self.batch_format = batch_format  # type: ignore[misc] # one class for all three

    def process(self, batch: Any) -> Iterator[RowBatch]:
        yield RowBatch([(type(batch).__name__, len(batch))])


class Totals(Operator):
    """Counts each key's rows; emits at the end of event time."""

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.count = context.value_state("count", default=0, of_type=int)
        self.rows = context.counter("rows")

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        out = []
        for key, _ in self.context.by_key(batch):
            self.count.update(self.count.value() + 1)
            self.rows.increment()
            out.append((key, self.count.value()))
        yield RowBatch(out)

    def process_watermark(self, watermark: Watermark) -> Iterator[RowBatch]:
        self.context.set_current_key("a")
        yield RowBatch([("a", self.count.value(), watermark.timestamp)])


class AllKinds(Operator):
    """Keeps what it has seen in list state of all three modes and in raw operator state."""

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.split = context.operator_list_state("split")
        self.union = context.operator_list_state("union", "union")
        self.shared = context.operator_list_state("shared", mode="broadcast")
        self.pieces = list(context.raw.operator)

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        for row in batch.rows:
            self.split.add(row)
            self.pieces.append(str(row).encode())
        self.union.update([(self.context.subtask, sum(self.split.get()))])
        self.shared.update(["rule"])
        yield RowBatch([])

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return RawState(self.pieces)

    def end_of_data(self) -> Iterator[RowBatch]:
        pieces = [piece.decode() for piece in self.pieces]
        yield RowBatch([(self.split.get(), self.union.get(), self.shared.get(), pieces)])


class RawKeys(Passes):
    """Keeps rows by key group, encoded by itself."""

    def open(self, context: OperatorContext) -> None:
        self.groups = {**dict.fromkeys(context.key_groups, b""), **context.raw.keyed}

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return RawState(keyed={group: data + b"x" for group, data in self.groups.items()})


ARROW = ArrowBatch(pa.RecordBatch.from_pydict({"n": [1, 2, 3]}))
ROWS = RowBatch([{"n": 1}, {"n": 2}], [5, 6])


@pytest.mark.parametrize(
    ("batch_format", "of_rows", "of_arrow"),
    [
        ("rows", ("RowBatch", 2), ("RowBatch", 3)),
        ("arrow", ("ArrowBatch", 2), ("ArrowBatch", 3)),
        ("both", ("RowBatch", 2), ("ArrowBatch", 3)),
    ],
)
def test_an_operator_gets_the_batches_that_it_declares(
    batch_format: str, of_rows: Any, of_arrow: Any
) -> None:
    with OperatorHarness.of(plain(Formats(batch_format))) as harness:
        assert harness.push_batch(ROWS) == [of_rows]
        assert harness.push_batch(ARROW) == [of_arrow]


def test_rows_that_are_no_dicts_can_not_become_arrow() -> None:
    message = (
        r"operator Formats.process \(.*test_user_operator.py:\d+\) failed: "
        r'batch_format = "arrow" needs .* rows that are dicts, but got 7'
    )
    with (
        OperatorHarness.of(plain(Formats("arrow"))) as harness,
        pytest.raises(OperatorError, match=message),
    ):
        harness.push([7])


@pytest.mark.parametrize("output", [[1, 2], "text", 7, {"n": 1}, None, Tagged("side", RowBatch([1]))])
def test_what_is_yielded_and_is_no_batch_names_the_operator_and_the_line(output: Any) -> None:
    with (
        OperatorHarness.of(plain(Yields(output))) as harness,
        pytest.raises(OperatorError, match=r"'own' .*Yields.process \(.*_operator.py:\d+\)") as caught,
    ):
        harness.push([1])
    assert f"process yielded {output!r}"[:20] in str(caught.value)
    assert "which is not a batch: yield RowBatch or ArrowBatch" in str(caught.value)


@pytest.mark.parametrize("returned", [RowBatch([1]), 7])
def test_a_batch_that_is_returned_is_not_lost_in_silence(returned: Any) -> None:
    with (
        OperatorHarness.of(plain(Yields(returns=returned))) as harness,
        pytest.raises(OperatorError, match=r"process returned .*; yield batches instead"),
    ):
        harness.push([1])


def test_a_method_without_a_yield_emits_nothing_and_a_list_of_batches_is_as_good_as_a_generator() -> None:
    class Silent(Operator):
        def process(self, batch: Any) -> Any:
            return None

    with OperatorHarness.of(plain(Silent())) as harness:
        assert harness.push([1]) == []
        assert harness.end_of_data() == []
    with OperatorHarness.of(plain(Yields(returns=[RowBatch([1]), ARROW]))) as harness:
        assert harness.push([1]) == [1, {"n": 1}, {"n": 2}, {"n": 3}]


def test_watermarks_are_for_operators_that_declare_them() -> None:
    class Marks(Yields):
        makes_watermarks = True

    with (
        OperatorHarness.of(plain(Yields(Watermark(5)))) as harness,
        pytest.raises(OperatorError, match="does not set makes_watermarks = True"),
    ):
        harness.push([1])
    with OperatorHarness.of(plain(Marks(RowBatch([1]), Watermark(5)))) as harness:
        assert harness.push([1]) == [1]
        assert harness.watermarks == (5,)


def test_each_key_has_its_own_state_which_a_restore_gives_back_at_another_parallelism() -> None:
    with OperatorHarness.of(keyed(Totals())) as harness:
        assert harness.push([("a", 1), ("b", 1), ("a", 2)]) == [("a", 1), ("b", 1), ("a", 2)]
        assert harness.push_watermark(9) == [("a", 2, 9)]
        assert harness.statistics().counters == {"rows": 3}
        assert (harness.statistics().records_in, harness.statistics().records_out) == (3, 4)
        snapshot = harness.snapshot()
    found: dict[str, int] = {}
    for subtask in range(3):
        with OperatorHarness.of(
            keyed(Totals()), subtask=subtask, parallelism=3, restored=[snapshot]
        ) as harness:
            found.update(harness.state("count"))
    assert found == {"a": 2, "b": 1}


def test_keyed_state_has_no_value_between_rows_and_other_subtasks_keys_are_refused() -> None:
    class Late(Totals):
        def end_of_data(self) -> Iterator[RowBatch]:
            yield RowBatch([self.count.value()])

        def process_watermark(self, watermark: Watermark) -> Iterator[RowBatch]:
            foreign = next(key for key in map(str, range(100)) if not harness.owns(key))
            self.context.set_current_key(foreign)
            yield RowBatch([])

    with OperatorHarness.of(keyed(Late()), parallelism=2) as harness:
        harness.push([("a", 1)] if harness.owns("a") else [("b", 1)])
        with pytest.raises(OperatorError, match="'count' was used outside the processing of a record"):
            harness.end_of_data()
        with pytest.raises(OperatorError, match="belongs to another subtask"):
            harness.push_watermark(1)


class Keeps(Totals):
    """Passes rows by key to which a test adds what does not belong there."""

    def __init__(self, *more: Any) -> None:
        self.more = more

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        rows = [*batch.rows, *((row, 1) for row in self.more)]
        for _ in self.context.by_key(RowBatch(rows)):
            self.count.update(self.count.value() + 1)
        yield batch


def owned(harness: OperatorHarness) -> list[int]:
    return [number for number in range(20) if harness.owns(number)]


def test_by_key_refuses_rows_of_another_subtasks_keys_at_the_line_that_gave_them() -> None:
    with OperatorHarness.of(keyed(Keeps(*range(20))), parallelism=2) as harness:
        foreign = next(number for number in range(20) if not harness.owns(number))
        message = (
            rf"operator Keeps.process \(.*_operator.py:\d+\) failed: key {foreign} belongs to another "
            r"subtask, which would not find this state: give by_key the rows that process received, "
            rf"at .*test_user_operator.py:\d+ in process, on record \({foreign}, 1\)"
        )
        with pytest.raises(OperatorError, match=message):
            harness.push([(owned(harness)[0], 1)])
        assert harness.state("count") == {}


def test_by_key_takes_rows_that_were_kept_if_they_are_the_subtasks_own() -> None:
    with OperatorHarness.of(keyed(Keeps("a", "a", 1, True))) as harness:
        harness.push([("a", 1), ("b", 1)])
        harness.push([("b", 1)])
        assert harness.state("count") == {"a": 5, "b": 2, 1: 4}


def test_a_key_that_is_another_one_in_this_process_is_the_fault_of_the_key_selector() -> None:
    with (
        OperatorHarness.of(keyed(Totals()), parallelism=2) as harness,
        pytest.raises(OperatorError, match=r"key_by function lambda .* the same key in every process"),
    ):
        harness.push([(number, 1) for number in range(20)])


@pytest.mark.parametrize("key", [lambda row: [row], lambda row: {}])
def test_what_can_not_be_a_key_is_the_fault_of_the_key_selector(key: Callable[[Any], Any]) -> None:
    with (
        OperatorHarness.of(keyed(Totals(), key)) as harness,
        pytest.raises(OperatorError, match="key_by function lambda"),
    ):
        harness.push([("a", 1)])


def test_errors_name_the_row_that_by_key_gave_last() -> None:
    class Divides(Totals):
        def process(self, batch: RowBatch) -> Iterator[RowBatch]:
            yield RowBatch([1 // row[1] for _, row in self.context.by_key(batch)])

    with (
        OperatorHarness.of(keyed(Divides())) as harness,
        pytest.raises(OperatorError, match=r"ZeroDivisionError.*on record \('b', 0\)"),
    ):
        harness.push([("a", 1), ("b", 0)])


@pytest.mark.parametrize("what", ["by_key", "set_current_key", "value_state", "key_groups"])
def test_a_stream_without_keys_has_no_keyed_state(what: str) -> None:
    class Asks(Passes):
        def open(self, context: OperatorContext) -> None:
            asked = getattr(context, what)
            asked("name")

    with pytest.raises(OperatorError, match=rf"{what}.* needs a keyed stream: call key_by\(function\)"):
        OperatorHarness.of(plain(Asks()))


def two_old_subtasks() -> list[HarnessSnapshot]:
    snapshots = []
    for subtask, rows in enumerate([[1, 2, 3], [4]]):
        with OperatorHarness.of(plain(AllKinds()), subtask=subtask, parallelism=2) as harness:
            harness.push(rows)
            snapshots.append(harness.snapshot())
    return snapshots


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_list_states_and_raw_operator_state_are_shared_out_as_their_modes_say(parallelism: int) -> None:
    old, split, pieces = two_old_subtasks(), [], []
    for subtask in range(parallelism):
        with OperatorHarness.of(
            plain(AllKinds()), subtask=subtask, parallelism=parallelism, restored=old
        ) as harness:
            ((mine, union, shared, raw),) = harness.end_of_data()
        assert union == [(0, 6), (1, 4)]
        assert shared == ["rule"]
        split += mine
        pieces += raw
    assert Counter(split) == Counter([1, 2, 3, 4])
    assert Counter(pieces) == Counter("1234")


class AsksLate(Passes):
    """Asks for its lists and its raw state when the first row comes."""

    def __init__(self, modes: dict[str, Any] | None = None) -> None:
        self.modes = modes or {"split": "split_distribute", "union": "union", "shared": "broadcast"}

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.found: list[Any] | None = None

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        if self.found is None:
            lists = [self.context.operator_list_state(name, mode) for name, mode in self.modes.items()]
            self.pieces = list(self.context.raw.operator)
            self.found = [sorted(each.get()) for each in lists]
        yield RowBatch([(*self.found, [piece.decode() for piece in self.pieces])])

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return RawState() if self.found is None else RawState(self.pieces)


def restored_again(old: list[HarnessSnapshot], parallelism: int, asking: tuple[int, ...] = ()) -> Any:
    """Snapshots of subtasks of which only some have asked for what they got."""
    snapshots = []
    for subtask in range(parallelism):
        with OperatorHarness.of(
            plain(AsksLate()), subtask=subtask, parallelism=parallelism, restored=old
        ) as harness:
            if subtask in asking:
                harness.push(["ask"])
            snapshots.append(harness.snapshot())
    return snapshots


@pytest.mark.parametrize("parallelisms", [(2,), (1, 3), (3, 1, 2), (2, 2, 2)])
def test_lists_and_raw_state_that_nobody_has_asked_for_stay_in_every_snapshot(parallelisms: Any) -> None:
    snapshots, split, pieces = two_old_subtasks(), [], []
    for parallelism in parallelisms:
        snapshots = restored_again(snapshots, parallelism)
    for subtask in range(2):
        with OperatorHarness.of(
            plain(AsksLate()), subtask=subtask, parallelism=2, restored=snapshots
        ) as harness:
            ((mine, union, shared, raw),) = harness.push(["ask"])
        assert union == [(0, 6), (1, 4)], "neither less nor twice"
        assert shared == ["rule"]
        split += mine
        pieces += raw
    assert Counter(split) == Counter([1, 2, 3, 4])
    assert Counter(pieces) == Counter("1234")


def test_a_union_list_that_one_subtask_has_brought_up_to_date_is_not_multiplied_by_the_others() -> None:
    class Replaces(AsksLate):
        def process(self, batch: RowBatch) -> Iterator[RowBatch]:
            self.context.operator_list_state("union", "union").update([(self.context.subtask, "new")])
            yield batch

    old, snapshots = two_old_subtasks(), []
    for subtask in range(2):
        with OperatorHarness.of(plain(Replaces()), subtask=subtask, parallelism=2, restored=old) as harness:
            if subtask == 0:
                harness.push(["ask"])
            snapshots.append(harness.snapshot())
    with OperatorHarness.of(plain(AllKinds()), restored=snapshots) as harness:
        ((_, union, *_),) = harness.end_of_data()
    assert union == [(0, "new"), (1, 4)]


def test_what_was_asked_for_is_what_the_operator_makes_of_it() -> None:
    (snapshot,) = restored_again(two_old_subtasks(), 1, asking=(0,))
    assert len(snapshot.lists["split"][1]) == 4
    assert list(snapshot.raw.operator) == [b"1", b"2", b"3", b"4"]


def test_a_list_that_was_saved_with_another_mode_is_refused() -> None:
    with (
        OperatorHarness.of(plain(AsksLate({"split": "union"})), restored=two_old_subtasks()) as harness,
        pytest.raises(
            OperatorError,
            match=r"'split' was saved with the mode 'split_distribute' and can't have",
        ),
    ):
        harness.push(["ask"])


def test_raw_state_of_a_key_group_is_not_replaced_unread() -> None:
    class Forgets(Passes):
        def __init__(self, groups: Any) -> None:
            self.groups = groups

        def snapshot_raw(self, checkpoint_id: int) -> RawState:
            return RawState(keyed=dict.fromkeys(self.groups, b"new"))

    with OperatorHarness.of(keyed(Forgets([1, 2])), max_parallelism=6) as harness:
        first = harness.snapshot()
    with OperatorHarness.of(keyed(Forgets([3])), max_parallelism=6, restored=[first]) as harness:
        assert dict(harness.snapshot().raw.keyed) == dict.fromkeys([1, 2, 3], b"new")
    with (
        OperatorHarness.of(keyed(Forgets([2])), max_parallelism=6, restored=[first]) as harness,
        pytest.raises(
            OperatorError, match=r"key group 2, but the operator has not read .*: read context.raw in open"
        ),
    ):
        harness.snapshot()


def test_raw_state_that_changes_after_the_snapshot_is_in_the_next_one() -> None:
    with OperatorHarness.of(plain(AllKinds())) as harness:
        harness.push([1])
        first = harness.snapshot()
        harness.push([2])
        second = harness.snapshot()
    assert [list(s.raw.operator) for s in (first, second)] == [[b"1"], [b"1", b"2"]]


def test_raw_keyed_state_goes_with_its_key_groups() -> None:
    with OperatorHarness.of(keyed(RawKeys()), max_parallelism=6) as harness:
        first = harness.snapshot()
    snapshots = []
    for subtask in range(2):
        with OperatorHarness.of(
            keyed(RawKeys()), subtask=subtask, parallelism=2, max_parallelism=6, restored=[first]
        ) as harness:
            snapshots.append(harness.snapshot())
    assert [dict(s.raw.keyed) for s in snapshots] == [
        dict.fromkeys([0, 1, 2], b"xx"),
        dict.fromkeys([3, 4, 5], b"xx"),
    ]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (RawState(keyed={0: b"", 5: b""}), "key group 5 belongs to another subtask; this one owns 0 to 2"),
        (RawState(["text"]), "raw state is bytes, not 'text' of type str"),  # type: ignore[list-item]
        (b"bytes", "snapshot_raw returned b'bytes' of type bytes; return a RawState"),
    ],
)
def test_raw_state_that_could_not_be_restored_is_refused(raw: Any, message: str) -> None:
    class Wrong(Passes):
        def snapshot_raw(self, checkpoint_id: int) -> RawState:
            return raw  # type: ignore[no-any-return]

    with (
        OperatorHarness.of(keyed(Wrong()), parallelism=2, max_parallelism=6) as harness,
        pytest.raises(OperatorError, match=message),
    ):
        harness.snapshot()


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        (["uniom"], "mode is one of .*; did you mean 'union'"),
        (["union", "broadcast"], "already has the mode 'union' and can't have 'broadcast'"),
    ],
)
def test_a_list_state_has_one_known_mode(modes: list[Any], message: str) -> None:
    class Asks(Passes):
        def open(self, context: OperatorContext) -> None:
            for mode in modes:
                context.operator_list_state("seen", mode)

    with pytest.raises(OperatorError, match=message) as caught:
        OperatorHarness.of(plain(Asks()))
    assert isinstance(caught.value.__cause__, ConfigurationError)


def test_a_snapshot_that_returns_something_else_is_refused() -> None:
    class Wrong(Passes):
        def snapshot(self, checkpoint_id: int) -> Any:
            return [1, 2]

    with (
        OperatorHarness.of(plain(Wrong())) as harness,
        pytest.raises(OperatorError, match=r"snapshot returned \[1, 2\]; update the list states"),
    ):
        harness.snapshot()


def test_subtasks_share_no_object_and_the_one_that_was_given_stays_as_it_was() -> None:
    given = AllKinds()
    build = plain(given)
    with OperatorHarness.of(build) as one, OperatorHarness.of(build) as other:
        one.push([1])
        ((mine, *_),) = other.end_of_data()
    assert mine == []
    assert vars(given) == {}


def test_notices_reach_the_operator() -> None:
    class Notified(Passes):
        def open(self, context: OperatorContext) -> None:
            self.told: list[Any] = []

        def notify_checkpoint_complete(self, permit: Any) -> None:
            self.told.append(("complete", permit.checkpoint_id))

        def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
            self.told.append(("aborted", checkpoint_id))

        def end_of_data(self) -> Iterator[RowBatch]:
            yield RowBatch(self.told)

    with OperatorHarness.of(plain(Notified())) as harness:
        harness.abort_checkpoint(harness.snapshot())
        harness.complete_checkpoint(harness.snapshot())
        assert harness.end_of_data() == [("aborted", 1), ("complete", 2)]


def test_an_event_handler_that_yields_or_returns_is_refused_because_what_it_emits_would_be_lost() -> None:
    class Emits(Passes):
        def handle_event(self, event: Any) -> Any:
            yield RowBatch([event])

    class Returns(Passes):
        def handle_event(self, event: Any) -> Any:
            return [RowBatch([event])]

    for operator, what in [(Emits(), "yields, so it never runs"), (Returns(), r"returned \[RowBatch.*")]:
        message = (
            rf"\.handle_event \(.*_operator.py:\d+\) failed: handle_event {what}. It can't emit: keep "
            "the records, and emit them in process or prepare_snapshot_pre_barrier"
        )
        with (
            OperatorHarness.of(plain(operator)) as harness,
            pytest.raises(OperatorError, match=message),
        ):
            harness.handle_event(1)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("open", lambda harness: None),
        ("notify_checkpoint_complete", lambda harness: harness.complete_checkpoint(harness.snapshot())),
        ("notify_checkpoint_aborted", lambda harness: harness.abort_checkpoint(harness.snapshot())),
        ("close", lambda harness: harness.close()),
    ],
)
def test_a_method_that_emits_nothing_and_would_never_run_is_refused(
    name: str, use: Callable[[OperatorHarness], None]
) -> None:
    def generator(self: Any, *arguments: Any) -> Any:
        yield RowBatch(["lost"])

    async def coroutine(self: Any, *arguments: Any) -> None:
        raise AssertionError("nobody waits for it")

    for method, what in [
        (generator, "yields, so it never runs"),
        (coroutine, "is declared `async def`"),
    ]:
        operator = type("Wrong", (Passes,), {name: method})()
        with pytest.raises(OperatorError, match=f"{name} {what}"):
            use(OperatorHarness.of(plain(operator)))
