"""Faults of stored files: a flipped bit, or a lost file.

A strike looks for a file of its kind, in the log or in the newest checkpoint that has one. If there is none,
it retries a few times, and then takes a file of another kind. Often it also kills a process or the JobMaster,
so that the job reads the file.

Some faults never occur, because no reader could detect them. The newest record of a log is never lost: the
log would look as it did before. The record of an attempt is never lost: a JobMaster of an earlier attempt
might take its slot. The listings of a log with damaged files are always complete, because a reader needs
either the files or the listings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, TypeAlias

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import AttemptBegun, LogView
from penstock.runtime.errors import CorruptSnapshotError, ObjectNotFoundError
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle, OperatorSubtaskState, StateHandle
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.simulation.run.target import Strike, Target
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind

#: Seconds between two searches for a file that does not exist yet.
_POLL: Final = 0.005

_MOST_SEARCHES: Final = 500

#: Number of searches after which a file of another kind may be taken.
_SEARCHES_FOR_ONE_KIND: Final = 8

#: Number of searches that wait until there is an older checkpoint, if one may be restored.
_SEARCHES_FOR_OLDER: Final = 100


#: Consequences of a strike, weighted by their number of entries.
_THEN: Final = (None, *(FaultKind.MASTER_CRASH,) * 3, *(FaultKind.CRASH,) * 2)

IN_FLIGHT_DAMAGE: Final = (FaultKind.FLIPPED_IN_FLIGHT, FaultKind.IN_FLIGHT_GONE)

RARE_DAMAGE: Final = (
    FaultKind.FLIPPED_CHANGES,
    FaultKind.CHANGES_GONE,
    FaultKind.FLIPPED_SAVEPOINT,
    FaultKind.SAVEPOINT_GONE,
)


class _Files:
    """The files from which a job would be restored now; each is read once."""

    def __init__(self, target: Target) -> None:
        self.job_id = target.control.job.id
        self.paths = SnapshotPaths(self.job_id)
        self.storage = target.world.storage.reliable()
        self.reader = DecisionLogReader(self.storage, self.paths, allow_damaged=True)
        self._seen = target.world.storage.changes
        self._known: dict[int, CompletedCheckpoint] = {}

    def is_current(self, target: Target) -> bool:
        return target.control.job.id == self.job_id and target.world.storage.changes == self._seen

    @cached_property
    def found(self) -> Mapping[FaultKind, list[str]]:
        return {kind: paths for kind, find in (_FLIPPED | _GONE).items() if (paths := find(self))}

    @cached_property
    def view(self) -> LogView:
        return self.reader.replay()

    def kept(self) -> Iterator[CompletedCheckpoint]:
        for record in reversed(self.view.completed):
            known = self._known.get(record.checkpoint_id)
            if known is None:
                known = replace(read_metadata(self.storage, record.metadata), metadata=record.metadata)
                self._known[record.checkpoint_id] = known
            yield known

    def slots(self) -> list[str]:
        view = self.view
        first = 0 if view.compacted_at is None else view.compacted_at
        return [self.paths.log_slot(slot) for slot in range(first, view.next_slot)]

    def slots_to_lose(self) -> list[str]:
        found = []
        for path in self.slots()[:-1]:
            slot = self.paths.slot_of(path)
            assert slot is not None, f"{path} is not a slot"
            if not isinstance(self.reader.read(slot), AttemptBegun):
                found.append(path)
        return found

    def hint(self) -> list[str]:
        return [path for path in self.storage.list(self.paths.log) if path == self.paths.log_hint]

    def metadata(self) -> list[str]:
        return [record.metadata.path for record in self.view.completed[-1:]]

    def savepoint(self) -> list[str]:
        for kept in self.kept():
            if kept.is_savepoint and kept.metadata is not None:
                location = kept.location
                folder = "" if location is None else location.removeprefix(f"{self.storage.url}/") + "/"
                files = [folder + handle.path for handle in replace(kept, metadata=None).files()]
                return [*files, kept.metadata.path]
        return []

    def state(self) -> list[str]:
        return self._newest(lambda state: [handle for keyed in state.keyed for handle in keyed.files[:1]])

    def changes(self) -> list[str]:
        return self._newest(lambda state: [handle for keyed in state.keyed for handle in keyed.files[1:]])

    def lists(self) -> list[str]:
        return self._newest(lambda state: [saved.state for saved in state.operator])

    def in_flight(self) -> list[str]:
        return self._newest(lambda state: [] if state.channels is None else [state.channels.state])

    def _newest(self, handles: Callable[[OperatorSubtaskState], Sequence[StateHandle]]) -> list[str]:
        for kept in self.kept():
            states = [state for operator in kept.operators.values() for state in operator.subtasks.values()]
            found = [file.path for state in states for file in handles(state) if isinstance(file, FileHandle)]
            if found and kept.location is None:
                return found
        return []


def _state_files(files: _Files) -> list[str]:
    return files.state() + files.lists()


#: Finds the files of each kind.
_Finders: TypeAlias = dict[FaultKind, Callable[[_Files], list[str]]]

_FLIPPED: Final[_Finders] = {
    FaultKind.FLIPPED_SLOT: _Files.slots,
    FaultKind.FLIPPED_HINT: _Files.hint,
    FaultKind.FLIPPED_METADATA: _Files.metadata,
    FaultKind.FLIPPED_STATE: _state_files,
    FaultKind.FLIPPED_CHANGES: _Files.changes,
    FaultKind.FLIPPED_IN_FLIGHT: _Files.in_flight,
    FaultKind.FLIPPED_SAVEPOINT: _Files.savepoint,
}

_GONE: Final[_Finders] = {
    FaultKind.SLOT_GONE: _Files.slots_to_lose,
    FaultKind.HINT_GONE: _Files.hint,
    FaultKind.METADATA_GONE: _Files.metadata,
    FaultKind.STATE_GONE: _state_files,
    FaultKind.CHANGES_GONE: _Files.changes,
    FaultKind.IN_FLIGHT_GONE: _Files.in_flight,
    FaultKind.SAVEPOINT_GONE: _Files.savepoint,
}


def _strike(target: Target, *, kind: FaultKind, searches: int = 0, known: _Files | None = None) -> None:
    world, control = target.world, target.control
    if control.end is not None or searches > _MOST_SEARCHES:
        return
    files = known if known is not None and known.is_current(target) else _Files(target)
    struck = _choose(target, files, kind, searches)
    if struck is None:
        at = world.clock.monotonic() + _POLL
        again = partial(_strike, target, kind=kind, searches=searches + 1, known=files)
        world.agenda.add(Happening.OPERATION, again, "a fault searches for a file to damage", at=at)
        return
    really, path = struck
    world.trace.note("!!", path, really.value)
    if not world.storage.damage(path, really, None if really in _GONE else target.draws):
        return
    world.damage[path] = really
    then = target.draws.pick(_THEN)
    if then is FaultKind.MASTER_CRASH:
        control.crash_master()
    elif then is FaultKind.CRASH and (victim := target.victim()) is not None:
        victim.die(FaultKind.CRASH)


def _choose(target: Target, files: _Files, kind: FaultKind, searches: int) -> tuple[FaultKind, str] | None:
    """Choose a file to strike, and return it with its kind.

    No file is struck while several JobMasters live: one of them may not know the end of the log.
    """
    masters = target.control.masters
    if len(masters.alive) != 1 or masters.answering is None:
        return None
    job = target.control.job
    allow_older = job.config.checkpointing is not None and job.config.checkpointing.allow_older
    try:
        completed = files.view.completed
        if allow_older and len(completed) < 2 and searches < _SEARCHES_FOR_OLDER:
            return None
        if completed:
            newest = completed[-1]
            target.world.fallbacks.completed(job.id, newest.attempt, newest.checkpoint_id)
        found = files.found
    except (CorruptSnapshotError, ObjectNotFoundError):
        return None  # an earlier strike has damaged the log or metadata
    if kind not in found:
        found = {other: paths for other, paths in found.items() if (other in _GONE) == (kind in _GONE)}
        if not completed or not found or searches < _SEARCHES_FOR_ONE_KIND:
            return None
        rare = [other for other in found if other in RARE_DAMAGE or other in IN_FLIGHT_DAMAGE]
        kind = target.draws.pick(rare or list(found))
    return kind, target.draws.pick(found[kind][-4:])


#: Strikes on stored files.
DAMAGE: Final[Mapping[FaultKind, Strike]] = {kind: partial(_strike, kind=kind) for kind in _FLIPPED | _GONE}
