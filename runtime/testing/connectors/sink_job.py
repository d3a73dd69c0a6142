"""`SinkJob`: a job with one sink, whose checkpoints, deaths and restarts a test controls.

Each subtask is a harness with a copy of the sink, as each process of a cluster has its own. The input can be
read again: a restart continues after the last record that a completed checkpoint covers.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Self

from penstock.runtime.operators.committed_sink import (
    COMMITTER_SUFFIX,
    CommitterOperator,
    HasCommitter,
    StagingOperator,
)
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.sinks import COMMITTABLES, RemovesUncovered, Sink, SinkOperator
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.testing.connectors.worlds import KillsThreads, SinkWorld
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.harness_state import HarnessSnapshot
from penstock.runtime.testing.simulation.run.user_job import PackedCode, world_of

#: Id of the sink's operator.
OPERATOR: Final = "out"

#: Numbers that make job ids unique, because tests share the outside world, such as a broker.
_JOBS: Final = count()


@dataclass(frozen=True, slots=True)
class SinkCheckpoint:
    """The snapshots of all subtasks and of the committer, and the number of records that they cover."""

    snapshots: tuple[HarnessSnapshot, ...]
    position: int
    committer: HarnessSnapshot | None = None

    @property
    def data(self) -> list[bytes]:
        """All values of the snapshots, as a storage holds them."""
        lists = [entry for snapshot in self._all for entry in snapshot.lists.values()]
        return [value for _, values in lists for value in values]

    @property
    def committables(self) -> list[Any]:
        """Everything that the writers have pre-committed and not committed."""
        loads = ValueCodec().loads
        saved = [snapshot.lists[COMMITTABLES][1] for snapshot in self._all if COMMITTABLES in snapshot.lists]
        return [loads(value)[1] for values in saved for value in values]

    @property
    def _all(self) -> tuple[HarnessSnapshot, ...]:
        return self.snapshots if self.committer is None else (*self.snapshots, self.committer)


class SinkJob:
    """A job with one sink.

    Args:
        records: The whole input.
        restored: A completed checkpoint from which the job starts.
        transactional: Whether the job takes checkpoints.

    Attributes:
        completed: The newest completed checkpoint; a restart begins there.
    """

    def __init__(
        self,
        world: SinkWorld,
        records: Sequence[Any],
        *,
        parallelism: int = 2,
        restored: SinkCheckpoint | None = None,
        transactional: bool = True,
    ) -> None:
        self.completed = restored
        self._records = list(records)
        self._job_id = f"kit-{next(_JOBS)}"
        self._parallelism = parallelism
        self._transactional = transactional
        self._world = world
        self._attempt = 0
        self._position = 0
        self._subtasks: list[OperatorHarness] = []
        self._operators: list[SinkOperator | StagingOperator] = []
        self._committer: _Committer | None = None
        self._packed = PackedCode(world.sink(), world_of(world, world.rows))

    @property
    def is_running(self) -> bool:
        """Whether an attempt has begun and was neither closed nor killed."""
        return bool(self._subtasks)

    def start(self, *, parallelism: int | None = None) -> Self:
        """Begin the next attempt, from the newest completed checkpoint."""
        self._parallelism = parallelism or self._parallelism
        self._attempt += 1
        covered = self.completed
        self._position = 0 if covered is None else covered.position
        self._subtasks = []
        self._operators = [self._operator() for _ in range(self._parallelism)]
        for subtask, operator in enumerate(self._operators):
            self._subtasks.append(
                OperatorHarness(
                    operator,
                    job_id=self._job_id,
                    operator_id=OPERATOR,
                    subtask=subtask,
                    parallelism=self._parallelism,
                    restored=() if covered is None else covered.snapshots,
                    transactional=self._transactional,
                    attempt=self._attempt,
                )
            )
        sink = self.sink()
        if isinstance(sink, HasCommitter):
            restored = None if covered is None else covered.committer
            self._committer = _Committer(
                CommitterOperator(sink), self._job_id, restored, self._attempt, self._transactional
            )
        return self

    def write(self, count: int | None = None) -> None:
        """Write the next records, or by default all that are left; the subtasks get them in turn."""
        left = self._records[self._position :]
        batch = left if count is None else left[:count]
        for subtask, harness in enumerate(self._subtasks):
            harness.push(batch[subtask :: self._parallelism])
        self._position += len(batch)

    def snapshot(self) -> SinkCheckpoint:
        """Take a checkpoint: all subtasks pre-commit. It is not complete yet."""
        taken = tuple(harness.snapshot() for harness in self._subtasks)
        self._send()
        committer = None if self._committer is None else self._committer.harness.snapshot()
        return SinkCheckpoint(taken, self._position, committer)

    def decide(self, checkpoint: SinkCheckpoint) -> None:
        """Complete a checkpoint; no subtask learns of it yet."""
        self.completed = checkpoint

    def notify(self, checkpoint: SinkCheckpoint, subtasks: Collection[int] | None = None) -> None:
        """Notify these subtasks, or by default all, of a completed checkpoint: they commit."""
        for subtask, harness in enumerate(self._subtasks):
            if subtasks is None or subtask in subtasks:
                harness.complete_checkpoint(checkpoint.snapshots[subtask])
        if subtasks is None and self._committer is not None and checkpoint.committer is not None:
            self._committer.harness.complete_checkpoint(checkpoint.committer)

    def complete(self, checkpoint: SinkCheckpoint) -> None:
        self.decide(checkpoint)
        self.notify(checkpoint)

    def abort(self, checkpoint: SinkCheckpoint) -> None:
        for harness, snapshot in zip(self._subtasks, checkpoint.snapshots, strict=True):
            harness.abort_checkpoint(snapshot)
        if self._committer is not None and checkpoint.committer is not None:
            self._committer.harness.abort_checkpoint(checkpoint.committer)

    def checkpoint(self) -> SinkCheckpoint:
        """Take a checkpoint and complete it."""
        taken = self.snapshot()
        self.complete(taken)
        return taken

    def end_of_data(self) -> None:
        for harness in self._subtasks:
            harness.end_of_data()
        self._send()
        if self._committer is not None:
            self._committer.harness.end_of_data()

    def finish(self) -> None:
        """Write the remaining records, end the job with its last checkpoint, and clean up after restarts."""
        self.write()
        self.end_of_data()
        if self._transactional:
            self.checkpoint()
        self.close()
        if self._attempt > 1:
            self.remove_uncovered()

    def close(self) -> None:
        """Close all writers, as after the end of the job or after an error."""
        while self._subtasks:
            self._subtasks.pop().close()
        if self._committer is not None:
            self._committer.harness.close()
            self._committer = None

    def kill(self) -> None:
        """Let all processes die: nothing is closed."""
        if isinstance(self._world, KillsThreads):
            for writer in self.writers():
                self._world.kill(writer)
        self._subtasks.clear()
        self._operators.clear()
        self._committer = None

    def fork(self) -> SinkJob:
        """Move the running attempt to a new `SinkJob`, as a zombie that lost contact with its job."""
        zombie = copy.copy(self)
        self._subtasks, self._operators, self._committer = [], [], None
        return zombie

    def with_input(self, records: Sequence[Any]) -> Self:
        """Replace the input, for example by the records after an older savepoint."""
        self._records = list(records)
        return self

    def remove_uncovered(self) -> None:
        """Clean up after the job, as its JobMaster does; what the newest checkpoint covers stays."""
        sink = self._packed.unpack()
        if isinstance(sink, RemovesUncovered):
            covered = [] if self.completed is None else self.completed.committables
            sink.remove_uncovered(self._job_id, OPERATOR, covered)

    def statistics(self) -> list[OperatorStatistics]:
        """Statistics of all subtasks that commit."""
        if self._committer is not None:
            return [self._committer.harness.statistics()]
        return [harness.statistics() for harness in self._subtasks]

    def writers(self) -> list[Any]:
        """The writers of all subtasks, and the committer if there is one."""
        operators = [*self._operators, *(() if self._committer is None else (self._committer.operator,))]
        return [operator.writer for operator in operators if operator.is_open]

    def sink(self) -> Sink[Any]:
        """A copy of the sink, as a process gets it."""
        sink: Sink[Any] = self._packed.unpack()
        return sink

    @property
    def packed(self) -> bytes:
        """The sink in the job graph that is sent to the processes."""
        return self._packed.data

    def _operator(self) -> SinkOperator | StagingOperator:
        sink = self.sink()
        return StagingOperator(sink) if isinstance(sink, HasCommitter) else SinkOperator(sink)

    def _send(self) -> None:
        """Send the committables of all writers to the committer, if there is one."""
        if self._committer is not None:
            self._committer.take(self._subtasks)


class _Committer:
    """The committer of a sink, and the channels from all writers."""

    def __init__(
        self,
        operator: CommitterOperator,
        job_id: str,
        restored: HarnessSnapshot | None,
        attempt: int,
        transactional: bool,
    ) -> None:
        self.operator = operator
        self.harness = OperatorHarness(
            operator,
            job_id=job_id,
            operator_id=OPERATOR + COMMITTER_SUFFIX,
            restored=() if restored is None else (restored,),
            transactional=transactional,
            attempt=attempt,
        )
        self._codec = ValueCodec()
        self._taken: Counter[int] = Counter()

    def take(self, writers: Sequence[OperatorHarness]) -> None:
        for subtask, writer in enumerate(writers):
            sent = writer.outputs[self._taken[subtask] :]
            self._taken[subtask] += len(sent)
            self.harness.push([self._codec.loads(self._codec.dumps(value)) for value in sent])


#: A step of a job, with the name by which tests refer to it.
Step = tuple[str, Callable[[SinkJob, list[SinkCheckpoint]], object]]

#: The life of a job: two checkpoints, and a last one at its end. Each one is appended to the list when taken.
STEPS: Final[tuple[Step, ...]] = (
    ("open", lambda job, taken: None),
    ("write", lambda job, taken: job.write(3)),
    ("pre-commit", lambda job, taken: taken.append(job.snapshot())),
    ("complete", lambda job, taken: job.decide(taken[-1])),
    ("commit of one subtask", lambda job, taken: job.notify(taken[-1], [1])),
    ("commit", lambda job, taken: job.notify(taken[-1])),
    ("write after a commit", lambda job, taken: job.write(4)),
    ("second pre-commit", lambda job, taken: taken.append(job.snapshot())),
    ("second complete", lambda job, taken: job.decide(taken[-1])),
    ("second commit", lambda job, taken: job.notify(taken[-1])),
    ("last write", lambda job, taken: job.write()),
    ("end of data", lambda job, taken: job.end_of_data()),
    ("last pre-commit", lambda job, taken: taken.append(job.snapshot())),
    ("last complete", lambda job, taken: job.decide(taken[-1])),
    ("last commit", lambda job, taken: job.notify(taken[-1])),
    ("close", lambda job, taken: job.close()),
)


def run_steps(job: SinkJob, last: str) -> None:
    """Start a job and run its steps up to and including `last`."""
    taken: list[SinkCheckpoint] = []
    job.start()
    for name, step in STEPS:
        step(job, taken)
        if name == last:
            return


def _pre_committed(job: SinkJob) -> None:
    job.write(3)
    job.decide(job.snapshot())


def _restored_with_leftovers(job: SinkJob) -> None:
    job.write(3)
    job.snapshot()
    job.kill()
    job.start()
    _pre_committed(job)


def _dead(job: SinkJob) -> None:
    _pre_committed(job)
    job.kill()


def _notified(job: SinkJob) -> None:
    assert job.completed is not None
    job.notify(job.completed)


def _snapshot(job: SinkJob) -> None:
    job.decide(job.snapshot())


#: Steps in which a test makes a call fail: the preparation, and the step.
DISTURBED: Final[dict[str, tuple[Callable[[SinkJob], object], Callable[[SinkJob], object]]]] = {
    "open": (SinkJob.kill, SinkJob.start),
    "write": (lambda job: None, lambda job: job.write(3)),
    "pre-commit": (lambda job: job.write(3), _snapshot),
    "commit": (_pre_committed, _notified),
    "restore": (_dead, SinkJob.start),
    "removal of leftovers": (_restored_with_leftovers, _notified),
    "end of data": (SinkJob.write, SinkJob.end_of_data),
    "close": (lambda job: job.write(3), SinkJob.close),
}
