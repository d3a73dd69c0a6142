"""A system outside of a simulated job, whose positions master hooks give to checkpoints.

It outlives every JobMaster. Each answer of a hook is a position that was never given before, so a restore
shows which answer it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.runtime.checkpoint.log.records import CheckpointCompleted, decode_record
from penstock.runtime.graph.collection_source import CollectionReader, CollectionSource
from penstock.runtime.operators.source import Polled
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.simulation.world.world import SimulatedUserError

BEFORE: Final = "before its answer"
DURING: Final = "between what it does outside and its answer"
AFTER: Final = "behind its answer"
AT_RECORD: Final = "in front of the record"
BEHIND_RECORD: Final = "behind the record"


class Outside:
    """Positions, and what hooks did.

    Attributes:
        given: What each hook gave for each checkpoint, in order.
        asked: What hooks were asked to restore, in order: hook, checkpoint, state.
        closed: Hooks that were closed.
        strike: Called at each place that a hook or the storage passes, with the hook's name.
        deaths: Number of JobMasters that have died.
        has_ended: Whether the data ends.
    """

    def __init__(self) -> None:
        self.given: dict[tuple[str, int], list[Any]] = {}
        self.asked: list[tuple[str, int | None, Any]] = []
        self.closed: list[str] = []
        self.strike: Callable[[str, str], None] = lambda place, hook: None
        self.deaths = 0
        self.has_ended = False
        self._position = 0

    def advance(self, hook: str, checkpoint_id: int) -> dict[str, Any]:
        """Cut here: the state of one hook for one checkpoint."""
        self._position += 1
        state = {"hook": hook, "position": self._position}
        self.given.setdefault((hook, checkpoint_id), []).append(state)
        return state


class OutsideHook:
    """One hook in one JobMaster; does nothing any more when that has died."""

    def __init__(self, identifier: str, outside: Outside) -> None:
        self.identifier = identifier
        self._outside = outside
        self._born = outside.deaths

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> Any:
        self._pass(BEFORE)
        state = self._outside.advance(self.identifier, checkpoint_id)
        self._pass(DURING)
        return state

    def restore_checkpoint(self, checkpoint_id: int, state: Any) -> None:
        self._live()
        self._outside.asked.append((self.identifier, checkpoint_id, state))

    def reset(self) -> None:
        self._live()
        self._outside.asked.append((self.identifier, None, None))

    def close(self) -> None:
        self._live()
        self._outside.closed.append(self.identifier)

    def _pass(self, place: str) -> None:
        self._live()
        self._outside.strike(place, self.identifier)
        self._live()

    def _live(self) -> None:
        if self._outside.deaths != self._born:
            msg = "its process is dead"
            raise SimulatedUserError(msg)


class LastingReader(CollectionReader[int]):
    """Reads a few numbers a poll; ends when the system outside has ended."""

    def __init__(self, values: Any, splits: Any, outside: Outside) -> None:
        super().__init__(values, splits)
        self._outside = outside

    def poll(self, max_rows: int) -> Polled[int]:
        polled = super().poll(2)
        return replace(polled, finished=polled.finished and self._outside.has_ended)


class HookedNumbers(CollectionSource[int]):
    """Numbers, and a hook."""

    def __init__(self, numbers: Sequence[int], identifier: str, outside: Outside) -> None:
        super().__init__(numbers)
        self._identifier = identifier
        self._outside = outside

    def reader(self, context: Any, splits: Any) -> LastingReader:
        return LastingReader(self._values, splits, self._outside)

    def master_hook(self) -> OutsideHook:
        return OutsideHook(self._identifier, self._outside)


class RecordedStorage(MemoryStorage):
    """A checkpoint storage that tells of the records of complete checkpoints."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        is_record = "/log/" in path and isinstance(decode_record(data, path), CheckpointCompleted)
        born = self._outside.deaths
        if is_record:
            self._outside.strike(AT_RECORD, "")
        if born == self._outside.deaths:
            super().put(path, data, create=create)
        if is_record:
            self._outside.strike(BEHIND_RECORD, "")
