"""`Sink`: the interface of a job's outputs; `SinkOperator` runs its two-phase commit in one subtask.

A sink is transactional: `prepare_commit` makes everything written so far durable but invisible, and `commit`
makes it visible.

A transaction is open until a snapshot. The snapshot pre-commits it: it becomes durable and stays invisible.
The *committable* that can make it visible goes into the snapshot's state. The transaction is committed only
when the checkpoint is complete. Nothing is lost or appears twice, because:

* Every snapshot holds the committables of *all* transactions that are not committed yet, not only its own. A
  checkpoint may be aborted, or the notice of its completion may be lost; the next one covers them.
* A committable leaves the state only after `commit` returned. So a subtask that fails between a checkpoint's
  completion and the commit commits after its restore. The restored checkpoint covers all committables of the
  restored state. `commit` does nothing for visible transactions.
* Records after the last complete checkpoint are in no state, so the next attempt writes them again.
  `remove_leftovers` removes those that the failed attempt had written. It runs after the new attempt's first
  completed checkpoint, when no earlier transaction is left to commit.

The operator must never commit without a permit or abort on its own: only the job knows whether a checkpoint
was completed. Flink's counterparts are `CommitterOperator` and `TwoPhaseCommitSinkFunction`.

A job that takes no checkpoints commits once, at the end of its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar, runtime_checkable

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.last_commit import LastCommit
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output, SavedList
from penstock.runtime.operators.operator_state import AsksForLists, ListStates
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit, permit_of_ended_input
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.own_copy import own_copy

T_contra = TypeVar("T_contra", contravariant=True)


class SinkWriter(Protocol[T_contra]):  # type: ignore[misc] # batches do not name their records' type
    """Writes the records of one subtask, transaction by transaction."""

    def write(self, batch: Batch) -> None:
        """Add records to the open transaction."""
        ...

    def prepare_commit(self) -> Sequence[Any]:
        """Pre-commit: end the open transaction, make it durable and invisible, begin a new one.

        Returns:
            The arguments of `commit`, as values that the codec can encode; empty when nothing was written.
        """
        ...

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Make pre-committed transactions visible; ignore transactions that are already visible."""
        ...

    def close(self) -> None:
        """Release everything, leaving committed data alone; called once, even after a failure."""
        ...


@runtime_checkable
class RemovesLeftovers(Protocol):
    """Optional for a writer: remove uncommitted work of earlier attempts of the same job."""

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Remove uncommitted work of attempts before this one.

        Called once per attempt on subtask 0, after the attempt's first completed checkpoint, or at the end of
        the input of a job without checkpoints. By then every subtask has committed everything that a restored
        checkpoint covers.
        """
        ...


@runtime_checkable
class ReportsCommit(Protocol):
    """Optional for a writer or a committer: reports what it has committed, for reports and the web page.

    Example:
        >>> class Writer:
        ...     def commit(self, committables, permit):
        ...         self.commits = LastCommit(rows=sum(committables))
        ...
        ...     def last_commit(self):
        ...         return self.commits
        >>> from penstock.connectors import LastCommit
        >>> isinstance(Writer(), ReportsCommit)
        True
    """

    def last_commit(self) -> LastCommit | None:
        """Version, rows and files of the commit; called after each `commit`, in the task thread.

        Returns:
            `None` if the last `commit` has changed nothing, because everything was visible already.
        """
        ...


@runtime_checkable
class RemovesUncovered(Protocol):
    """Optional for a sink: clean up after a job that has ended, unless it finished in its first attempt."""

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Any]) -> None:
        """Remove all uncommitted and uncovered work of one operator of a job that has ended.

        Called in the background in the JobMaster, not in a subtask, when no checkpoint can complete any more.

        Args:
            covered: Results of `prepare_commit` that a completed snapshot covers: a job that starts from it
                will commit them, so they stay. Some may be committed already.
        """
        ...


@runtime_checkable
class PreparesDestination(Protocol):
    """Optional for a sink: prepare or refuse the destination of a job that starts without a snapshot."""

    def prepare_destination(self, job_id: str) -> None:
        """Make the destination ready before any writer is made. Idempotent.

        Called in the background in the JobMaster, and not again after it has returned. Only a new JobMaster
        calls it again, if its job has no completed checkpoint. It may block, up to `deployment_timeout`.

        Raises:
            PenstockError: The destination can't be used; the message says what to do. An error in the first
                attempt ends the job. A `SuppressRestartsError` does so in any attempt.
        """
        ...


@runtime_checkable
class ChecksJobConfig(Protocol):
    """Optional for a source or a sink: refuse a job whose settings it can't work with."""

    def check_job_config(self, config: JobConfig) -> None:
        """Compare the job's settings with those of the connector; called in the program that submits the job.

        Raises:
            ConfigurationError: The settings don't fit; the message says which to change.
        """
        ...


@runtime_checkable
class Sink(Protocol[T_contra]):  # type: ignore[misc] # as above
    """An output of a job. The object itself is pickled and sent to the subtasks.

    A sink that changes no record, and passes none to other code of the program, may have an attribute
    `only_reads = True`. No record is then copied if all functions of the subtask only read.
    """

    def writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        """Make the writer of one subtask.

        The writer's class may declare lists of the subtask (`OperatorListState`).

        Raises:
            PenstockError: The destination can't be written; the message says what to do.
        """
        ...


@dataclass(frozen=True, slots=True)
class SinkContext(ConnectorContext, AsksForLists):
    r"""Context of a writer: its subtask, its operator state, and its metrics.

    A writer keeps state other than transactions in lists. A checkpoint holds the lists as they are after its
    `prepare_commit`. The class of the writer may also declare them; they are available in `write` and in all
    later calls.

    Example:
        >>> from penstock.state import OperatorListState
        >>> class Writer:
        ...     names = OperatorListState(str)
        ...
        ...     def write(self, batch):
        ...         self.names.update({*self.names, *(row["name"] for row in batch.rows)})
        ...
        ...     def prepare_commit(self):
        ...         return []
        ...
        ...     def close(self):
        ...         pass
        >>> class Names:
        ...     def writer(self, context):
        ...         return Writer()
        >>> from penstock.testing import OperatorHarness
        >>> with OperatorHarness.of(lambda rows: rows.sink("names", Names())) as harness:
        ...     pushed = harness.push([{"name": "ann"}, {"name": "ann"}])
        ...     harness.snapshot().lists["names"][1]
        (b'\xa3ann',)
    """

    lists: ListStates = field(default_factory=ListStates)

    @classmethod
    def of(cls, context: OperatorContext) -> Self:
        """Make a sink's context from the context of its operator."""
        where = {place.name: getattr(context.connector, place.name) for place in fields(context.connector)}
        return cls(**where, lists=context.lists)

    @property
    def _list_states(self) -> ListStates:
        return self.lists


#: Name of the list state with the transactions that are not committed yet.
COMMITTABLES: Final = "committables"


class SinkOperator(Operator):
    batch_format: ClassVar[BatchFormats] = "both"

    _context: OperatorContext

    def __init__(self, sink: Any) -> None:
        self.sink = sink
        self._open_writer: SinkWriter[Any] | None = None
        self._pending: list[tuple[int, Any]] = []
        self._leftovers_removed = False
        self._committed = 0
        self._last_commit: LastCommit | None = None
        self._phase = "open"

    @property
    def only_reads(self) -> bool:
        return getattr(self.sink, "only_reads", False) is True

    @property
    def doing(self) -> str:
        return f"sink {type(self.sink).__name__}: {self._phase}"

    def open(self, context: OperatorContext) -> None:
        self._phase = "open"
        self._context = context
        self._open_writer = self._new_writer(SinkContext.of(context))
        context.lists.bind_declared(self._open_writer)
        restored = context.restored.get(COMMITTABLES, ())
        self._pending = sorted(restored, key=lambda entry: entry[0])
        if not self._pending:
            return
        permit, newest = context.restored_permit, self._pending[-1][0]
        if permit is None or not permit.covers(newest):
            msg = (
                f"the restored state holds a transaction of checkpoint {newest}, which the restored "
                f"checkpoint ({permit and permit.checkpoint_id}) does not cover; restore another checkpoint"
            )
            raise PenstockError(msg)
        self._commit(permit)

    def process(self, batch: Batch) -> Iterator[Output]:
        self._run("write", batch)
        return iter(())

    def end_of_data(self) -> Iterator[Output]:
        context = self._context
        if not context.transactional:
            permit = permit_of_ended_input(context.connector.attempt)
            self._pre_commit(0)
            self._commit(permit)
            self._remove_leftovers(permit)
        return iter(())

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        self._pre_commit(checkpoint_id)
        return {COMMITTABLES: SavedList(tuple(self._pending), RedistributionMode.SPLIT_DISTRIBUTE)}

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._commit(permit)
        self._remove_leftovers(permit)

    def built_in_counts(self) -> Mapping[str, int]:
        return {"committed": self._committed, "uncommitted": len(self._pending)}

    @property
    def last_commit(self) -> LastCommit | None:
        return self._last_commit

    def close(self) -> None:
        if self._open_writer is not None:
            try:
                self._run("close")
            finally:
                self._open_writer = None

    def _new_writer(self, context: SinkContext) -> SinkWriter[Any]:
        writer: SinkWriter[Any] = self.sink.writer(context)
        return writer

    def _pre_commit(self, checkpoint_id: int) -> None:
        self._phase = "prepare_commit"
        self._pending += [(checkpoint_id, own_copy(what)) for what in self.writer.prepare_commit()]

    def _commit(self, permit: CommitPermit) -> None:
        covered = [what for checkpoint_id, what in self._pending if permit.covers(checkpoint_id)]
        if not covered:
            return
        self._run("commit", covered, permit)
        self._committed += len(covered)
        # The list is in ascending order of ids, so the covered transactions come first.
        del self._pending[: len(covered)]
        if isinstance(self.writer, ReportsCommit):
            self._phase = "last_commit"
            self._note(self.writer.last_commit(), permit)

    def _note(self, made: object, permit: CommitPermit) -> None:
        if made is None:
            return
        if not isinstance(made, LastCommit):
            msg = f"last_commit returned {short_repr(made)}; return a LastCommit(...), or None for no commit"
            raise TypeError(msg)
        now = self._context.connector.clock.now()
        self._last_commit = replace(made, checkpoint_id=permit.checkpoint_id, at=now)

    def _remove_leftovers(self, permit: CommitPermit) -> None:
        if self._leftovers_removed:
            return
        if self._context.connector.subtask == 0 and isinstance(self.writer, RemovesLeftovers):
            self._run("remove_leftovers", permit)
        self._leftovers_removed = True

    def _run(self, name: str, *arguments: object) -> None:
        """Call a method of the writer; refuse a generator or coroutine as its result."""
        self._phase = name
        given = getattr(self.writer, name)(*arguments)
        if given is not None:
            check_has_run(name, given)

    @property
    def is_open(self) -> bool:
        return self._open_writer is not None

    @property
    def writer(self) -> SinkWriter[Any]:
        assert self._open_writer is not None, "open() comes first"
        return self._open_writer
