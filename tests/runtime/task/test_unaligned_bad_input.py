"""One subtask under unaligned checkpoints: storage that is full, data that never comes, what makes no sense.

Each ends in a clear error or does nothing that anybody notices; nothing ever waits without a deadline.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from subtask_setup import SubtaskSetup, rows

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import StorageError, StreamCorruptError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.network.input_channel import MissingElementsError
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier, CheckpointOptions
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.handles import ChannelStateHandle
from penstock.runtime.snapshot.storage import MemoryStorage

MakeSubtask = Callable[..., SubtaskSetup]


#: One credit a channel and tiny buffers, so that a few records fill everything.
UNALIGNED = JobConfig(
    checkpointing=Checkpointing(every=1, unaligned=True),
    advanced=AdvancedConfig(credits=1, buffer_rows=2, gap_timeout=20.0),
)


def relaying() -> StreamEnvironment:
    """Two senders, one subtask `relay`, and one receiver."""
    env = StreamEnvironment("job", chaining=False)
    numbers = env.from_source("source", GeneratorSource(lambda i: i), parallelism=2)
    relayed = numbers.rebalance().map(lambda n: n, id="relay", parallelism=1)
    relayed.rebalance().sink("sink", DiscardSink(), parallelism=1)
    return env


def barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0.0, CheckpointOptions(unaligned=True))


def in_flight(task: SubtaskSetup, checkpoint_id: int) -> ChannelStateHandle | None:
    return task.acknowledged[checkpoint_id].operators["relay"].channels


def blocked(task: SubtaskSetup) -> SubtaskSetup:
    """The same subtask with full outputs and more behind them."""
    task.deliver(rows(*range(6)))
    task.deliver(rows(*range(6, 10)))
    task.run()
    assert task.rows() == [0, 1]
    return task


class NoRoomForChannels(MemoryStorage):
    """Refuses files of in-flight data as long as it is full."""

    is_full = True

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        if self.is_full and "/channels-" in path:
            msg = f"{path}: no room"
            raise StorageError(msg)
        super().put(path, data, create=create)


def test_in_flight_data_that_can_not_be_written_declines_the_checkpoint_and_the_next_one_has_it_all(
    make_subtask: MakeSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    storage = NoRoomForChannels()
    task = blocked(make_subtask(relaying(), "relay", UNALIGNED, storage=storage))
    for channel in (0, 1):
        task.deliver(barrier(1), channel=channel)
    task.upload()
    ((checkpoint_id, reason, detail),) = task.declined
    assert (checkpoint_id, reason) == (1, CheckpointFailureReason.CHECKPOINT_DECLINED)
    assert "channels-relay-0: no room" in detail
    assert storage.list("") == []
    storage.is_full = False
    for channel in (0, 1):
        task.deliver(barrier(2), channel=channel)
    task.upload()
    captured = in_flight(task, 2)
    assert captured is not None
    assert captured.elements == 3
    assert [path for path in storage.list("") if "channels" in path] == ["job/chk-2-1/channels-relay-0"]


def test_data_in_front_of_a_barrier_that_never_comes_fails_the_task_at_its_deadline(
    make_subtask: MakeSubtask,
) -> None:
    """The barrier has overtaken it on the way: the checkpoint begins and is not acknowledged without it."""
    task = make_subtask(relaying(), "relay", UNALIGNED)
    task.subtask.deliver(0, 1, [encode_element(barrier(1))])
    task.deliver(barrier(1), channel=1)
    assert task.events() == [barrier(1)]
    assert task.run().wake_at == 20.0
    task.upload()
    assert task.acknowledged == {}
    task.clock.advance(20)
    with pytest.raises(
        MissingElementsError, match=r"channel 0 \(from source\[0\]\): element 0 has not arrived"
    ):
        task.subtask.step()


def test_barrier_with_an_id_that_goes_backwards_does_nothing(make_subtask: MakeSubtask) -> None:
    task = make_subtask(relaying(), "relay", UNALIGNED)
    for channel in (0, 1):
        task.deliver(barrier(2), barrier(1), rows(channel), channel=channel)
    task.run_freely()
    task.upload()
    assert (list(task.acknowledged), task.declined) == ([2], [])
    assert task.events() == [barrier(2)]
    assert sorted(task.rows()) == [0, 1], "what is behind it goes on"


def test_marker_of_an_older_unknown_checkpoint_does_nothing(make_subtask: MakeSubtask) -> None:
    task = make_subtask(relaying(), "relay", UNALIGNED)
    for channel in (0, 1):
        task.deliver(barrier(5), CancelCheckpointMarker(3), rows(channel), channel=channel)
    task.run_freely()
    task.upload()
    assert (list(task.acknowledged), task.declined) == ([5], [])
    assert task.events() == [barrier(5)]
    assert sorted(task.rows()) == [0, 1]


def test_marker_of_a_newer_unknown_checkpoint_declines_it_and_its_barriers_come_too_late(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(relaying(), "relay", UNALIGNED)
    task.deliver(CancelCheckpointMarker(3))
    task.run_freely()
    task.deliver(barrier(3), rows(1), channel=1)
    task.run_freely()
    task.upload()
    assert task.acknowledged == {}
    assert [entry[0] for entry in task.declined] == [3]
    assert task.events() == [CancelCheckpointMarker(3)]
    assert task.rows() == [1]
    for channel in (0, 1):
        task.deliver(barrier(4), channel=channel)
    task.upload()
    assert list(task.acknowledged) == [4]


def test_element_of_an_unknown_kind_fails_the_task_and_says_where_it_came_from(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(relaying(), "relay", UNALIGNED)
    where = r"channel 1 \(from source\[1\]\), element 0: .*version"
    with pytest.raises(StreamCorruptError, match=where):
        task.subtask.deliver(1, 0, [b"\xee what is this"])


def test_element_of_an_unknown_kind_ahead_of_a_gap_is_refused_when_its_turn_comes(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(relaying(), "relay", UNALIGNED)
    task.subtask.deliver(1, 1, [b"\xee what is this"])
    with pytest.raises(StreamCorruptError, match=r"channel 1 \(from source\[1\]\), element 1"):
        task.deliver(rows(1), channel=1)
