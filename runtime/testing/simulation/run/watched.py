"""Wrappers of a user's operators and sources, which inject faults and slow sources down.

In most runs rows come one by one, so a slice may end after any of them. In others they come in small batches.
The process may die before each call of users' code, and after a commit. Users' code may be slow, or fail.

A user's source is slowed down, so that checkpoints and failures come while it still reads. Otherwise a test's
input of some dozen records would be read in one step. Only `poll` changes: it returns fewer records, and none
during a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.runtime.operators.functions.record_functions import MapBatchesOperator
from penstock.runtime.operators.operator import Operator, Output
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import ConnectorContext, Polled, Source
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit


@dataclass(frozen=True, slots=True)
class Strikes:
    """Hooks of the simulation around users' code.

    Attributes:
        record: Called before users' code takes a record, which takes time and may fail.
        effect: Called before users' code has an effect outside; the process may die.
        committed: Called after a commit.
    """

    record: Callable[[], None]
    effect: Callable[[], None]
    committed: Callable[[], None]


def watched(operator: Operator, strikes: Strikes, rows: int = 1) -> Operator:
    """Let faults strike an operator, which takes up to `rows` records at a time (0 for no limit)."""
    is_sink = isinstance(operator, SinkOperator)
    takes_batches = isinstance(operator, MapBatchesOperator)
    process_part, notify = operator.process, operator.notify_checkpoint_complete

    def process(batch: Batch) -> Iterator[Output]:
        is_whole = takes_batches or not isinstance(batch, RowBatch)
        for part in [batch] if is_whole else batch.slices(rows or max(1, len(batch))):
            for _ in range(len(part)):
                strikes.record()
            if is_sink:
                strikes.effect()
            yield from process_part(part)

    def notify_checkpoint_complete(permit: CommitPermit) -> None:
        strikes.effect()
        notify(permit)
        if is_sink:
            strikes.committed()
            strikes.effect()

    def after_effect(call: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*arguments: Any) -> Any:
            strikes.effect()
            return call(*arguments)

        return struck

    replaced: dict[str, Any] = {
        "process": process,
        "notify_checkpoint_complete": notify_checkpoint_complete,
        "flush": after_effect(operator.flush),
        "prepare_snapshot_pre_barrier": after_effect(operator.prepare_snapshot_pre_barrier),
        "handle_event": after_effect(operator.handle_event),
        "snapshot": after_effect(operator.snapshot),
    }
    for name, method in replaced.items():
        object.__setattr__(operator, name, method)
    return operator


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of sources.

    Attributes:
        chunk: Maximum records of one poll.
        pause: Virtual seconds between two polls.
        rows: Maximum records of an operator at a time; 0 for no limit.
    """

    chunk: int
    pause: float
    rows: int = 1


def paced(source: Source[Any], pace: Pace) -> Source[Any]:
    """Return the source with this pace, or unchanged if its class can't be extended."""

    def reader(self: Any, context: ConnectorContext, splits: Any) -> Any:
        return _paced_reader(kind.reader(self, context, splits), context, pace)

    kind = type(source)
    _extend(source, {"reader": reader})
    return source


def _paced_reader(reader: Any, context: ConnectorContext, pace: Pace) -> Any:
    kind = type(reader)
    ready_at = [0.0]

    def poll(self: Any, max_rows: int) -> Any:
        now = context.clock.monotonic()
        if now < ready_at[0]:
            return Polled(ready_at=ready_at[0])
        ready_at[0] = now + pace.pause
        return kind.poll(self, min(max_rows, pace.chunk))

    _extend(reader, {"poll": poll})
    return reader


def _extend(thing: Any, methods: dict[str, Any]) -> None:
    """Override methods of one object of any class; errors still show that class."""
    kind = type(thing)
    try:
        extended = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})
        object.__setattr__(thing, "__class__", extended)
    except TypeError:  # a class of C, a final one, or one that counts its subclasses' arguments
        return
