"""Many timers that one watermark fires: a checkpoint passes between them, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from subtask_setup import SubtaskSetup, rows
from unaligned_setup import ENDLESS, config, in_flight, unaligned

from penstock import KeyedProcessFunction, RuntimeContext
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.held_watermark import MOST_FIRED
from penstock.runtime.record.elements import CheckpointBarrier, Watermark
from penstock.runtime.snapshot.completed_checkpoint import ChannelRestore, OperatorRestore, TaskRestore
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metadata import decode_atoms, read_state

TIMERS = 4 * MOST_FIRED
PLENTY = config(credits=100_000)


class Echo(KeyedProcessFunction[int, int, str]):
    """Names each record, and once more when event time has come to it."""

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[str]:
        ctx.timer_service.register_event_time_timer(value)
        yield f"record {value}"

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[str]:
        yield f"timer {at}"


def echoing() -> StreamEnvironment:
    env = StreamEnvironment("job", chaining=False)
    source = env.from_source("source", ENDLESS, parallelism=1)
    source.key_by(lambda n: n).process("echo", Echo(), parallelism=1).rebalance().sink("sink", DiscardSink())
    return env


def in_a_storm(make_subtask: Callable[..., SubtaskSetup]) -> SubtaskSetup:
    """A subtask that has fired some of its timers, and has a record behind the watermark still to come."""
    task = make_subtask(echoing(), "echo", PLENTY)
    task.deliver(rows(*range(TIMERS)))
    task.run_freely()
    task.deliver(Watermark(TIMERS), rows(TIMERS + 1))
    while not timers(task):
        task.subtask.step()
    assert 0 < len(timers(task)) < TIMERS
    return task


def timers(task: SubtaskSetup) -> list[str]:
    return [row for row in task.rows() if row.startswith("timer")]


def restored(task: SubtaskSetup, snapshot: SubtaskSnapshot) -> TaskRestore:
    """The start state of the same subtask in another attempt."""
    (state,) = snapshot.operators.values()
    assert state.channels is not None
    lists = {
        each.name: decode_atoms(read_state(task.storage, each.state), each.name) for each in state.operator
    }
    operators = {"echo": OperatorRestore(state.keyed, lists)}
    return TaskRestore(1, 1, operators, channels=ChannelRestore((state.channels,)))


def test_unaligned_barrier_passes_between_the_timers_of_a_storm(
    make_subtask: Callable[..., SubtaskSetup],
) -> None:
    task = in_a_storm(make_subtask)
    fired = timers(task)
    task.deliver(unaligned(1))
    assert task.events() == [unaligned(1)], "at once"
    assert timers(task) == fired
    task.run_freely()
    task.upload()
    assert [type(event) for event in task.events()] == [CheckpointBarrier, Watermark]
    assert task.rows()[TIMERS:] == [*(f"timer {n}" for n in range(TIMERS)), f"record {TIMERS + 1}"]
    assert in_flight(task, 1).inputs == {0: [[TIMERS + 1]]}


def test_job_goes_on_in_the_middle_of_a_storm(make_subtask: Callable[..., SubtaskSetup]) -> None:
    task = in_a_storm(make_subtask)
    fired = timers(task)
    task.deliver(unaligned(1))
    task.upload()
    again = make_subtask(
        echoing(), "echo", PLENTY, restore=restored(task, task.acknowledged[1]), storage=task.storage
    )
    again.run_freely()
    assert [*fired, *timers(again)] == [f"timer {n}" for n in range(TIMERS)]
    assert [row for row in again.rows() if row.startswith("record")] == [f"record {TIMERS + 1}"]


def test_aligned_barrier_comes_behind_the_storm(make_subtask: Callable[..., SubtaskSetup]) -> None:
    task = in_a_storm(make_subtask)
    barrier = CheckpointBarrier(1, 1_000_000.0)
    task.deliver(barrier)
    task.run_freely()
    assert task.events() == [Watermark(TIMERS), barrier]


def test_storm_waits_for_credits(make_subtask: Callable[..., SubtaskSetup]) -> None:
    task = make_subtask(echoing(), "echo", config(credits=2))
    task.deliver(rows(*range(TIMERS)))
    task.run_freely()
    task.deliver(Watermark(TIMERS))
    task.run()
    assert len(timers(task)) < TIMERS
    assert task.events() == []
    task.run_freely()
    assert len(timers(task)) == TIMERS
    assert task.events() == [Watermark(TIMERS)]
