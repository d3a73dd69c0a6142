"""Many windows that one watermark fires: a checkpoint passes between them, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from subtask_setup import SubtaskSetup
from unaligned_setup import ENDLESS, config, unaligned

from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.held_watermark import MOST_FIRED
from penstock.runtime.record.elements import CheckpointBarrier, RowBatch, Watermark
from penstock.runtime.snapshot.completed_checkpoint import OperatorRestore, TaskRestore
from penstock.runtime.snapshot.metadata import decode_atoms, read_state
from penstock.windows import EventTimeSessionWindows, TumblingEventTimeWindows

WINDOWS = 4 * MOST_FIRED
PLENTY = config(credits=100_000)
KINDS = {"plain": TumblingEventTimeWindows(1), "with a trigger": EventTimeSessionWindows(1)}


def greatest(windows: TumblingEventTimeWindows | EventTimeSessionWindows) -> StreamEnvironment:
    env = StreamEnvironment("job", chaining=False)
    source = env.from_source("source", ENDLESS, parallelism=1)
    fired = source.key_by(lambda n: n).window(windows).reduce("greatest", max, parallelism=1)
    fired.rebalance().sink("sink", DiscardSink())
    return env


@pytest.mark.parametrize("kind", KINDS)
def test_an_unaligned_barrier_passes_between_the_windows_of_a_storm_and_the_job_goes_on_there(
    kind: str, make_subtask: Callable[..., SubtaskSetup]
) -> None:
    task = make_subtask(greatest(KINDS[kind]), "greatest", PLENTY)
    task.deliver(RowBatch(list(range(WINDOWS)), [5] * WINDOWS))
    task.run_freely()
    task.deliver(Watermark(5_000_000))
    while not task.rows():
        task.subtask.step()
    fired = len(task.rows())
    assert 0 < fired < WINDOWS
    task.deliver(unaligned(1))
    assert task.events() == [unaligned(1)], "at once"
    assert len(task.rows()) == fired
    task.run_freely()
    task.upload()
    assert [type(event) for event in task.events()] == [CheckpointBarrier, Watermark]
    assert sorted(task.rows()) == list(range(WINDOWS))

    (state,) = task.acknowledged[1].operators.values()
    lists = {
        each.name: decode_atoms(read_state(task.storage, each.state), each.name) for each in state.operator
    }
    restore = TaskRestore(1, 1, {"greatest": OperatorRestore(state.keyed, lists)})
    again = make_subtask(greatest(KINDS[kind]), "greatest", PLENTY, restore=restore, storage=task.storage)
    again.run_freely()
    assert sorted(again.rows()) == list(range(fired, WINDOWS)), "what had not fired, and nothing twice"
