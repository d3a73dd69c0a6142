"""`SourceJob`: a job with one source, whose checkpoints, deaths and restarts a test decides.

Each subtask is a harness with a copy of the source. Rows count as in a job with an exactly-once sink: a
restart forgets those that no completed checkpoint covers. The splits of a source are assigned at the start,
or by its enumerator.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import count
from typing import Any, Final, Self, TypeVar

from penstock.runtime.errors import OperatorLocation, PenstockError
from penstock.runtime.operators.coordinators import EventAnswer
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.source import Source
from penstock.runtime.operators.source_coordinator import SourceCoordinator
from penstock.runtime.operators.source_operator import SPLITS
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.testing.connectors.worlds import KillsThreads, ShowsAcknowledged, SourceWorld
from penstock.runtime.testing.harness_state import HarnessSnapshot
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.run.report import difference
from penstock.runtime.testing.simulation.run.user_job import PackedCode, world_of
from penstock.runtime.testing.source_harness import SourceHarness
from penstock.runtime.time.durations import Duration
from penstock.runtime.time.watermarks import WatermarkStrategy

T = TypeVar("T")

#: Id of the source's operator.
OPERATOR: Final = "records"

#: Number of polls in a row without a record after which each poll begins with a pause, and its seconds.
#: Without the pause each step of a connector's threads waits 5 ms for the interpreter.
_EAGER: Final = 5
_PAUSE: Final = 0.0001

#: Numbers in job ids, which must differ because tests share the outside world, such as a broker.
_JOBS: Final = count()


@dataclass(frozen=True, slots=True)
class SourceCheckpoint:
    """The snapshots of all subtasks and of the enumerator, and the number of rows that they cover."""

    snapshots: tuple[HarnessSnapshot, ...]
    count: int
    enumerator: bytes | None = None

    @property
    def data(self) -> list[bytes]:
        """All values of the snapshots, as a storage holds them."""
        lists = [entry for snapshot in self.snapshots for entry in snapshot.lists.values()]
        saved = [value for _, values in lists for value in values]
        return saved if self.enumerator is None else [*saved, self.enumerator]

    @property
    def splits(self) -> list[Any]:
        """The unfinished splits of all readers."""
        loads = ValueCodec().loads
        return [loads(value) for snapshot in self.snapshots for value in snapshot.lists[SPLITS][1]]


class SourceJob:
    """A job with one source.

    Args:
        source: By default the source of the world.
        restored: A completed checkpoint of another job, from which this one starts.
        enumerated: Whether the source's enumerator assigns the splits.
        poll_rows: Number of records that a poll asks for.
        written: All records of a source without an end: the job stops when it has read them.
        most_polls: Polls without a record after which the job no longer waits.

    Attributes:
        completed: The newest completed checkpoint; a restart begins there.
    """

    def __init__(
        self,
        world: SourceWorld,
        source: Source[Any] | None = None,
        *,
        parallelism: int = 2,
        restored: SourceCheckpoint | None = None,
        watermarks: WatermarkStrategy[Any] | None = None,
        enumerated: bool = False,
        poll_rows: int = 1,
        most_polls: int = 500_000,
        written: Sequence[Any] | None = None,
    ) -> None:
        self.completed = restored
        self._world = world
        self._packed = PackedCode(source or world.source(), world_of(world, world.source))
        self._job_id = f"kit-{next(_JOBS)}"
        self._parallelism = parallelism
        self._watermarks = watermarks
        self._is_enumerated = enumerated
        self._poll_rows = poll_rows
        self._most_polls = most_polls
        self._written = written
        self._has_all = False
        self._silent = 0
        self._attempt = 0
        self._last_id = 0 if restored is None else restored.snapshots[0].checkpoint_id
        #: Rows of this job, each with its subtask, without those of a job whose checkpoint it restores.
        self._read: list[tuple[int, Any]] = []
        self._covered_elsewhere = 0 if restored is None else restored.count
        self.subtasks: list[SourceHarness] = []
        self._enumerator: _Enumerator | None = None

    @property
    def rows(self) -> list[Any]:
        """The rows that count."""
        return [row for _, row in self._read]

    @property
    def is_finished(self) -> bool:
        """Whether all subtasks have read their splits to the end, or everything if there is no end."""
        return self._has_all or all(harness.is_finished for harness in self.subtasks)

    def start(self, *, parallelism: int | None = None) -> Self:
        """Begin the next attempt, from the newest completed checkpoint."""
        self._parallelism = parallelism or self._parallelism
        self._attempt += 1
        del self._read[self._covered :]
        self._look_for_end()
        self.subtasks = []
        if self._is_enumerated:
            self._enumerator = _Enumerator(self.source(), self._parallelism)
        for subtask in range(self._parallelism):
            self.subtasks.append(self._opened(subtask))
        if self._enumerator is not None:
            self._enumerator.start(self.completed)
            self._deliver()
        return self

    def restart_reader(self, subtask: int) -> None:
        """Let one reader die and start again, as when only its region restarts."""
        assert self._enumerator is not None, "readers restart one by one if an enumerator assigns splits"
        self._read = [
            (reader, row)
            for number, (reader, row) in enumerate(self._read)
            if number < self._covered or reader != subtask
        ]
        covered = None if self.completed is None else self.completed.snapshots[0].checkpoint_id
        self._enumerator.coordinator.subtask_failed(subtask, "killed")
        if isinstance(self._world, KillsThreads):
            self._world.kill(self.subtasks[subtask].reader)
        self.subtasks[subtask] = self._opened(subtask)
        self._enumerator.coordinator.subtask_reset(subtask, covered)
        self._deliver()

    def poll(self) -> int:
        """Poll each subtask once, and return the number of new rows. Pause first while none come."""
        if self._silent > _EAGER:
            time.sleep(_PAUSE)
        count = 0
        for subtask, harness in enumerate(self.subtasks):
            rows = harness.poll(self._poll_rows)
            self._read += [(subtask, row) for row in rows]
            count += len(rows)
        self._deliver()
        self._silent = 0 if count else self._silent + 1
        if count:
            self._look_for_end()
        return count

    def read(self, least: int) -> int:
        """Poll until at least `least` new rows are read, or the source has ended; return their number.

        Raises:
            AssertionError: The source gives no more rows and does not end.
        """
        silent = count = 0
        while count < least and not self.is_finished:
            new = self.poll()
            count += new
            silent = 0 if new else silent + 1
            assert silent < self._most_polls, (
                f"the source has given {count} rows, and then none in {silent} polls. `poll` must return "
                "records, or finished=True at the end of all splits"
            )
        return count

    def finish(self) -> None:
        """Read to the end, and end the job with its last checkpoint."""
        self.read_all()
        self.checkpoint()
        if self._written is not None and isinstance(self._world, ShowsAcknowledged):
            self._settle(self._world, self._written)
        self.close()

    def read_until(self, is_so: Callable[[], object], what: str) -> None:
        """Poll until a condition holds, even after the last record of a source without an end.

        Raises:
            AssertionError: The condition does not hold after `most_polls` polls; `what` is the message.
        """
        for _ in range(self._most_polls):
            if is_so():
                return
            self.poll()
        raise AssertionError(what)

    def _settle(self, world: ShowsAcknowledged, written: Sequence[Any]) -> None:
        """Read what the world sends again, until all records are acknowledged."""

        def is_settled() -> bool:
            if self._covered < len(self._read):
                self.checkpoint()
            return _has_all(written, world.acknowledged())

        self.read_until(is_settled, "records of completed checkpoints are never acknowledged")

    def read_all(self) -> None:
        """Read to the end of all splits."""
        while not self.is_finished:
            self.read(1)

    def snapshot(self) -> SourceCheckpoint:
        """Take a checkpoint; it is not complete yet."""
        self._last_id += 1
        state = None if self._enumerator is None else self._enumerator.snapshot(self._last_id)
        snapshots = tuple(harness.snapshot(self._last_id) for harness in self.subtasks)
        return SourceCheckpoint(snapshots, self._covered_elsewhere + len(self._read), state)

    def decide(self, checkpoint: SourceCheckpoint) -> None:
        """Complete a checkpoint; no subtask learns of it yet."""
        self.completed = checkpoint

    def notify(self, checkpoint: SourceCheckpoint) -> None:
        """Notify all subtasks of a completed checkpoint."""
        if self._enumerator is not None:
            self._enumerator.coordinator.notify_checkpoint_complete(checkpoint.snapshots[0].checkpoint_id)
        for harness, snapshot in zip(self.subtasks, checkpoint.snapshots, strict=True):
            harness.complete_checkpoint(snapshot)

    def complete(self, checkpoint: SourceCheckpoint) -> None:
        self.decide(checkpoint)
        self.notify(checkpoint)

    def checkpoint(self) -> SourceCheckpoint:
        """Take a checkpoint and complete it."""
        taken = self.snapshot()
        self.complete(taken)
        return taken

    def close(self) -> None:
        """Close all readers, as after the end of the job or after an error."""
        while self.subtasks:
            self.subtasks.pop().close()
        if self._enumerator is not None:
            self._enumerator.coordinator.close()
            self._enumerator = None

    def kill(self) -> None:
        """Let all processes die: nothing is closed."""
        if isinstance(self._world, KillsThreads):
            for harness in self.subtasks:
                self._world.kill(harness.reader)
        self.subtasks = []
        self._enumerator = None

    def fork(self) -> SourceJob:
        """Move the running attempt to another job, where it lives on like a process that was cut off."""
        zombie = copy.copy(self)
        zombie._read = list(self._read)
        self.subtasks, self._enumerator = [], None
        return zombie

    def statistics(self) -> list[OperatorStatistics]:
        return [harness.statistics() for harness in self.subtasks]

    def lag(self, most_looks: int) -> SourceLag | None:
        """Read the lag of all readers in another thread, as a job does; look again while it is unknown."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._known_lag, most_looks).result()

    def _known_lag(self, most_looks: int) -> SourceLag | None:
        for _ in range(most_looks):
            lags: list[SourceLag | None] = [harness.reader.lag() for harness in self.subtasks]
            known = [lag for lag in lags if lag is not None]
            if len(known) == len(lags):
                return reduce(SourceLag.plus, known)
            time.sleep(_PAUSE)
        return None

    def source(self) -> Any:
        """A copy of the source, as a process gets it."""
        return self._packed.unpack()

    def _look_for_end(self) -> None:
        self._has_all = self._written is not None and _has_all(self._written, self.rows)

    @property
    def _covered(self) -> int:
        return 0 if self.completed is None else self.completed.count - self._covered_elsewhere

    def _opened(self, subtask: int) -> SourceHarness:
        return SourceHarness(
            self.source(),
            job_id=self._job_id,
            operator_id=OPERATOR,
            subtask=subtask,
            parallelism=self._parallelism,
            restored=() if self.completed is None else self.completed.snapshots,
            attempt=self._attempt,
            clock=ManualClock(),
            watermarks=self._watermarks,
            on_request=self._is_enumerated,
        )

    def _deliver(self) -> None:
        if self._enumerator is not None:
            self._enumerator.deliver(self.subtasks)


def _has_all(written: Sequence[Any], found: Collection[Any]) -> bool:
    differs = difference(written, found)
    return differs is None or not differs.is_loss


class _Enumerator:
    """The coordinator of a source, with the events between it and the readers."""

    def __init__(self, source: Any, parallelism: int) -> None:
        self.operator_id = OPERATOR
        self.parallelism = parallelism
        self.coordinator = SourceCoordinator(source, self, OperatorLocation(OPERATOR, None, parallelism))
        self._codec = ValueCodec()
        self._sent: deque[tuple[int, Any]] = deque()
        self._handled: dict[int, tuple[SourceHarness, int]] = {}
        self._background: deque[Callable[[], None]] = deque()

    def start(self, restored: SourceCheckpoint | None) -> None:
        if restored is None:
            self.coordinator.reset_to_checkpoint(None, None)
        else:
            assert restored.enumerator is not None, "the restored job had an enumerator, too"
            state = self._codec.loads(restored.enumerator)
            self.coordinator.reset_to_checkpoint(restored.snapshots[0].checkpoint_id, state)
        self.coordinator.start()

    def snapshot(self, checkpoint_id: int) -> bytes:
        answer = _State()
        self.coordinator.checkpoint(checkpoint_id, answer)
        return self._codec.dumps(answer.state)

    def deliver(self, readers: Sequence[SourceHarness]) -> None:
        """Do the background work that waits, and deliver all events in both directions."""
        for _ in range(len(self._background)):
            self._background.popleft()()
        for subtask, reader in enumerate(readers):
            known, count = self._handled.get(subtask, (reader, 0))
            new = reader.events[count if known is reader else 0 :]
            self._handled[subtask] = reader, len(reader.events)
            for event in new:
                self.coordinator.handle_event(subtask, event)
        while self._sent:
            subtask, event = self._sent.popleft()
            readers[subtask].handle_event(event)

    # -- the coordinator's context ------------------------------------------------------------------------

    def send_event(self, subtask: int, event: Any, answer: EventAnswer | None = None) -> None:
        self._sent.append((subtask, event))

    def run_in_background(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[BaseException], None]
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:  # the connector's work: its enumerator learns of it, as in a job
                on_error(error)
            else:
                on_result(result)

        self._background.append(run)

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        """Call back at the next delivery: time passes between two of them."""
        self._background.append(callback)

    def fail_job(self, cause: str | PenstockError) -> None:
        raise cause if isinstance(cause, PenstockError) else PenstockError(cause)


class _State:
    """Keeps the state of an enumerator."""

    state: Any = None

    def complete(self, state: Any | None) -> None:
        self.state = state

    def fail(self, error: BaseException) -> None:
        raise error


#: A step of a job; a test names it.
Step = tuple[str, Callable[[SourceJob, list[SourceCheckpoint]], object]]

#: The life of a job with two checkpoints and an end. A checkpoint that is taken is appended to the list.
STEPS: Final[tuple[Step, ...]] = (
    ("open", lambda job, taken: None),
    ("poll", lambda job, taken: job.read(2)),
    ("snapshot", lambda job, taken: taken.append(job.snapshot())),
    ("complete", lambda job, taken: job.decide(taken[-1])),
    ("poll before the notice", lambda job, taken: job.read(1)),
    ("notify", lambda job, taken: job.notify(taken[-1])),
    ("poll after the notice", lambda job, taken: job.read(2)),
    ("second snapshot", lambda job, taken: taken.append(job.snapshot())),
    ("second complete", lambda job, taken: job.decide(taken[-1])),
    ("second notify", lambda job, taken: job.notify(taken[-1])),
    ("last poll", lambda job, taken: job.read_all()),
    ("last snapshot", lambda job, taken: taken.append(job.snapshot())),
    ("last complete", lambda job, taken: job.decide(taken[-1])),
    ("last notify", lambda job, taken: job.notify(taken[-1])),
    ("close", lambda job, taken: job.close()),
)


def run_steps(job: SourceJob, last: str) -> None:
    """Start a job and run its steps up to and including `last`."""
    taken: list[SourceCheckpoint] = []
    job.start()
    for name, step in STEPS:
        step(job, taken)
        if name == last:
            return


def _dead(job: SourceJob) -> None:
    job.read(2)
    job.checkpoint()
    job.kill()


def _taken(job: SourceJob) -> None:
    job.read(2)
    job.decide(job.snapshot())


def _notified(job: SourceJob) -> None:
    assert job.completed is not None
    job.notify(job.completed)


#: Steps in which a test makes a call fail: for each, the actions before the step, and the step itself.
DISTURBED: Final[dict[str, tuple[Callable[[SourceJob], object], Callable[[SourceJob], object]]]] = {
    "open": (SourceJob.kill, SourceJob.start),
    "poll": (lambda job: None, lambda job: job.read(2)),
    "snapshot": (lambda job: job.read(2), lambda job: job.decide(job.snapshot())),
    "notify": (_taken, _notified),
    "restore": (_dead, SourceJob.start),
    "close": (lambda job: job.read(2), SourceJob.close),
}
