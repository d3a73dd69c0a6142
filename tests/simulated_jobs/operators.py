"""The users' code of a simulated job: a source, two operators with state, and a two-phase sink.

They use the public protocols, as user code does. They keep every kind of state: splits of a source, list
state, keyed state, transactions. Through `CodeHooks` the simulation slows them down, makes them fail, and
kills their process between any two external effects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.operators.operator import Operator, OperatorContext, Output, SavedList
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.state.keyed_states import ValueState
from penstock.runtime.testing.simulation.world.faults import Moment
from penstock.runtime.testing.simulation.world.world import World
from simulated_jobs.records import (
    Copies,
    ExternalSystem,
    Key,
    Record,
    TransactionKey,
    digest_after,
)

#: Name of the list state that counts the records of a step.
COUNTED: Final = "counted"

#: Name of the keyed state: number and digest of the last record, and padding.
SEEN: Final = "seen"

#: Large enough that a keyed state with it goes into a file of its own.
PADDING: Final = bytes(17 * 1024)

#: Split, next position, end.
Split = tuple[int, int, int]


class CodeHooks(Protocol):
    """The events that users' code meets in a simulation."""

    def record(self, operator: str, subtask: int) -> None:
        """A record is processed: takes its time, and may fail."""
        ...

    def effect(self, operator: str, subtask: int) -> None:
        """Something is about to happen in the outside world: the process may die first."""
        ...

    def committed(self) -> None:
        """A transaction was committed."""
        ...


class SimulatedSource:
    """Reads splits of numbered records, a few at a time.

    Args:
        counts: How many records each split has.
        chunk: Most records of one poll.
        pause: Seconds between two polls that give something.
        in_order: Whether a subtask reads the split that is furthest behind, instead of all in turn.
    """

    def __init__(
        self, number: int, counts: Sequence[int], chunk: int, pause: float, *, in_order: bool = False
    ) -> None:
        self.number = number
        self.counts = counts
        self.chunk = chunk
        self.pause = pause
        self.in_order = in_order

    def splits(self, parallelism: int) -> Sequence[Split]:
        """All splits, however many subtasks there are."""
        return [(split, 0, count) for split, count in enumerate(self.counts)]

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SimulatedReader:
        """The reader of one subtask."""
        return SimulatedReader(self, context, [(int(s), int(at), int(end)) for s, at, end in splits])


class SimulatedReader:
    """Reads the splits of one subtask in turn.

    Args:
        context: Where it runs.
        splits: Ranges of record numbers, fresh or restored.
    """

    def __init__(self, source: SimulatedSource, context: ConnectorContext, splits: list[Split]) -> None:
        self._source = source
        self._context = context
        self._splits = [split for split in splits if split[1] < split[2]]
        self._ready_at = 0.0

    def poll(self, max_rows: int) -> Polled[Record]:
        """The next records of the split whose turn it is."""
        if not self._splits:
            return Polled(finished=True)
        now = self._context.clock.monotonic()
        if now < self._ready_at:
            return Polled(ready_at=self._ready_at)
        self._ready_at = now + self._source.pause
        if self._source.in_order:
            self._splits.sort(key=lambda split: split[1])
        split, at, end = self._splits.pop(0)
        upto = min(end, at + self._source.chunk, at + max_rows)
        if upto < end:
            self._splits.append((split, upto, end))
        number, lane = self._source.number, self._context.subtask
        rows = [((number, split, index), ((number, lane, 0),)) for index in range(at, upto)]
        return Polled(RowBatch(rows), finished=not self._splits)

    def snapshot(self) -> Sequence[Split]:
        """The unfinished splits."""
        return list(self._splits)

    def close(self) -> None:
        """Nothing is held."""


class StepOperator(Operator):
    """Adds its step to each record, makes copies, and counts what it has seen in list state.

    Args:
        copies: How many records it makes of one.
        hooks: Of the simulation.
    """

    def __init__(self, number: int, copies: Copies, hooks: CodeHooks) -> None:
        self._number = number
        self._copies = copies
        self._hooks = hooks
        self._operator = ""
        self._lane = 0
        self._counted: list[int] = []

    def open(self, context: OperatorContext) -> None:
        """Take the counts that were restored; several subtasks' counts may have met here."""
        self._operator, self._lane = context.connector.operator_id, context.connector.subtask
        self._counted = [*context.restored.get(COUNTED, ()), 0]

    def process(self, batch: Batch) -> Iterator[Output]:
        """One batch for each record, so that a slice may end after any of them."""
        assert isinstance(batch, RowBatch)
        for origin, route in batch.rows:
            self._hooks.record(self._operator, self._lane)
            self._counted[-1] += 1
            made = range(self._copies.of(origin))
            if made:
                yield RowBatch([(origin, (*route, (self._number, self._lane, copy))) for copy in made])

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        """The counts."""
        return {COUNTED: SavedList((sum(self._counted),))}


class NumberRecords(KeyedProcessFunction[Key, Record, Record]):
    """Numbers the records of each key, and keeps a digest of all of them in their order.

    Args:
        is_padded: Whether the state is large.
        hooks: Of the simulation.
    """

    def __init__(self, number: int, is_padded: bool, hooks: CodeHooks) -> None:
        self._number = number
        self._padding = PADDING if is_padded else b""
        self._hooks = hooks
        self._seen: ValueState[tuple[int, int, bytes]] | None = None

    def open(self, ctx: RuntimeContext) -> None:
        """Bind the state."""
        self._seen = ctx.value_state(SEEN, default=(0, 0, b""))

    def process(self, value: Record, ctx: RuntimeContext) -> list[Record]:
        """One more record of the current key."""
        assert self._seen is not None, "open comes first"
        self._hooks.record(ctx.operator_id, ctx.subtask)
        origin, route = value
        number, digest, _ = self._seen.value()
        number, digest = number + 1, digest_after(digest, origin, route)
        self._seen.update((number, digest, self._padding))
        return [(origin, (*route, (self._number, ctx.subtask, 0, ctx.current_key, number, digest)))]


class SimulatedSink:
    """A sink that stages transactions in the external system and commits them there.

    Args:
        system: The world outside.
        hooks: Of the simulation.
    """

    def __init__(self, system: ExternalSystem, hooks: CodeHooks) -> None:
        self.system = system
        self.hooks = hooks

    def writer(self, context: ConnectorContext) -> SimulatedWriter:
        """The writer of one subtask."""
        return SimulatedWriter(self, context)


class SimulatedWriter:
    """Writes the records of one subtask.

    Args:
        context: Where it runs.
    """

    def __init__(self, sink: SimulatedSink, context: ConnectorContext) -> None:
        self._system = sink.system
        self._hooks = sink.hooks
        self._of = context.operator_id, context.subtask, context.job_id, context.attempt
        self._open: list[Record] = []
        self._number = 0

    def write(self, batch: Batch) -> None:
        """Add records to the open transaction."""
        assert isinstance(batch, RowBatch)
        for _ in batch.rows:
            self._hooks.record(self._of[0], self._of[1])
        self._open += batch.rows

    def prepare_commit(self) -> Sequence[TransactionKey]:
        """Stage the open transaction."""
        if not self._open:
            return []
        key = (*self._of, self._number)
        self._hooks.effect(self._of[0], self._of[1])
        self._system.stage(key, self._open)
        self._open = []
        self._number += 1
        return [key]

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Make transactions visible, one after the other."""
        for sink, subtask, job, attempt, number in committables:
            self._hooks.effect(self._of[0], self._of[1])
            key = sink, subtask, job, attempt, number
            self._system.commit(key, permit.checkpoint_id, self._of[2:])
            self._hooks.committed()

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Remove what earlier attempts have left."""
        self._hooks.effect(self._of[0], self._of[1])
        self._system.remove_older_than(self._of[0], self._of[2], self._of[3])

    def close(self) -> None:
        """Forget the open transaction."""
        self._open = []


class RunHooks:
    """The `CodeHooks` of a run.

    Args:
        world: Time and chance.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def __deepcopy__(self, memo: dict[int, object]) -> RunHooks:
        """Operators copy users' objects, which all meet the same world."""
        return self

    def record(self, operator: str, subtask: int) -> None:
        """A record is processed."""
        self._world.record_processed()

    def effect(self, operator: str, subtask: int) -> None:
        """Something is about to happen outside."""
        self._world.before_effect()

    def committed(self) -> None:
        """A transaction was committed."""
        self._world.on_moment(Moment.COMMITTED)
