"""Checkpoints that begin by the data: a source's hook writes the marks at which its readers stop."""

from __future__ import annotations

from typing import Any

import pytest
from live_setup import LiveJob
from marked_journal import PARTS, Journal, JournalHook, JournalSource
from memory_storages import MemoryPlaces
from strict_collector import StrictCollector

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.job.job_state import JobState, StopRequest
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import decode_atoms, read_state
from penstock.runtime.snapshot.storage import MemoryStorage

SEEDS = range(12)
READER = SubtaskId("numbers", 1)


class World:
    """The parts that outlive a JobMaster: the journal, the storage, and the job's output."""

    def __init__(self, seed: int) -> None:
        self.journal, self.storage, self.places = Journal(), MemoryStorage(), MemoryPlaces()
        self.out: StrictCollector[int, int] = StrictCollector()
        self._seed = seed

    def master(self, job_id: str = "job", restore_from: str | None = None) -> tuple[LiveJob, JournalHook]:
        """A JobMaster that has just begun, and the hook in it."""
        hook = JournalHook(self.journal)
        env = StreamEnvironment("journal")
        source = env.from_source("numbers", JournalSource(self.journal, hook), parallelism=PARTS)
        source.sink("out", CollectSink(self.out), parallelism=1)
        checkpointing, restart = Checkpointing(every=10_000), FixedDelay(3, 1)
        config = JobConfig(checkpointing=checkpointing, restart=restart)
        graph = build_execution_graph(env.build())
        job = LiveJob(graph, config, self.storage, self._seed, job_id, self.places, restore_from)
        return job, hook

    def positions(self, checkpoint: CompletedCheckpoint) -> list[Any]:
        """The positions that the readers have saved, part by part."""
        handles = [subtask.operator for subtask in checkpoint.operators["numbers"].subtasks.values()]
        place = self.storage if checkpoint.location is None else self.places(checkpoint.location)
        atoms = [decode_atoms(read_state(place, handle.state), "splits") for [handle] in handles]
        return sorted(ValueCodec().loads(atom) for each in atoms for atom in each)


def checkpoint_with_more_behind_it(job: LiveJob, hook: JournalHook, world: World) -> CompletedCheckpoint:
    """A checkpoint whose mark has data behind it as soon as it is written."""

    def more() -> None:
        known = len(hook.states)
        job.until(lambda: len(hook.states) > known)
        world.journal.write(7, 4)

    return job.checkpoint(meanwhile=more)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_checkpoint_is_taken_at_the_mark_that_the_hook_has_written_for_it(seed: int) -> None:
    world = World(seed)
    world.journal.write(20, 5)
    job, hook = world.master()
    for number in (1, 2, 3):
        checkpoint = checkpoint_with_more_behind_it(job, hook, world)
        cut = hook.states[number]["cut"]
        assert cut == [20 + 7 * (number - 1), 5 + 4 * (number - 1)]
        assert checkpoint.checkpoint_id == number
        assert world.positions(checkpoint) == [(part, cut[part], number) for part in range(PARTS)]
        assert [ValueCodec().loads(state.data) for state in checkpoint.master_states] == [hook.states[number]]
        assert world.out.by_key() == world.journal.until(cut), "what is in front of the marks, and no more"


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_failure_between_the_marks_the_hook_has_its_state_and_everything_is_put_out_once(
    seed: int,
) -> None:
    world = World(seed)
    world.journal.write(12, 12)
    job, hook = world.master()
    for _ in (1, 2):
        checkpoint_with_more_behind_it(job, hook, world)

    job.scheduler.trigger_checkpoint()
    job.until(lambda: job.acknowledged(3) > 0)
    job.fail(READER)
    assert job.restored == [None, 2]
    assert hook.calls[-1] == ("restore", 2, hook.states[2])

    checkpoint = checkpoint_with_more_behind_it(job, hook, world)
    state = hook.states[checkpoint.checkpoint_id]
    assert checkpoint.checkpoint_id > 3, "readers have met the mark of 3 once more, and gone on"
    assert state["written"] == 3, "the mark of 3 does not count: its checkpoint was lost"
    assert [position for _, position, _ in world.positions(checkpoint)] == state["cut"]

    world.journal.has_ended = True
    job.finish()
    assert job.ended is JobState.FINISHED
    assert world.out.by_key() == dict(enumerate(world.journal.parts))
    assert hook.calls[-1] == ("close",)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_hook_of_the_next_jobmaster_gets_the_state_of_the_newest_checkpoint(seed: int) -> None:
    world = World(seed)
    world.journal.write(9, 0)
    job, hook = world.master()
    for _ in (1, 2):
        checkpoint_with_more_behind_it(job, hook, world)
    job.die()

    world.journal.write(3, 3)
    successor, new_hook = world.master()
    assert successor.restored == [2]
    assert new_hook.calls == [("restore", 2, hook.states[2])]
    checkpoint = checkpoint_with_more_behind_it(successor, new_hook, world)
    state = new_hook.states[checkpoint.checkpoint_id]
    assert state["written"] == 3
    assert [position for _, position, _ in world.positions(checkpoint)] == state["cut"]

    world.journal.has_ended = True
    successor.finish()
    assert world.out.by_key() == dict(enumerate(world.journal.parts))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_is_stopped_with_a_savepoint_ends_at_its_mark_and_the_next_job_goes_on_there(
    seed: int,
) -> None:
    world = World(seed)
    world.journal.write(9, 2)
    job, hook = world.master()
    checkpoint_with_more_behind_it(job, hook, world)
    answers: list[Any] = []
    job.scheduler.stop_with_savepoint(StopRequest(target="/saved"), answers.append)
    job.until(lambda: len(hook.states) == 2)
    world.journal.write(30, 30)
    job.finish()
    savepoint, cut = answers[0].checkpoint, hook.states[2]["cut"]
    assert job.ended is JobState.FINISHED
    assert [position for _, position, _ in world.positions(savepoint)] == cut
    assert world.out.by_key() == world.journal.until(cut)

    again, new_hook = world.master("again", savepoint.location)
    assert new_hook.calls == [("restore", 2, hook.states[2])]
    world.journal.has_ended = True
    again.finish()
    assert world.out.by_key() == dict(enumerate(world.journal.parts))
