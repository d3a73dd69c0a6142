"""`HybridSource`: one source after the other, such as files and then a stream (Flink's `HybridSource`).

The source has two *phases*, the history and the live source. Its enumerator runs the enumerator of the
current phase's source. For a source without an enumerator, it runs `OnRequest` in the history and `_Shares`
in the live phase. Every split that a reader gets names its phase, and a live split also names the live
source's start. So a reader knows, even after a restore, the source of each split.

**The switch.** The history has ended when no reader has a split, and no more splits will come. Only then does
the live source begin, in all readers. So no record of the history follows a live record. A reader without
splits keeps its watermark until it gets a live split, unless the strategy's idleness makes it idle. `switch`
runs in the background. Its result is in the enumerator's state and in the live splits.

**Why nothing is lost or read twice.** A checkpoint holds each split once, in a reader or in the enumerator
(`source_coordinator.py`). If the enumerator's state was taken in the history phase, no reader has a live
split, because these are assigned after the switch. If it was taken in the live phase, all readers had ended
the history before. A job that is restored from a checkpoint between the end of the history and the switch
finds idle readers, and switches again.

When the source's region restarts alone, some readers may read splits of the history again while others read
live splits. The enumerator gets back the splits that are missing from the restored readers. It assigns
history splits before live splits. A snapshot at this time may have splits of both phases, so a reader reads
its splits phase by phase.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, Generic, TypeVar

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.requested_splits import (
    NOTHING_LEFT,
    EndedReaders,
    can_pause_splits,
    progress_within,
    refuse_induced,
)
from penstock.runtime.operators.source import (
    AddsSplits,
    ConnectorContext,
    EnumeratesSplits,
    FollowsCheckpoints,
    HearsOfFailedReaders,
    NeededColumns,
    PausesSplits,
    Polled,
    ReadsInPart,
    ReportsLag,
    ReportsSplits,
    Source,
    SourceReader,
    SplitEnumerator,
    SplitEnumeratorContext,
    SplitProgress,
)
from penstock.runtime.operators.source_coordinator import OnRequest
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.time.durations import Duration
from penstock.runtime.user_location import function_location

T = TypeVar("T")
R = TypeVar("R")

#: Phases of the source.
HISTORY: Final = 0
LIVE: Final = 1

#: Phase, start of the live source, split of the phase's source.
_Split = tuple[int, Any, Any]


@dataclass(frozen=True, slots=True)
class EndOfHistory:
    """The end of the history, for `switch` of a `HybridSource`.

    Attributes:
        splits: All splits of the history, as its source listed them.
    """

    splits: tuple[Any, ...]


class HybridSource(Generic[T], metaclass=NearestNames):
    """Reads a bounded source to its end, then another source: files, then a stream.

    No record of the second source is read before the last record of the first. After a restart of the
    source's region alone this holds for each reader, but not between readers. Records are read exactly
    once, even when a job is restored before, during or after the switch, or at another parallelism. Until
    the switch a reader without splits keeps its watermark, unless the strategy has `with_idleness`.

    Args:
        history: The bounded source. Unless it has an enumerator, its splits are assigned on request, as by
            `OnRequest`.
        then: The source that follows. With `switch`, a function that takes the start and returns the source.
            The function runs in the JobMaster and in each subtask, and must return the same source for the
            same start.
        switch: Function that computes the start of the second source from an `EndOfHistory`, when the history
            has been read. The start is any value that the codec can encode, such as an offset. The function
            may block. After a failure it may run again; only one result is used.

    Raises:
        ConfigurationError: An argument is not a source or a function.

    Example:
        >>> from penstock import CollectionSource, GeneratorSource
        >>> source = HybridSource(
        ...     CollectionSource(range(100)),
        ...     then=lambda first: GeneratorSource(lambda n: first + n),
        ...     switch=lambda end: max(stop for _, stop in end.splits),
        ... )
        >>> type(source.live(100)).__name__
        'GeneratorSource'
    """

    def __init__(
        self,
        history: Source[T],
        then: Source[T] | Callable[[Any], Source[T]],
        switch: Callable[[EndOfHistory], Any] | None = None,
    ) -> None:
        if isinstance(history, type) or not isinstance(history, Source):
            msg = f"HybridSource: history must be a source, not {short_repr(history)}"
            raise ConfigurationError(msg)
        if switch is not None and not callable(switch):
            msg = f"HybridSource: switch must be a function of an EndOfHistory, not {short_repr(switch)}"
            raise ConfigurationError(msg)
        if switch is not None and (isinstance(then, Source) or not callable(then)):
            msg = (
                "HybridSource: with switch, then must be a function from the result of switch to a "
                f"source, not {short_repr(then)}"
            )
            raise ConfigurationError(msg)
        self._history = history
        self._then = then
        self.switch = switch
        if switch is None:
            self.live(None)

    @property
    def only_reads(self) -> bool:
        """Whether neither source changes or keeps a returned record."""
        return all(getattr(source, "only_reads", False) is True for source in (self._history, self._then))

    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of the rows if both sources have the same one, else `None`."""
        schemas = [getattr(source, "arrow_schema", None) for source in (self._history, self._then)]
        return schemas[0] if schemas[0] == schemas[1] else None

    def reading(self, needed: NeededColumns) -> Source[T]:
        """Return a source that reads only the needed columns and rows, if the sources support that."""
        made = copy.copy(self)
        made._history = _in_part(needed, self._history)
        then = self._then
        if isinstance(then, Source):
            made._then = _in_part(needed, then)
        else:
            made._then = lambda start: _in_part(needed, then(start))
        return made

    def splits(self, parallelism: int) -> Sequence[_Split]:
        """List the splits of the history."""
        return [(HISTORY, None, split) for split in self._history.splits(parallelism)]

    def reader(self, context: ConnectorContext, splits: Sequence[_Split]) -> HybridReader[T]:
        """Make the reader of one subtask, which reads the splits phase by phase."""
        return HybridReader(self, context, splits)

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> HybridEnumerator:
        """Make the enumerator that switches from one source to the other."""
        return HybridEnumerator(self, context, state)

    def of_phase(self, phase: int, start: Any) -> Source[T]:
        """The source of a phase."""
        return self._history if phase == HISTORY else self.live(start)

    def live(self, start: Any) -> Source[T]:
        """The source that follows the history; raises `ConfigurationError` if it is not a source."""
        then = self._then
        source = then if self.switch is None or isinstance(then, Source) else then(start)
        if isinstance(source, type) or not isinstance(source, Source):
            what = "then must be a source" if self.switch is None else "then must return a source"
            hint = " unless there is a switch" if callable(source) else ""
            msg = f"HybridSource: {what}{hint}, not {short_repr(source)}"
            raise ConfigurationError(msg)
        return source


def _in_part(needed: NeededColumns, source: Source[T]) -> Source[T]:
    return source.reading(needed) if isinstance(source, ReadsInPart) else source


class HybridReader(Generic[T]):
    """Reads the splits of the history, then live ones; a reader usually has splits of one phase only."""

    def __init__(self, source: HybridSource[T], context: ConnectorContext, splits: Sequence[_Split]) -> None:
        self._source = source
        self._context = context
        ordered = sorted(splits, key=lambda split: split[0])
        self._waiting = [list(some) for _, some in groupby(ordered, key=lambda split: split[:2])]
        self._place: tuple[int, Any] = (HISTORY, None)
        self._reader: SourceReader[T] | None = None
        self._ended = EndedReaders()
        self._reports: ReportsSplits | None = None
        self._pauses: PausesSplits | None = None
        self._progress = SplitProgress((), has_waiting=bool(self._waiting))
        #: Whether the reader that was polled last makes new records.
        self.makes_new_records = False

    def poll(self, max_rows: int) -> Polled[T]:
        if self._reader is None:
            if not self._waiting:
                return Polled(finished=True)
            self._begin()
        assert self._reader is not None, "a reader has begun"
        polled = self._reader.poll(max_rows)
        if not isinstance(polled, Polled):
            return polled
        if polled.batch is not None:
            polled = replace(polled, split=(self._place[0], polled.split))
        if not polled.finished:
            return polled
        reader, self._reader, self._pauses = self._reader, None, None
        self._ended.add(reader)
        return replace(polled, finished=not self._waiting)

    def add_splits(self, splits: Sequence[_Split]) -> None:
        """Add these splits to the reader of their phase if it can take them; else read them after it."""
        ordered = sorted(splits, key=lambda split: split[0])
        for place, some in groupby(ordered, key=lambda split: split[:2]):
            if place == self._place and isinstance(self._reader, AddsSplits):
                added: object = self._reader.add_splits([split for *_, split in some])
                check_has_run("add_splits", added)
            else:
                self._waiting.append(list(some))

    def snapshot(self) -> Sequence[_Split]:
        reading = [] if self._reader is None else self._reader.snapshot()
        waiting = [split for some in self._waiting for split in some]
        ended = self._ended.snapshot()
        if ended:
            msg = (
                f"source '{self._context.operator_id}': a reader of the HybridSource has returned "
                f"Polled(finished=True), but its snapshot still has splits: {short_repr(ended)}. A reader "
                "that has ended must have no split left"
            )
            raise ConnectorError(msg)
        return [*((*self._place, split) for split in reading), *waiting]

    def snapshot_taken(self, checkpoint_id: int) -> None:
        """Note that the last snapshot belongs to this checkpoint."""
        self._ended.snapshot_taken(checkpoint_id, self._reader)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Release the records that this checkpoint covers."""
        self._ended.notify_checkpoint_complete(checkpoint_id, self._reader)

    @property
    def split_progress(self) -> SplitProgress:
        progress = progress_within(self._place[0], self._reader, self._reports, bool(self._waiting))
        if progress != self._progress:
            self._progress = progress
        return self._progress

    def lag(self) -> SourceLag | None:
        """The lag of the live reader; unknown during the history, because the live splits are not known."""
        if self._place[0] != LIVE or self._waiting:
            return None
        reader = self._reader
        if reader is None:
            return NOTHING_LEFT
        return reader.lag() if isinstance(reader, ReportsLag) else None

    @property
    def can_pause_splits(self) -> bool:
        """Whether the reader of the current phase pauses single splits."""
        return can_pause_splits(self._pauses)

    def pause_splits(self, paused: Set[Any]) -> None:
        if self._pauses is not None:
            mine = frozenset(split for phase, split in paused if phase == self._place[0])
            done: object = self._pauses.pause_splits(mine)  # type: ignore[func-returns-value]
            check_has_run("pause_splits", done)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            check_has_run("close", reader.close())  # type: ignore[func-returns-value]
        self._ended.close()

    def _begin(self) -> None:
        splits = self._waiting.pop(0)
        place = splits[0][:2]
        source = self._source.of_phase(*place)
        reader = self._reader = source.reader(self._context, [split for *_, split in splits])
        self._place = place  # after the reader: `lag` runs in another thread
        refuse_induced(reader)
        self._reports = reader if isinstance(reader, ReportsSplits) else None
        self._pauses = reader if isinstance(reader, PausesSplits) else None
        self.makes_new_records = getattr(reader, "makes_new_records", False) is True


class _PhaseContext:
    """The context of the enumerator of one phase: adds the phase to its calls, and drops late results."""

    def __init__(self, owner: HybridEnumerator, phase: int) -> None:
        self._owner = owner
        self._phase = phase

    @property
    def operator_id(self) -> str:
        return self._owner.context.operator_id

    @property
    def parallelism(self) -> int:
        return self._owner.context.parallelism

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        self._owner.assign(self._phase, subtask, splits)

    def signal_no_more_splits(self, subtask: int) -> None:
        self._owner.no_more_splits(self._phase, subtask)

    def run_in_background(
        self,
        work: Callable[[], R],
        on_result: Callable[[R], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        owner, phase = self._owner, self._phase

        def finished(call: Callable[[Any], None], result: Any) -> None:
            if owner.phase == phase:  # the enumerator of an earlier phase is closed
                call(result)

        failed = None if on_error is None else partial(finished, on_error)
        owner.context.run_in_background(work, partial(finished, on_result), failed)

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        def due() -> None:
            if self._owner.phase == self._phase:
                callback()

        self._owner.context.call_later(delay, due)


class HybridEnumerator:
    """Runs the enumerator of the history, then the enumerator of the live source.

    Attributes:
        context: The context of the whole source.
        phase: `HISTORY` or `LIVE`.
    """

    def __init__(self, source: HybridSource[Any], context: SplitEnumeratorContext, state: Any | None) -> None:
        self._source = source
        self.context = context
        known = {} if state is None else state
        self.phase: int = known.get("phase", HISTORY)
        self._start: Any = known.get("start")
        self._history: list[Any] = list(known.get("history", ()))
        self._returned: list[Any] = list(known.get("returned", ()))
        self._is_switching = False
        self._idle: set[int] = set()
        self._through: set[int] = set()
        self._enumerator = self._made(known.get("enumerator"))

    def start(self) -> None:
        check_has_run("start", self._enumerator.start())  # type: ignore[func-returns-value]

    def handle_split_request(self, subtask: int) -> None:
        self._idle.add(subtask)
        if self._returned:
            self._idle.discard(subtask)
            self.context.assign(subtask, [(HISTORY, None, self._returned.pop(0))])
            return
        self._enumerator.handle_split_request(subtask)
        self._switch_if_through()

    def assign(self, phase: int, subtask: int, splits: Sequence[Any]) -> None:
        self._idle.discard(subtask)
        self._through.discard(subtask)
        if phase == HISTORY and self._source.switch is not None:
            self._history.extend(splits)
        start = None if phase == HISTORY else self._start
        self.context.assign(subtask, [(phase, start, split) for split in splits])

    def no_more_splits(self, phase: int, subtask: int) -> None:
        if phase == LIVE:
            self.context.signal_no_more_splits(subtask)
            return
        self._through.add(subtask)
        self._switch_if_through()

    def reader_failed(self, subtask: int) -> None:
        self._idle.discard(subtask)
        self._through.discard(subtask)
        if isinstance(self._enumerator, HearsOfFailedReaders):
            self._enumerator.reader_failed(subtask)

    def add_splits_back(self, splits: Sequence[_Split]) -> None:
        history = [split for phase, _, split in splits if phase == HISTORY]
        live = [split for phase, _, split in splits if phase == LIVE]
        if self.phase == LIVE:
            self._returned += history
            if live:
                self._enumerator.add_splits_back(live)
        elif history:
            self._history = [split for split in self._history if split not in history]  # `assign` adds them
            self._enumerator.add_splits_back(history)

    def snapshot(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "start": self._start,
            "history": list(self._history),
            "returned": list(self._returned),
            "enumerator": self._enumerator.snapshot(),
        }

    def snapshot_taken(self, checkpoint_id: int) -> None:
        """Pass on to the enumerator of the current phase."""
        if isinstance(self._enumerator, FollowsCheckpoints):
            check_has_run("snapshot_taken", self._enumerator.snapshot_taken(checkpoint_id))  # type: ignore[func-returns-value]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Pass on to the enumerator of the current phase, which may not have known this checkpoint."""
        if isinstance(self._enumerator, FollowsCheckpoints):
            done: object = self._enumerator.notify_checkpoint_complete(checkpoint_id)  # type: ignore[func-returns-value]
            check_has_run("notify_checkpoint_complete", done)

    def close(self) -> None:
        self._enumerator.close()

    def _made(self, state: Any | None) -> SplitEnumerator:
        source = self._source.of_phase(self.phase, self._start)
        context = _PhaseContext(self, self.phase)
        if isinstance(source, EnumeratesSplits):
            return source.enumerator(context, state)
        if self.phase == HISTORY:
            return OnRequest(source).enumerator(context, state)
        return _Shares(source, context, state)

    @property
    def _is_through(self) -> bool:
        """Whether no reader has a split, and no more splits will come."""
        readers = range(self.context.parallelism)
        return self.phase == HISTORY and self._idle.issuperset(readers) and self._through.issuperset(readers)

    def _switch_if_through(self) -> None:
        if self._is_through and not self._is_switching:
            self._is_switching = True
            self.context.run_in_background(
                partial(self._computed_start, tuple(self._history)), self._switched
            )

    def _computed_start(self, splits: tuple[Any, ...]) -> Any:
        switch, source = self._source.switch, f"source '{self.context.operator_id}'"
        try:
            start = None if switch is None else switch(EndOfHistory(splits))
            self._source.live(start)  # an error of the user's function fails the job here
        except ConfigurationError as error:
            msg = f"{source}: {error}"
            raise ConfigurationError(msg) from error
        except Exception as error:
            where = "" if switch is None else f" by switch {function_location(switch)}"
            msg = f"{source}: the start of the live source could not be computed{where}: {error_text(error)}"
            raise ConnectorError(msg) from error
        return start

    def _switched(self, start: Any) -> None:
        self._is_switching = False
        if not self._is_through:
            return  # a reader has failed since, and reads its splits again
        self._enumerator.close()
        self.phase, self._start, self._history = LIVE, start, []
        self._enumerator = self._made(None)
        self.start()
        for subtask in sorted(self._idle):
            self._enumerator.handle_split_request(subtask)


class _Shares:
    """Gives each reader a share of the (possibly unbounded) splits; `state` is `None` for a fresh start."""

    def __init__(self, source: Source[Any], context: SplitEnumeratorContext, state: Any | None) -> None:
        self._source = source
        self._context = context
        self._unassigned: list[Any] | None = None if state is None or not state[0] else list(state[1])
        self._waiting: dict[int, None] = {}
        self._served: set[int] = set()

    def start(self) -> None:
        if self._unassigned is None:
            parallelism = self._context.parallelism
            self._context.run_in_background(lambda: list(self._source.splits(parallelism)), self._listed)

    def handle_split_request(self, subtask: int) -> None:
        self._waiting[subtask] = None
        self._serve()

    def reader_failed(self, subtask: int) -> None:
        self._waiting.pop(subtask, None)
        self._served.discard(subtask)

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        self._unassigned = [*splits, *(self._unassigned or ())]
        self._serve()

    def snapshot(self) -> tuple[bool, list[Any]]:
        return self._unassigned is not None, list(self._unassigned or ())

    def close(self) -> None:
        """Do nothing."""

    def _listed(self, splits: list[Any]) -> None:
        self._unassigned = splits
        self._serve()

    def _serve(self) -> None:
        while self._unassigned is not None and self._waiting:
            subtask = next(iter(self._waiting))
            del self._waiting[subtask]
            if not self._unassigned:
                self._context.signal_no_more_splits(subtask)
                continue
            left = max(1, self._context.parallelism - len(self._served))
            count = -(-len(self._unassigned) // left)
            share, self._unassigned = self._unassigned[:count], self._unassigned[count:]
            self._served.add(subtask)
            self._context.assign(subtask, share)
