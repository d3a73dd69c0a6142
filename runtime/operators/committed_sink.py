"""The two operators of a sink with a committer: writers in parallel, and one subtask that commits for all.

A table takes one commit for each checkpoint, however many subtasks write. So such a sink has two operators.
Each subtask of the first one stages its output. Before the barrier it sends the committables to the second
one, which has one subtask. Its part of the checkpoint holds the committables of all writers. When the
checkpoint is complete it commits them together, in the order of checkpoints, even after a restore.

The exchange between both is global, so even barriers of unaligned checkpoints overtake no data on it. A
completed checkpoint thus covers exactly the committables that were sent before its barriers.

The committer's `max_parallelism` is 1, so no rescale can add a second one. Flink's counterpart is the global
committer (`StandardSinkTopologies.addGlobalCommitter`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output
from penstock.runtime.operators.sinks import SinkContext, SinkOperator, SinkWriter
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.record.elements import Batch, RowBatch

#: Follows the id of a sink in the id of its committer.
COMMITTER_SUFFIX: Final = "-committer"

T_contra = TypeVar("T_contra", contravariant=True)


class StagingWriter(Protocol[T_contra]):  # type: ignore[misc] # batches do not name their records' type
    """Stages the records of one subtask for a committer."""

    def write(self, batch: Batch) -> None:
        """Add records to the staged output."""
        ...

    def prepare_commit(self) -> Sequence[Any]:
        """Make everything written so far durable and invisible; return it as records for the committer."""
        ...

    def close(self) -> None:
        """Release everything; called once, even after a failure."""
        ...


@runtime_checkable
class HasCommitter(Protocol):
    """Optional for a sink: one subtask commits the output of all writers, once for each checkpoint.

    The sink's `writer` then returns a `StagingWriter`.
    """

    def writer(self, context: SinkContext) -> StagingWriter[Any]:
        """Make the writer of one subtask."""
        ...

    def committer(self, context: SinkContext) -> SinkWriter[Any]:
        """Make the only committer. Its `write` takes what the writers' `prepare_commit` has returned.

        Within one checkpoint the order of writers is undefined. Records of an earlier checkpoint come first.
        """
        ...


class StagingOperator(Operator):
    """Runs a writer in one subtask, and sends its committables before each barrier."""

    batch_format: ClassVar[BatchFormats] = "both"

    def __init__(self, sink: HasCommitter) -> None:
        self.sink = sink
        self._writer: StagingWriter[Any] | None = None
        self._phase = "open"

    @property
    def only_reads(self) -> bool:
        return getattr(self.sink, "only_reads", False) is True

    @property
    def doing(self) -> str:
        return f"sink {type(self.sink).__name__}: {self._phase}"

    def open(self, context: OperatorContext) -> None:
        self._phase = "open"
        self._writer = self.sink.writer(SinkContext.of(context))

    def process(self, batch: Batch) -> Iterator[Output]:
        self._phase = "write"
        given: object = self.writer.write(batch)  # type: ignore[func-returns-value] # a user may return one
        if given is not None:
            check_has_run("write", given)
        return iter(())

    def end_of_data(self) -> Iterator[Output]:
        return self._staged()

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        return self._staged()

    def close(self) -> None:
        if self._writer is not None:
            self._phase = "close"
            try:
                self._writer.close()
            finally:
                self._writer = None

    def _staged(self) -> Iterator[Output]:
        self._phase = "prepare_commit"
        staged = list(self.writer.prepare_commit())
        if staged:
            yield RowBatch(staged)

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def writer(self) -> StagingWriter[Any]:
        assert self._writer is not None, "open() comes first"
        return self._writer


class CommitterOperator(SinkOperator):
    """Commits what all writers have staged; it never has more than one subtask."""

    batch_format: ClassVar[BatchFormats] = "rows"

    def __init__(self, sink: HasCommitter) -> None:
        super().__init__(sink)

    def _new_writer(self, context: SinkContext) -> SinkWriter[Any]:
        committer: SinkWriter[Any] = self.sink.committer(context)
        return committer
