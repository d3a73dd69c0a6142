"""Unaligned checkpoints of one subtask that starts from what was in flight."""

from __future__ import annotations

import pyarrow as pa
import pytest
from subtask_setup import CODEC, SubtaskSetup, rows
from unaligned_setup import (
    NOTHING,
    InFlight,
    MakeSubtask,
    again,
    as_it_is,
    config,
    in_flight,
    unaligned,
    working,
)

from penstock.runtime.checkpoint.channel_state_writer import ChannelState, encode_channel_state
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import (
    ArrowBatch,
    CheckpointBarrier,
    Watermark,
)
from penstock.runtime.snapshot.completed_checkpoint import ChannelRestore, TaskRestore
from penstock.runtime.snapshot.handles import ChannelStateHandle, InlineHandle

# -- restore ------------------------------------------------------------------------------------------------


def test_restored_data_comes_first_receivers_part_before_new_data_and_senders_part_before_all(
    make_subtask: MakeSubtask,
) -> None:
    env = working(lambda n: range(n, n + 4))
    task = make_subtask(env, "work", config())
    task.deliver(rows(0), rows(100), channel=0)
    task.run()
    task.deliver(unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [[100]]}, {0: [[2], [3]]})
    restored = again(make_subtask, env, task, 1)
    restored.deliver(rows(200), channel=0)
    assert restored.sent[0] == []
    restored.subtask.step()
    assert restored.rows() == [2, 3]
    restored.run_freely()
    assert restored.rows() == [2, 3, *range(100, 104), *range(200, 204)]
    assert restored.taken[0] == 1, "what was restored has no numbers"


def test_restored_data_is_captured_again_by_a_barrier_that_comes_before_the_first_step(
    make_subtask: MakeSubtask,
) -> None:
    env = working(lambda n: range(n, n + 6))
    task = make_subtask(env, "work", config())
    task.deliver(rows(0), rows(100), Watermark(3), channel=0)
    task.run()
    task.deliver(unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.upload()
    restored = again(make_subtask, env, task, 1)
    restored.deliver(rows(200), unaligned(2), channel=0)
    restored.deliver(unaligned(2), channel=1)
    restored.upload()
    assert restored.sent[0] == [rows(2), rows(3), unaligned(2)], "as far as the credits reach"
    assert in_flight(restored, 2) == InFlight({0: [[100], Watermark(3), [200]]}, {0: [[4], [5]]})


def test_job_that_aligns_its_checkpoints_starts_from_an_unaligned_one(make_subtask: MakeSubtask) -> None:
    env = working(as_it_is)
    task = make_subtask(env, "work", config())
    task.deliver(rows(1), unaligned(1), channel=0)
    task.deliver(rows(2), unaligned(1), channel=1)
    task.upload()
    aligned = JobConfig(checkpointing=Checkpointing(every=1))
    restored = again(make_subtask, env, task, 1, config=aligned)
    for channel in (0, 1):
        restored.deliver(CheckpointBarrier(2, 0.0), channel=channel)
    restored.run_freely()
    restored.upload()
    assert sorted(restored.rows()) == [1, 2]
    assert restored.sent[0][-1] == CheckpointBarrier(2, 0.0), "what was in flight is in front of it"
    assert in_flight(restored, 2) == NOTHING


# -- strangers' data ----------------------------------------------------------------------------------------

OUTSIDE = pa.DictionaryArray.from_arrays(pa.array([0, 1_000_000], pa.int32()), pa.array(["a"]), safe=False)
CODE = pa.schema([pa.field("a", pa.binary(), metadata={b"ARROW:extension:name": b"test.pickled"})])
STRANGE = {
    "out of bounds": pa.record_batch([OUTSIDE], ["a"]),
    r"test\.pickled": pa.record_batch([pa.array([b"any code"])], schema=CODE),
}


def with_in_flight(
    make_subtask: MakeSubtask, batch: pa.RecordBatch, config: JobConfig, *, sent: bool
) -> SubtaskSetup:
    """A subtask that starts with this batch in its first channel, received or not yet sent."""
    env = working(as_it_is)
    spec = make_subtask(env, "work", config).spec
    element = encode_element(CODEC.encode(ArrowBatch(batch)))
    outputs, inputs = {next(iter(spec.output_ids.values())): [element]}, {spec.input_ids[0]: [element]}
    state = ChannelState({}, outputs) if sent else ChannelState(inputs)
    handle = ChannelStateHandle(InlineHandle(encode_channel_state(state)), 1, state.edges)
    return make_subtask(
        env, "work", config, restore=TaskRestore(1, 1, {}, channels=ChannelRestore((handle,)))
    )


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(
    "refusing",
    [
        JobConfig(checkpointing=Checkpointing(every=1), allow_pickle="records"),
        JobConfig(checkpointing=Checkpointing(every=1, unaligned=True), allow_pickle="records"),
        JobConfig(checkpointing=Checkpointing(every=1), allow_pickle=False),
        JobConfig(allow_pickle=False),
    ],
)
@pytest.mark.parametrize(("why", "batch"), STRANGE.items(), ids=STRANGE)
def test_columns_of_strangers_are_checked_in_full_where_pickle_is_refused(
    make_subtask: MakeSubtask, why: str, batch: pa.RecordBatch, refusing: JobConfig, sent: bool
) -> None:
    with pytest.raises(CorruptSnapshotError, match=why):
        with_in_flight(make_subtask, batch, refusing, sent=sent)
    with_in_flight(make_subtask, batch, JobConfig(), sent=sent)
