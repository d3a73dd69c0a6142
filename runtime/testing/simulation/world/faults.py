"""The failures of a simulated run: their kinds and moments, their draws, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.runtime.testing.simulation.world.agenda import Draws


class FaultKind(Enum):
    """The kinds of faults, by the part of the world; the value is the name in the summary."""

    # -- processes --
    CRASH = "crash between steps"
    CRASH_IN_STEP = "crash inside a step"
    CRASH_IN_UPLOAD = "upload stopped half-way"
    CRASH_IN_RESTART = "crash during a restart"
    CRASH_AT_VALVE = "crash while a valve was shut"
    CRASH_WHILE_STORED = "crash during a stored alignment"
    CRASH_AFTER_END = "process of a finished subtask died, its last answers lost"
    USER_ERROR = "user function failed"
    DEPLOYMENT_FAILED = "deployment failed"
    WARM_PROCESS_USELESS = "warm process dead, silent or refusing"
    LEASE_OVER = "process gave up waiting for a JobMaster"
    REPORT_OF_OLD_ATTEMPT = "report of an old attempt"

    SUBTASK_FROZEN = "subtask frozen"
    ZOMBIE = "subtask that counts as dead keeps running"

    # -- JobMasters and their parts --
    MASTER_CRASH = "JobMaster crash"
    CRASH_IN_COMPACTION = "JobMaster crash inside a compaction of the log"
    TWO_MASTERS = "two JobMasters at once"
    MASTER_FROZEN = "JobMaster frozen"
    MASTER_WOKE_LATE = "JobMaster woke up after its successor began"
    MASTER_REPLACED = "frozen JobMaster killed by its guards"
    HOOK_FAILED = "master hook failed"
    HOOK_LATE = "master hook answered late"
    HOOK_RESTORED = "master hook restored"
    SPLIT_HELD = "split held by a shut valve"
    SPLITS_GIVEN_BACK = "splits given back"

    # -- the storage --
    WRITE_REFUSED = "write refused"
    WRITE_UNSURE = "write done, answer lost"
    READ_REFUSED = "read refused"
    STORAGE_AWAY = "storage away"
    STORAGE_HANGS = "storage call given up, done later or never"
    LISTED_LATE = "log listed late"
    LISTED_IN_PART = "listing without the newest names"
    STORAGE_SLOW = "storage slow"
    POWER_CUT = "power cut of the storage during a write"
    DISK_FULL = "checkpoint storage full"
    NO_ROOM = "no room for a stored alignment"

    # -- stored files --
    FLIPPED_SLOT = "bit flipped in a record of the log"
    FLIPPED_HINT = "bit flipped in the hint of the log"
    FLIPPED_METADATA = "bit flipped in metadata"
    FLIPPED_STATE = "bit flipped in a state file"
    FLIPPED_CHANGES = "bit flipped in a file of changes"
    FLIPPED_IN_FLIGHT = "bit flipped in a file of data in flight"
    FLIPPED_SAVEPOINT = "bit flipped in a savepoint"
    SLOT_GONE = "record of the log gone"
    HINT_GONE = "hint of the log gone"
    METADATA_GONE = "metadata gone"
    STATE_GONE = "state file gone"
    CHANGES_GONE = "file of changes gone"
    IN_FLIGHT_GONE = "file of data in flight gone"
    SAVEPOINT_GONE = "file of a savepoint gone"
    FELL_BACK = "older checkpoint taken because of damage"
    FAILED_BY_DAMAGE = "job failed by a damaged file"

    # -- the network --
    FRAME_OVERTAKEN = "frame out of order"
    FRAME_REPEATED = "frame twice"
    MESSAGE_REPEATED = "message twice"
    SLOW_CHANNEL = "slow channel"

    NETWORK_CUT = "network cut in two"

    # -- clocks --
    CLOCK_SET = "wall clock set"
    CLOCKS_DIFFER = "clocks that drift apart"

    # -- the outside --
    EXTERNAL = "fault of the external world"

    # -- checkpoints --
    CHECKPOINT_CANCELLED = "checkpoint cancelled"
    CHECKPOINT_EXPIRED = "checkpoint timed out"
    CHECKPOINT_INPUT_ENDED = "checkpoint given up at the end of a channel"
    ALIGNMENT_CANCELLED = "alignment released by a cancellation marker"
    ALIGNMENT_LIMIT = "stored alignment over its limit"

    # -- requests of users --
    SAVEPOINT = "savepoint during the run"
    GAVE_UP = "job failed by its restart strategy"
    JOB_CANCELLED = "job cancelled"
    RESCALED = "rescaled while running"
    STOPPED = "stopped with a savepoint"
    DRAINED = "drained and stopped"
    STARTED_FROM_SAVEPOINT = "started from a savepoint"
    STARTED_FROM_CHECKPOINT = "started from the last checkpoint"
    STARTED_FROM_OLDER = "started from an older checkpoint"
    STARTED_RESCALED = "started at another parallelism"
    IN_FLIGHT_RESCALED = "data in flight at another parallelism"


class FaultCounts:
    """Number of failures of each kind that happened."""

    def __init__(self) -> None:
        self._counts: Counter[FaultKind] = Counter()

    def happened(self, kind: FaultKind, times: int = 1) -> None:
        if times:
            self._counts[kind] += times

    def by_kind(self) -> Mapping[FaultKind, int]:
        """The counts that are not 0, in the order of the kinds."""
        return {kind: self._counts[kind] for kind in FaultKind if self._counts[kind]}


class Moment(Enum):
    """An event that a planned fault waits for."""

    MOVE = "move"
    DEPLOYING = "an attempt is deployed"
    STARTED = "an attempt was started"
    TRIGGERED = "a checkpoint was triggered"
    SNAPSHOT = "a subtask took its snapshot"
    ACKNOWLEDGED = "a subtask acknowledged"
    WRITING = "the record of a checkpoint is written"
    COMPLETED = "a checkpoint is complete"
    COMMITTED = "a sink has committed"
    END_OF_DATA = "a subtask reached the end of its data"
    FINISHED = "a subtask has finished"
    STORING = "an alignment begins to store"
    COORDINATED = "an operator coordinator gave its snapshot"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault that is planned for a moment of the run.

    Attributes:
        occurrence: Number of the occurrence of `moment` at which the fault strikes, from 1; for `MOVE`, the
            number of the move.
        delay: Moves between the moment and the strike.
        name: Name of a fault of the external world.
    """

    kind: FaultKind
    moment: Moment
    occurrence: int
    delay: int = 0
    name: str = ""

    def __str__(self) -> str:
        at = (
            f"at move {self.occurrence}"
            if self.moment is Moment.MOVE
            else f"{self.delay} moves after: {self.moment.value} (no. {self.occurrence})"
        )
        return f"{self.name or self.kind.value} {at}"


#: Moments at which a fault may be due, weighted by their number of entries.
MOMENTS: tuple[Moment, ...] = (
    *(Moment.MOVE,) * 4,
    *(Moment.TRIGGERED,) * 3,
    *(Moment.SNAPSHOT,) * 4,
    *(Moment.ACKNOWLEDGED,) * 4,
    *(Moment.WRITING,) * 3,
    *(Moment.COMPLETED,) * 3,
    *(Moment.COMMITTED,) * 3,
    Moment.STARTED,
    Moment.END_OF_DATA,
    Moment.FINISHED,
)


def draw_delay(draws: Draws) -> int:
    return draws.pick((0, 1, draws.below(10), draws.below(60)))


#: Faults that may be planned, weighted by their number of entries.
_PLANNED: Final = (
    *(FaultKind.CRASH,) * 4,
    *(FaultKind.CRASH_IN_STEP,) * 4,
    *(FaultKind.CRASH_IN_UPLOAD,) * 2,
    *(FaultKind.USER_ERROR,) * 2,
    *(FaultKind.CHECKPOINT_CANCELLED,) * 3,
    FaultKind.DEPLOYMENT_FAILED,
    FaultKind.WRITE_REFUSED,
    FaultKind.WRITE_REFUSED,
    FaultKind.WRITE_UNSURE,
    FaultKind.WRITE_UNSURE,
    FaultKind.READ_REFUSED,
    FaultKind.STORAGE_AWAY,
    *(FaultKind.SAVEPOINT,) * 3,
    *(FaultKind.MASTER_CRASH,) * 2,
    *(FaultKind.TWO_MASTERS,) * 2,
)


def draw_faults(draws: Draws, lasts: int) -> tuple[PlannedFault, ...]:
    """Draw the faults of the `lasts` moves before the world calms down."""
    planned = []
    for _ in range(draws.pick((0, 1, 2, 3, 4, 6, 8))):
        moment = draws.pick(MOMENTS)
        occurrence = draws.below(lasts) if moment is Moment.MOVE else draws.between(1, 6)
        planned.append(PlannedFault(draws.pick(_PLANNED), moment, occurrence, draw_delay(draws)))
        if draws.chance(0.4):
            # A restart during a restart: the second fault strikes subtasks while they start.
            again = draws.pick((FaultKind.CRASH, FaultKind.CRASH_IN_STEP, FaultKind.READ_REFUSED))
            planned.append(
                PlannedFault(again, Moment.DEPLOYING, len(planned) + draws.between(1, 2), draws.below(30))
            )
    return tuple(planned)
