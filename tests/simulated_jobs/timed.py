"""Parts of a simulated job that live by time: windows, sessions, timers, state that expires.

Its source has a watermark for each split, and may keep its splits aligned. Splits are read at different
speeds. Behind it one keyed operator does one of four things (`TimedKind`). A second source may have nothing
to say, and is idle. Both end when the sink has all rows. Until then each split that is through continues with
*beats*: records of a late moment, which belong to nothing. So if an idle source held event time up, a paused
split stayed paused, or a timer never fired, the job would never end.

A record is its split and its index. Its moment is the index. Four records in a row have the same key. In the
jobs with timers the first of them sets a timer, and the second another one. The third sets that one again,
and the fourth deletes the first. Each row of the output names the records that it stands for, so each record
must be in one row. `oracle/timed_rule.py` has the other rules.

Event-time windows in simulated jobs, and the check of their output.

A record's timestamp is its position in its split. A window emits each of its records with one more step in
the route: the key, the window's start and its number of records. So the rule for every sink (each record
once) also covers windows. This module only checks that each window is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias

from penstock.runtime.graph.job_graph import JobEdge, JobVertex, OperatorSpec, Partitioner, Partitioning
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.functions.process import KeyedProcessOperator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import ConnectorContext, Polled, SplitProgress
from penstock.runtime.operators.windows.triggered_window import TriggeredWindowOperator, WindowPlan
from penstock.runtime.operators.windows.triggers import EventTimeTrigger
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ListedContents
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.state.keyed_states import MapState, ValueState
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import EventTimeSessionWindows, TimeWindow, TumblingEventTimeWindows
from simulated_jobs.operators import CodeHooks, SimulatedSink, Split
from simulated_jobs.records import ExternalSystem, Identity, Key, Origin, Record
from simulated_jobs.split_source import JobPorts

#: Microseconds from one position of a split to the next one.
UNIT: Final = 1000

#: Key and start of a window.
KeyedWindow: TypeAlias = tuple[Key, int]


def timestamps(behind: int) -> TimestampsAndWatermarksOperator:
    """The operator that gives records their moments.

    Args:
        behind: By so many positions a record may be older than the newest one before it.
    """
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(microseconds=behind * UNIT))
    return TimestampsAndWatermarksOperator(strategy.with_timestamp_assigner(_moment_of_record))


def windows(number: int, select: Callable[[Record], Key], length: int) -> WindowOperator:
    """The operator with windows.

    Args:
        length: Positions of a split in one window.
    """

    def tell(key: Key, window: TimeWindow, records: list[Record]) -> list[Record]:
        # The key stands where other steps have the subtask: windows of two keys keep no order between them.
        step = (number, key, 0, window.start_timestamp, len(records))
        return [(origin, (*route, step)) for origin, route in records]

    return WindowOperator(select, _assigner(length), partial(ListedContents, tell))


def whole_windows(
    identities: Iterable[Identity], key_of: Callable[[Origin], Key], length: int
) -> Counter[KeyedWindow]:
    """Number of records that each window must have held."""
    starts = _assigner(length).starts
    return Counter((key_of(origin), starts(origin[2] * UNIT)[0]) for origin, _ in identities)


def unfinished_windows(
    number: int, records: Iterable[Record], whole: Mapping[KeyedWindow, int]
) -> Iterator[str]:
    """Violations in the windows that an operator emitted, according to the output."""
    told: dict[KeyedWindow, set[int]] = {}
    for _, route in records:
        for step in route:
            if step[0] == number:
                told.setdefault((step[1], step[3]), set()).add(step[4])
    for (key, start), held in sorted(told.items(), key=str):
        expected = whole.get((key, start), 0)
        if held != {expected}:
            times = ", then ".join(map(str, sorted(held)))
            yield (
                f"operator {number}, key {key!r}: the window at {start} came out with {times} "
                f"of its {expected} records"
            )


def _moment_of_record(record: Record) -> int:
    return record[0][2] * UNIT


def _assigner(length: int) -> TumblingEventTimeWindows:
    return TumblingEventTimeWindows(timedelta(microseconds=length * UNIT))


#: Ids of the sources, of the keyed operator and of its sink.
SOURCE: Final = "timed"

QUIET: Final = "quiet"

TIMED: Final = "by-time"

SINK: Final = "by-time-sink"

#: Name of the state with the records whose timers are set, by moment.
DUE: Final = "due"

#: How many of the seeds have such a part.
_SHARE: Final = 0.15

#: The index of beats; their moment is behind every timer.
BEAT: Final = 1_000
#: Seconds from the first beat to the second; the others come ever more slowly, up to a limit.
_BEAT_EVERY: Final = 0.005

_LONGEST_PAUSE: Final = 0.5

#: Records in a row that have the same key.
BLOCK: Final = 4

#: Seconds after which a processing-time timer fires, by the place of its record among those of its key.
_DELAYS: Final = (0.3, 0.002, 0.002)

#: Split and index.
Item: TypeAlias = tuple[int, int]

Row: TypeAlias = tuple[Any, ...]


class TimedKind(Enum):
    """The work of the keyed operator."""

    SESSIONS = "sessions"
    EVENT_TIMERS = "event-time timers"
    PROCESSING_TIMERS = "processing-time timers"
    TTL = "state that expires"


@dataclass(frozen=True, slots=True)
class TimedShape:
    """Such a part.

    Attributes:
        counts: How many records each split has.
        chunk: Most records of a batch of the fast splits; the others give one at a time.
        pause: Seconds between two batches.
        parallelism: Of the source, and of the keyed operator.
        keys: How many there are.
        span: The gap of sessions, the time until a timer, or the TTL, in positions of a split.
        ttl: The TTL in seconds of processing time; 0 for one in event time.
        drift: How far a split may be ahead, in positions; 0 for no alignment.
        is_quiet_beside: Whether there is a source that has nothing to say.
        waits: Whether the sources end when the sink has all rows; otherwise at once.
    """

    kind: TimedKind
    counts: tuple[int, ...]
    chunk: int
    pause: float
    parallelism: tuple[int, int]
    keys: int
    span: int
    ttl: float = 0.0
    drift: int = 0
    is_quiet_beside: bool = False
    waits: bool = True

    def build(self, key_groups: int, ports: JobPorts) -> tuple[tuple[JobVertex, ...], tuple[JobEdge, ...]]:
        """Its vertices and edges."""
        sources = [self._source(ports.system)]
        if self.is_quiet_beside:
            strategy = _strategy().with_idleness(0.02)
            quiet = TimedSource(self, ports.system, is_quiet=True)
            sources.append(OperatorSpec(QUIET, QUIET, None, quiet, stateful=True, watermarks=strategy))
        sink = partial(SinkOperator, SimulatedSink(ports.system, ports.hooks))
        keyed = (
            OperatorSpec(TIMED, TIMED, partial(self._keyed, ports.hooks), stateful=True, keyed=True),
            OperatorSpec(SINK, SINK, sink, stateful=True, is_sink=True),
        )
        by_key = Partitioner(Partitioning.KEY_GROUP, self.key_of)
        vertices = [JobVertex(s.id, (s,), 1, key_groups) for s in sources]
        vertices[0] = replace(vertices[0], parallelism=self.parallelism[0])
        edges = tuple(JobEdge(s.id, s.id, None, TIMED, 0, by_key) for s in sources)
        return (*vertices, JobVertex(TIMED, keyed, self.parallelism[1], key_groups)), edges

    def key_of(self, item: Item) -> int:
        """The key of a record."""
        split, index = item
        return -1 if index == BEAT else (index // BLOCK + split) % self.keys

    @property
    def items(self) -> list[Item]:
        """All records."""
        return [(split, index) for split, count in enumerate(self.counts) for index in range(count)]

    def _source(self, system: ExternalSystem) -> OperatorSpec:
        strategy = _strategy()
        if self.drift:
            strategy = strategy.with_alignment("splits", timedelta(microseconds=self.drift * UNIT), 0.1)
        return OperatorSpec(
            SOURCE, SOURCE, None, TimedSource(self, system), stateful=True, watermarks=strategy
        )

    def _keyed(self, hooks: CodeHooks) -> Operator:
        if self.kind is TimedKind.SESSIONS:
            sessions = EventTimeSessionWindows[Item](timedelta(microseconds=self.span * UNIT))
            plan = WindowPlan(sessions, EventTimeTrigger())
            return TriggeredWindowOperator(self.key_of, plan, partial(ListedContents, _session))
        function: KeyedProcessFunction[int, Item, Row]
        if self.kind is TimedKind.TTL:
            length = timedelta(seconds=self.ttl) if self.ttl else timedelta(microseconds=self.span * UNIT)
            function = Expiring(StateTtl(length, time="processing" if self.ttl else "event"), hooks)
        else:
            function = SetTimers(self.span if self.kind is TimedKind.EVENT_TIMERS else 0, hooks)
        return KeyedProcessOperator(self.key_of, function)


def draw_timed(draws: Draws, *, waits: bool) -> TimedShape | None:
    """Draw such a part; `None` for most seeds.

    Args:
        waits: Whether its sources may wait for all rows. Without checkpoints none comes out before the end.
            When a wall clock is set back, timers wait longer than a run lasts.
    """
    if not draws.chance(_SHARE):
        return None
    kind, splits = draws.pick(tuple(TimedKind)), draws.between(1, 4)
    size = draws.pick((8, 16, 32)) // splits + BLOCK
    spans = (2, 5, 9) if kind is TimedKind.SESSIONS else (5, 9, 20)
    return TimedShape(
        kind,
        tuple(draws.between(size // 2, size) for _ in range(splits)),
        chunk=draws.pick((2, 3, 5)),
        pause=draws.pick((0.0, 0.001, 0.005)),
        parallelism=(draws.between(1, 3), draws.between(1, 3)),
        keys=draws.pick((1, 2, 3, 5)),
        span=draws.pick(spans),
        ttl=draws.pick((0.0, 0.005, 0.02, 0.2)),
        drift=draws.pick((0, 3, 6)),
        is_quiet_beside=draws.chance(0.5) and waits,
        waits=waits,
    )


def _strategy() -> WatermarkStrategy[Item]:
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_moment)


def _moment(item: Item) -> int:
    return item[1] * UNIT


# -- sources ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimedSource:
    """Reads numbered records; it says which splits it has, and can leave some out.

    Attributes:
        system: The world outside.
        is_quiet: Whether it has nothing to say.
    """

    shape: TimedShape
    system: ExternalSystem
    is_quiet: bool = False

    def splits(self, parallelism: int) -> Sequence[Split]:
        """All splits, however many subtasks there are."""
        return [(split, 0, count) for split, count in enumerate((0,) if self.is_quiet else self.shape.counts)]

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> TimedReader:
        """The reader of one subtask."""
        return TimedReader(self, context, [(int(s), int(at), int(end)) for s, at, end in splits])

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for: the sink has a row for each record."""
        if not self.shape.waits:
            return True
        rows: list[Any] = self.system.all_rows(SINK)
        return {item for row, _ in rows for item in row[1]}.issuperset(self.shape.items)


class TimedReader:
    """Reads the splits of one subtask in turn, the odd ones record by record."""

    def __init__(self, source: TimedSource, context: ConnectorContext, splits: list[Split]) -> None:
        self._source = source
        self._clock = context.clock
        self._splits = splits
        self._paused: Set[Hashable] = frozenset()
        self._ready_at = 0.0
        self._beat_every = _BEAT_EVERY

    @property
    def split_progress(self) -> SplitProgress:
        """The splits that are not read to their end."""
        return SplitProgress(tuple(split for split, _, _ in self._splits))

    def pause_splits(self, paused: Set[Hashable]) -> None:
        """Leave these splits out."""
        self._paused = paused

    def poll(self, max_rows: int) -> Polled[Item]:
        """The next records of the split whose turn it is, or a beat of one that is through."""
        now, source = self._clock.monotonic(), self._source
        going = [split for split in self._splits if split[0] not in self._paused]
        is_through = all(at == end for _, at, end in self._splits)
        if not self._splits or (is_through and source.is_over):
            self._splits = []
            return Polled(finished=True)
        if now < self._ready_at or not going:
            return Polled(ready_at=max(self._ready_at, now + 0.02))
        split, at, end = going[0]
        self._splits.remove(going[0])
        upto = min(end, at + (1 if split % 2 else source.shape.chunk))
        self._splits.append((split, upto, end))
        self._ready_at = now + source.shape.pause
        if at == end:
            self._ready_at = now + self._beat_every
            self._beat_every = min(_LONGEST_PAUSE, self._beat_every * 1.2)
        if source.is_quiet:
            return Polled(ready_at=self._ready_at)
        rows = [(split, index) for index in range(at, upto)] or [(split, BEAT)]
        return Polled(RowBatch(rows), split=split)

    def snapshot(self) -> Sequence[Split]:
        """The splits, which all end together."""
        return list(self._splits)

    def close(self) -> None:
        """Nothing is held."""


# -- users' functions -------------------------------------------------------------------------------------


def _session(key: int, window: TimeWindow, items: list[Item]) -> list[Row]:
    """A session with its records."""
    return (
        []
        if key == -1
        else [
            _row(
                "session",
                tuple(sorted(items)),
                key,
                window.start_timestamp // UNIT,
                window.end_timestamp // UNIT,
            )
        ]
    )


def _row(what: str, items: tuple[Item, ...], *more: Any) -> Row:
    """A row of the output, in the form of the simulation's records."""
    return (what, items, *more), ()


class SetTimers(KeyedProcessFunction[int, Item, Row]):
    """Sets timers and deletes some; emits which records' timers have fired, and which were deleted.

    Args:
        span: Positions until a timer of event time; 0 for timers of processing time.
        hooks: Called at each call of the user's code.
    """

    def __init__(self, span: int, hooks: CodeHooks) -> None:
        self._span = span
        self._hooks = hooks
        self._due: MapState[int, tuple[Item, ...]] | None = None

    def open(self, ctx: RuntimeContext) -> None:
        """Bind the state."""
        self._due = ctx.map_state(DUE)

    def process(self, value: Item, ctx: RuntimeContext) -> Iterator[Row]:
        """Set a timer, or delete the one of the first record of this block."""
        assert self._due is not None, "open comes first"
        self._hooks.record(ctx.operator_id, ctx.subtask)
        split, index = value
        if index == BEAT:
            return
        place, service = index % BLOCK, ctx.timer_service
        if place == BLOCK - 1:
            yield from self._delete((split, index - place), ctx)
            yield _row("passed", (value,))
            return
        if self._span:
            at = (index - (place == 2) + self._span) * UNIT + split
            if service.current_watermark is not None and at <= service.current_watermark:
                yield _row("passed", (value,))  # at least once: it has fired already
                return
            service.register_event_time_timer(at)
        else:
            at = service.current_processing_time + int(_DELAYS[place] * 1_000_000)
            service.register_processing_time_timer(at)
        self._due[at] = (*self._due.get(at, ()), value)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Row]:
        """The records of this timer."""
        assert self._due is not None, "open comes first"
        items = self._due.pop(at, ())
        yield _row("fired" if items else "fired for nothing", tuple(items))

    def _delete(self, item: Item, ctx: RuntimeContext) -> Iterator[Row]:
        assert self._due is not None, "open comes first"
        service = ctx.timer_service
        delete: Callable[[int], None] = (
            service.delete_event_time_timer if self._span else service.delete_processing_time_timer
        )
        for at, items in list(self._due.items()):
            if item in items:
                left = tuple(each for each in items if each != item)
                if left:
                    self._due[at] = left
                else:
                    del self._due[at]
                    delete(at)
                yield _row("deleted", (item,))


class Expiring(KeyedProcessFunction[int, Item, Row]):
    """Numbers the records of a key in two states, one of which expires; emits what it has seen in both.

    Args:
        ttl: Of the state that expires.
        hooks: Called at each call of the user's code.
    """

    def __init__(self, ttl: StateTtl, hooks: CodeHooks) -> None:
        self._ttl = ttl
        self._hooks = hooks
        self._last: ValueState[tuple[int, int]] | None = None
        self._expiring: ValueState[int | None] | None = None

    def open(self, ctx: RuntimeContext) -> None:
        """Bind the states."""
        self._last = ctx.value_state("last", default=(0, 0))
        self._expiring = ctx.value_state("expiring", ttl=self._ttl)

    def process(self, value: Item, ctx: RuntimeContext) -> list[Row]:
        """One more record of the current key."""
        assert self._last is not None, "open comes first"
        assert self._expiring is not None, "open comes first"
        self._hooks.record(ctx.operator_id, ctx.subtask)
        if value[1] == BEAT:
            return []
        now = ctx.timestamp if self._ttl.time == "event" else ctx.timer_service.current_processing_time
        assert now is not None, "its source gives timestamps"
        (number, written), seen = self._last.value(), self._expiring.value()
        # Every third record only reads, so that entries expire at all.
        if value[1] % 3:
            self._last.update((number + 1, max(written, now)))  # a late record shortens no life
            self._expiring.update(number + 1)
        return [_row("seen", (value,), now, number, written, seen)]
