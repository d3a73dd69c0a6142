"""`SubtaskState`: what a checkpoint takes of a subtask, and what its completion or abortion means there.

The `SubtaskCheckpointCoordinator` asks it between two pieces of work; nothing here calls back. What an
operator is in the middle of is in no snapshot. So work is finished before the barrier goes out
(`prepare_barrier`), and what was not begun becomes in-flight data (`capture_rest`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.runtime.checkpoint.subtask.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.errors import CodecError
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.operators.user_code.failure import located
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.snapshot.permit import permit_of_completed_checkpoint
from penstock.runtime.task.coordinator_mail import CoordinatorMail
from penstock.runtime.task.end_of_input import EndOfInput
from penstock.runtime.task.subtask_parts import SubtaskParts
from penstock.runtime.task.work_in_progress import WorkInProgress


class SubtaskState:
    """The `CheckpointedState` of one subtask; driven by the task thread alone.

    Args:
        parts: Operators, keyed state and codecs.
        work: What the subtask is in the middle of.
        end: Says whether the operators will emit anything more.
        mail: Events of operators' coordinators that wait for their turn.
    """

    def __init__(
        self, parts: SubtaskParts, work: WorkInProgress, end: EndOfInput, mail: CoordinatorMail
    ) -> None:
        self._parts = parts
        self._mail = mail
        self._work = work
        self._end = end
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the operators are closed, so that there is no state to take."""
        return self._is_closed

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Let operators handle and emit what belongs in front of the barrier.

        None of them is in the middle of a call.

        `WorkInProgress.settle` was asked before. After the end of the data nothing is emitted any more.

        Raises:
            OperatorError: An operator failed.
        """
        is_settled = self._work.settle()
        assert is_settled, f"checkpoint {checkpoint_id} is taken in the middle of a call"
        self._mail.deliver_before(checkpoint_id)
        if self._end.is_running and not self._is_closed:
            for _ in self._parts.chain.prepare_snapshot_pre_barrier():
                pass  # credits are not asked: the barrier must not wait, and it goes out behind this

    def capture_rest(self, checkpoint_id: int) -> None:
        """The rows of a batch that were not begun are in flight, in front of what waits in their channel.

        Raises:
            OperatorError: A record that has been taken can't be encoded again.
        """
        parts, rest = self._parts, self._work.rest()
        if rest is None or parts.network is None or parts.channel_state is None:
            return
        try:
            buffer = parts.batches.encode(rest)
        except CodecError as error:
            raise located(parts.location, "keeping what it has not begun", error) from error
        parts.channel_state.add_input(checkpoint_id, parts.network.last_channel, (buffer,))

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half of a checkpoint of all operators.

        Raises:
            OperatorError: An operator failed, or something in its state can't be encoded.
        """
        parts, checkpoint_id = self._parts, barrier.checkpoint_id
        lists = dict(parts.chain.snapshot(checkpoint_id))
        if parts.source is not None:
            lists[parts.head_operator] = parts.source.snapshot(checkpoint_id)
        raw = parts.chain.snapshot_raw(checkpoint_id)
        operators = {}
        for spec, location in zip(parts.operators, parts.locations, strict=True):
            try:
                snapshot = self._snapshot_of(spec.id, lists.get(spec.id, {}), barrier)
                operators[spec.id] = replace(snapshot, raw=raw[spec.id]) if spec.id in raw else snapshot
            except CodecError as error:
                raise located(location, "keeping its state", error) from error
        # The end that a stop with savepoint brings about is not the end of the job's input.
        stops = barrier.options.kind is SnapshotKind.SYNC_SAVEPOINT
        return SubtaskSnapshotTask(
            checkpoint_id,
            operators,
            parts.backends,
            lambda operator: parts.files(checkpoint_id, barrier.options, operator),
            ended=self._end.has_emitted_all and not stops,
            events=parts.sent_events.counts,
            max_raw_bytes=parts.max_raw_bytes,
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit what a checkpoint covers.

        Raises:
            OperatorError: A commit failed.
        """
        parts = self._parts
        if parts.source is not None:
            parts.source.notify_checkpoint_complete(checkpoint_id)
        permit = permit_of_completed_checkpoint(checkpoint_id, parts.descriptor.attempt)
        parts.chain.notify_checkpoint_complete(permit)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify operators that a checkpoint was aborted.

        Raises:
            OperatorError: An operator failed.
        """
        self._parts.chain.notify_checkpoint_aborted(checkpoint_id)

    def confirm(self, checkpoint_id: int) -> None:
        """The files of a completed checkpoint may be named by later ones."""
        for backend in self._parts.backends.values():
            backend.confirm(checkpoint_id)

    def forget(self, checkpoint_id: int) -> None:
        """No later checkpoint names the files of this one."""
        for backend in self._parts.backends.values():
            backend.forget(checkpoint_id)

    def close(self) -> None:
        """Close the operators: there is no state to take any more.

        Raises:
            OperatorError: An operator could not be closed; all others were.
        """
        self._is_closed = True
        self._mail.close()
        self._parts.close()

    def _snapshot_of(
        self, operator: str, lists: Mapping[str, SavedList], barrier: CheckpointBarrier
    ) -> OperatorSnapshot:
        backend = self._parts.backends.get(operator)
        keyed = None
        if backend is not None:
            is_savepoint = barrier.options.kind.is_savepoint
            keyed = backend.snapshot(barrier.checkpoint_id, barrier.confirmed_id, self_contained=is_savepoint)
        return OperatorSnapshot(encode_list_states(lists, self._parts.values), keyed)
