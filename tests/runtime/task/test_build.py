"""Making a subtask: operators made, opened and restored, or everything released again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from subtask_setup import CHECKPOINTING, Log, LoggingSink, ScriptedSource, SubtaskSetup, rows

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError, OperatorError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.functions.record_functions import MapOperator
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.completed_checkpoint import OperatorRestore, TaskRestore
from penstock.runtime.snapshot.handles import InlineHandle, KeyGroupRange, RedistributionMode, SubtaskSnapshot
from penstock.runtime.snapshot.metadata import decode_atoms

MakeSubtask = Callable[..., SubtaskSetup]


def summing(log: Log, *script: Any) -> StreamEnvironment:
    """A source, and behind an exchange a reduce with a sink in one subtask `sum`."""
    env = StreamEnvironment("job", max_parallelism=8)
    stream = env.from_source("source", ScriptedSource(script, log), parallelism=1)
    stream.key_by(lambda pair: pair[0]).reduce("sum", lambda a, b: (a[0], a[1] + b[1])).sink(
        "sink", LoggingSink(log)
    )
    return env


def restore_of(
    snapshot: SubtaskSnapshot, checkpoint_id: int = 1, *, is_savepoint: bool = False
) -> TaskRestore:
    """The restore of a job with one subtask a vertex, from what that subtask acknowledged."""
    operators = {}
    for operator, state in snapshot.operators.items():
        lists = {}
        for handle in state.operator:
            assert isinstance(handle.state, InlineHandle)
            lists[handle.name] = decode_atoms(handle.state.data, "here")
        operators[operator] = OperatorRestore(state.keyed, lists)
    return TaskRestore(checkpoint_id, 1, operators, is_savepoint)


def summed(
    make_subtask: MakeSubtask, log: Log, kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> tuple[SubtaskSetup, Any]:
    """A subtask that has taken checkpoint 1 with state of two keys."""
    task = make_subtask(summing(log), "sum")
    barrier = CheckpointBarrier(1, 0.0, CheckpointOptions(kind))
    task.deliver(rows(("a", 1), ("b", 2), ("a", 3)), barrier, rows(("a", 100)))
    task.run()
    task.upload()
    return task, task.acknowledged[1]


def test_keyed_state_comes_back(make_subtask: MakeSubtask, log: Log) -> None:
    before, snapshot = summed(make_subtask, log)
    task = make_subtask(summing(log), "sum", restore=restore_of(snapshot), storage=before.storage)
    task.deliver(rows(("a", 1), ("c", 5)), CheckpointBarrier(2, 0.0, confirmed_id=1))
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_complete(2)
    assert log.calls[-1] == ("commit", [[("a", 5), ("c", 5)]], 2)


def test_without_checkpoints_the_keys_that_changed_are_not_collected(
    make_subtask: MakeSubtask, log: Log
) -> None:
    for config, kept in ((JobConfig(), 0), (CHECKPOINTING, 3)):
        task = make_subtask(summing(log), "sum", config)
        task.deliver(rows(("a", 1), ("b", 2), ("a", 3)), rows(("c", 1)))
        task.run()
        (state,) = task.subtask._parts.backends.values()
        assert len(state.table("reduce").entries) == 3
        assert len(state.table("reduce").changed) == kept


def test_a_job_without_checkpoints_goes_on_from_restored_state(make_subtask: MakeSubtask, log: Log) -> None:
    before, snapshot = summed(make_subtask, log)
    restore = restore_of(snapshot, is_savepoint=True)
    task = make_subtask(summing(log), "sum", JobConfig(), restore=restore, storage=before.storage)
    task.deliver(rows(("a", 1)))
    task.run()
    (state,) = task.subtask._parts.backends.values()
    assert state.table("reduce").entries == {"a": ("a", 5), "b": ("b", 2)}
    assert not state.table("reduce").changed


def test_restored_transactions_are_committed_when_the_subtask_opens(
    make_subtask: MakeSubtask, log: Log
) -> None:
    before, snapshot = summed(make_subtask, log)
    make_subtask(summing(log), "sum", restore=restore_of(snapshot), storage=before.storage)
    assert ("commit", [[("a", 1), ("b", 2), ("a", 4)]], 1) in log.calls


def test_state_of_a_checkpoint_is_built_on_and_that_of_a_savepoint_is_not(
    make_subtask: MakeSubtask, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    for kind in (SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT):
        before, snapshot = summed(make_subtask, log, kind)
        (handle,) = snapshot.operators["sum"].keyed
        assert len(handle.files) == 1
        restore = TaskRestore(1, 1, {"sum": OperatorRestore((handle,))}, kind.is_savepoint)
        task = make_subtask(summing(log), "sum", restore=restore, storage=before.storage)
        task.deliver(rows(("c", 5)), CheckpointBarrier(2, 0.0, confirmed_id=1))
        task.run()
        task.upload()
        (after,) = task.acknowledged[2].operators["sum"].keyed
        assert (handle.files[0] in after.files) is not kind.is_savepoint
        assert after.key_groups == KeyGroupRange(0, 7)


def test_damaged_state_is_told_with_its_file(
    make_subtask: MakeSubtask, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    before, snapshot = summed(make_subtask, log)
    (handle,) = snapshot.operators["sum"].keyed
    (file,) = (path for path in before.storage.list("") if "sum" in path)
    before.storage.put(file, b"damaged")
    restore = TaskRestore(1, 1, {"sum": OperatorRestore((handle,))})
    with pytest.raises(CorruptSnapshotError, match=file):
        make_subtask(summing(log), "sum", restore=restore, storage=before.storage)


def test_source_reads_fresh_splits_on_a_fresh_start_and_restored_ones_otherwise(
    make_subtask: MakeSubtask, log: Log
) -> None:
    script = [Polled(rows(("a", 1))), Polled(rows(("b", 1))), Polled(ready_at=9.0)]
    task = make_subtask(summing(log, *script), "source")
    task.subtask.step()
    snapshot = task.checkpoint(1)
    again = make_subtask(summing(log, *script), "source", restore=restore_of(snapshot))
    again.run_freely()
    assert again.rows() == [("b", 1)]
    assert [call for call in log.calls if call[0] == "reader"] == [("reader", [0]), ("reader", [1])]


def test_source_that_has_read_everything_reads_nothing_again(make_subtask: MakeSubtask, log: Log) -> None:
    restore = TaskRestore(1, 1, {"source": OperatorRestore((), {"splits": []})})
    task = make_subtask(summing(log, Polled(rows(("a", 1)))), "source", restore=restore)
    task.run_freely()
    assert task.rows() == []
    assert task.ends == 1


def test_operator_that_the_checkpoint_does_not_know_begins_fresh(make_subtask: MakeSubtask, log: Log) -> None:
    task = make_subtask(summing(log), "sum", restore=TaskRestore(1, 1, {}))
    task.deliver(rows(("a", 1)), CheckpointBarrier(2, 0.0, confirmed_id=1))
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_complete(2)
    assert log.calls == [("commit", [[("a", 1)]], 2)]


def test_state_handed_over_is_encoded_with_the_jobs_codec(make_subtask: MakeSubtask, log: Log) -> None:
    committed = ValueCodec().dumps((1, [("a", 1)]))
    restore = TaskRestore(1, 1, {"sink": OperatorRestore((), {"committables": [committed]})})
    make_subtask(summing(log), "sum", restore=restore)
    assert log.calls == [("commit", [[("a", 1)]], 1)]


# -- what fails ---------------------------------------------------------------------------------------------


class Opens(Operator):
    """Logs, and fails where it is set to."""

    def __init__(self, name: str, log: Log, fails: str = "") -> None:
        self._name, self._log, self._fails = name, log, fails

    def open(self, context: OperatorContext) -> None:
        self._do("open")

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self._log.calls.append(f"{what} {self._name}")
        if what in self._fails:
            msg = f"{self._name} fails to {what}"
            raise OSError(msg)


def chain_of(log: Log, **fails: str) -> StreamEnvironment:
    """A source and two operators in one subtask, built from factories."""
    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource([Polled(ready_at=9.0)], log))
    for name in ("first", "second"):
        stream = stream.map(lambda n: n)
        operator = stream._builder.graph.nodes[-1].operator
        assert operator.factory is not None
        object.__setattr__(operator, "factory", lambda name=name: Opens(name, log, fails.get(name, "")))
    stream.sink("sink", DiscardSink(), parallelism=2)
    return env


def test_operators_are_opened_from_the_last_to_the_first_and_the_source_at_the_end(
    make_subtask: MakeSubtask, log: Log
) -> None:
    make_subtask(chain_of(log), "source")
    assert log.calls == ["open second", "open first", ("reader", [0])]


def test_when_an_operator_can_not_be_opened_nothing_stays_open(make_subtask: MakeSubtask, log: Log) -> None:
    with pytest.raises(OperatorError, match=r"'map-1'.*first fails to open"):
        make_subtask(chain_of(log, first="open"), "source")
    assert log.calls == ["open second", "open first", "close second", "close first"]


def test_failure_to_open_is_what_is_told_even_if_closing_fails_too(
    make_subtask: MakeSubtask, log: Log
) -> None:
    with pytest.raises(OperatorError, match="first fails to open") as caught:
        make_subtask(chain_of(log, first="open", second="close"), "source")
    assert log.calls[-2:] == ["close second", "close first"]
    assert any("second fails to close" in note for note in caught.value.__notes__)


def test_when_the_source_can_not_be_read_the_operators_are_closed(
    make_subtask: MakeSubtask, log: Log
) -> None:
    class Gone(ScriptedSource):
        def reader(self, context: ConnectorContext, splits: Any) -> Any:
            msg = "no such file"
            raise FileNotFoundError(msg)

    env = StreamEnvironment("job")
    env.from_source("source", Gone([], log)).sink("sink", LoggingSink(log))
    with pytest.raises(OperatorError, match=r"'source'.*no such file"):
        make_subtask(env, "source")
    assert log.calls == ["sink closed"]


def test_operator_that_can_not_be_made_is_named(make_subtask: MakeSubtask) -> None:
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", ScriptedSource([])).map(lambda n: n)
    object.__setattr__(stream._builder.graph.nodes[-1].operator, "factory", lambda: MapOperator())  # type: ignore[call-arg]
    stream.sink("sink", DiscardSink())
    with pytest.raises(OperatorError, match=r"'map-1' \(subtask 1 of 1\).*missing 1 required"):
        make_subtask(env, "map-1")


def test_a_restored_list_that_the_operator_never_asks_for_is_in_its_next_checkpoint(
    make_subtask: MakeSubtask,
) -> None:
    class Passes(Operator):
        def process(self, batch: Any) -> Any:
            yield batch

    env = StreamEnvironment("job")
    env.from_collection("in", [1]).rebalance().transform("own", Passes()).sink("out", DiscardSink())
    value = ValueCodec().dumps("kept")
    restored = OperatorRestore(lists={"old": [value]}, unasked={"old": (RedistributionMode.UNION, [value])})
    task = make_subtask(env, "own", restore=TaskRestore(1, 1, {"own": restored}))
    task.deliver(CheckpointBarrier(2, 0.0))
    task.run()
    task.upload()
    (handle,) = task.acknowledged[2].operators["own"].operator
    assert (handle.name, handle.mode, handle.count) == ("old", RedistributionMode.UNION, 1)
    assert isinstance(handle.state, InlineHandle)
    assert decode_atoms(handle.state.data, "here") == [value]
