"""Bugs to plant: what people get wrong in checkpointing, each as a small patch of the real code.

Many have happened in Flink. Acknowledgements of an earlier execution counted, checkpoints were sorted by
name, and restored transactions were not committed again. Each function plants one bug, and pytest's
`MonkeyPatch` takes it out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest
from xxhash import xxh3_64_digest

from penstock.runtime import restore
from penstock.runtime.barrier import unaligned_states
from penstock.runtime.barrier.checkpointed_input_gate import StoringInputGate
from penstock.runtime.barrier.handler import BarrierCount
from penstock.runtime.checkpoint import channel_state_writer, recovery
from penstock.runtime.checkpoint.channel_state_writer import AsyncChannelStateWriter
from penstock.runtime.checkpoint.completed_store import SharedFiles
from penstock.runtime.checkpoint.coordinator import operator_states
from penstock.runtime.checkpoint.coordinator.completion import CheckpointCompletions
from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import (
    MessageOutcome,
    PendingCheckpoint,
    PendingState,
)
from penstock.runtime.checkpoint.log import records
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import LogCompacted, LogView
from penstock.runtime.checkpoint.master_hooks import MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorEventValve
from penstock.runtime.errors import ObjectNotFoundError
from penstock.runtime.execution.deadlines import Lease
from penstock.runtime.execution.job_execution import ControlLanes, OnAnswer
from penstock.runtime.execution.role import CallFit, RoleHolder
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.job import job_ledger
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.operators.coordinator_host import EventOfCoordinator
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.sinks import COMMITTABLES, SinkOperator
from penstock.runtime.operators.source_coordinator import SplitAssignments
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import Buffer
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit, permit_of_ended_input
from penstock.runtime.snapshot.handles import InlineHandle, StateHandle
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.state import keyed_chunk
from penstock.runtime.task import channel_restore, describe_tasks
from penstock.runtime.task.descriptor import SubtaskControl
from penstock.runtime.task.end_of_input import EndOfInput, Phase
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.task.subtask_checkpoints import CoordinatorMail
from penstock.runtime.testing.simulation.world.disks import KeptFolder, ModelDisk
from penstock.runtime.time.watermarks import WatermarkValve

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def count_a_barrier_twice(patch: pytest.MonkeyPatch) -> None:
    settle = BarrierCount.settle

    def settle_two(self: BarrierCount, channel: int) -> bool:
        settled = settle(self, channel)
        for other in sorted(self._owing)[:1]:
            settle(self, other)
        return settled

    patch.setattr(BarrierCount, "settle", settle_two)


def drop_a_buffer_on_release(patch: pytest.MonkeyPatch) -> None:
    unblock = InputGate.unblock

    def drop_one(self: InputGate, channel: int) -> None:
        unblock(self, channel)
        if len(self.channels[channel]._ready) > 1:
            del self.channels[channel]._ready[1]

    patch.setattr(InputGate, "unblock", drop_one)


def capture_no_output(patch: pytest.MonkeyPatch) -> None:
    def forget(self: AsyncChannelStateWriter, *arguments: Any) -> None:
        """Nothing is kept."""

    patch.setattr(AsyncChannelStateWriter, "add_output", forget)


def commit_without_a_record(patch: pytest.MonkeyPatch) -> None:
    finalize = CheckpointCompletions.finalize_if_complete

    def notify_before_it_is_written(self: CheckpointCompletions, pending: PendingCheckpoint) -> None:
        was_collecting = pending.state is PendingState.COLLECTING
        finalize(self, pending)
        if was_collecting and pending.state is PendingState.FINALIZING:
            self._parts.gateway.notify_checkpoint_complete(
                pending.attempt, pending.plan.commit, pending.checkpoint_id
            )

    patch.setattr(CheckpointCompletions, "finalize_if_complete", notify_before_it_is_written)


def fence_no_attempt(patch: pytest.MonkeyPatch) -> None:
    def follow(self: DecisionLog, slot: int, found: Any) -> None:
        self.view = self.view.after(found)

    patch.setattr(DecisionLog, "_follow", follow)


def leave_the_valve_open(patch: pytest.MonkeyPatch) -> None:
    def mark_only(self: OperatorEventValve, checkpoint_id: int) -> None:
        """Events go on."""

    receive = CoordinatorMail.receive

    def forget_the_checkpoint(self: CoordinatorMail, operator_id: str, event: EventOfCoordinator) -> None:
        receive(self, operator_id, replace(event, after=-1))  # or the subtask holds the event back

    patch.setattr(OperatorEventValve, "shut", mark_only)
    patch.setattr(CoordinatorMail, "receive", forget_the_checkpoint)


def give_no_splits_back(patch: pytest.MonkeyPatch) -> None:
    def forget(self: SplitAssignments, subtask: int, checkpoint_id: int | None) -> list[Any]:
        return []

    patch.setattr(SplitAssignments, "take_back", forget)


def deal_key_groups_out_by_the_old_parallelism(patch: pytest.MonkeyPatch) -> None:
    def old_ranges(handles: Any, old: int, new: int, groups: int) -> Any:
        return [list(handles[index]) if index < old else [] for index in range(new)]

    patch.setattr(restore, "reassign_keyed", old_ranges)


def restore_hooks_as_if_there_were_no_state(patch: pytest.MonkeyPatch) -> None:
    def begin_anew(self: MasterHooks, *arguments: Any, **more: Any) -> None:
        """As if there were no state for them."""
        for identifier in self.identifiers:
            self._hooks[identifier].reset()

    patch.setattr(MasterHooks, "restore", begin_anew)


def forget_when_restored_windows_end(patch: pytest.MonkeyPatch) -> None:
    open_operator = WindowOperator.open

    def forget(self: WindowOperator, context: OperatorContext) -> None:
        open_operator(self, context)
        self._ends.clear()
        self._keys_by_end.clear()

    patch.setattr(WindowOperator, "open", forget)


def let_no_lease_end(patch: pytest.MonkeyPatch) -> None:
    def never(self: Lease, now: float) -> bool:
        return False

    patch.setattr(Lease, "is_over", never)


def take_frames_of_other_attempts(patch: pytest.MonkeyPatch) -> None:
    fit = RoleHolder.fit

    def any_attempt(self: RoleHolder, token: str, attempt: int) -> CallFit:
        held = self.role
        return fit(self, token, attempt if held is None else held.attempt)

    patch.setattr(RoleHolder, "fit", any_attempt)


def send_events_past_triggers(patch: pytest.MonkeyPatch) -> None:
    def put(
        self: ControlLanes,
        attempt: int,
        subtask: SubtaskId,
        message: SubtaskControl,
        on_answer: OnAnswer = lambda arrived: None,
    ) -> None:
        self._send(attempt, subtask, message, on_answer)

    patch.setattr(ControlLanes, "put", put)


def take_events_twice(patch: pytest.MonkeyPatch) -> None:
    control = Subtask.control

    def forgetful(self: Subtask, message: SubtaskControl) -> None:
        self._last_event = 0
        control(self, message)

    patch.setattr(Subtask, "control", forgetful)


def let_new_input_pass_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    next_one = StoringInputGate._next

    def new_input_first(self: StoringInputGate) -> Any:
        polled = self.gate.poll()
        return next_one(self) if polled is None else (*polled, None)

    patch.setattr(StoringInputGate, "_next", new_input_first)


# -- barriers ---------------------------------------------------------------------------------------------


def capture_no_input(patch: pytest.MonkeyPatch) -> None:
    def forget(self: AsyncChannelStateWriter, *arguments: Any) -> None:
        """Nothing is kept."""

    patch.setattr(AsyncChannelStateWriter, "add_input", forget)


def capture_what_is_behind_the_barrier(patch: pytest.MonkeyPatch) -> None:
    def all_buffers(checkpoint_id: int, waiting: Any) -> list[Any]:
        return [element for element in waiting if isinstance(element, Buffer)]

    patch.setattr(unaligned_states, "in_front_of", all_buffers)


# -- the coordinator and the log --------------------------------------------------------------------------


def count_an_acknowledgement_twice(patch: pytest.MonkeyPatch) -> None:
    acknowledge = PendingCheckpoint.acknowledge

    def count(self: PendingCheckpoint, *arguments: Any) -> MessageOutcome:
        outcome = acknowledge(self, *arguments)
        if outcome is MessageOutcome.DUPLICATE and self._missing:
            missing = min(self._missing)
            self._missing.remove(missing)
            self._snapshots[missing] = None
            return MessageOutcome.ACCEPTED
        return outcome

    patch.setattr(PendingCheckpoint, "acknowledge", count)


def hear_old_attempts(patch: pytest.MonkeyPatch) -> None:
    def any_attempt(self: JobScheduler, attempt: int, subtask: SubtaskId | None) -> bool:
        return True

    patch.setattr(JobScheduler, "_is_current", any_attempt)


def reuse_checkpoint_ids(patch: pytest.MonkeyPatch) -> None:
    begin = CheckpointCoordinator.begin_attempt

    def begin_behind_the_newest(self: CheckpointCoordinator, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        newest = self.latest_completed
        self._served.next_id = 1 if newest is None else newest.checkpoint_id + 1

    patch.setattr(CheckpointCoordinator, "begin_attempt", begin_behind_the_newest)


def sort_checkpoints_by_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        records, "_by_id", lambda completed: tuple(sorted(completed, key=lambda c: c.metadata.path))
    )


def delete_files_that_newer_checkpoints_share(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(self: SharedFiles, files: Any) -> list[Any]:
        return list({handle.path: handle for handle in files}.values())

    patch.setattr(SharedFiles, "release", all_of_them)


# -- two-phase sinks --------------------------------------------------------------------------------------


def commit_what_the_checkpoint_does_not_cover(patch: pytest.MonkeyPatch) -> None:
    def commit_all(self: SinkOperator, permit: CommitPermit) -> None:
        pending, self._pending = self._pending, []
        self._writer.commit([what for _, what in pending], permit)

    patch.setattr(SinkOperator, "_commit", commit_all)


def commit_with_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    pre_commit = SinkOperator._pre_commit

    def commit(self: SinkOperator, checkpoint_id: int) -> None:
        pre_commit(self, checkpoint_id)
        permit = permit_of_ended_input(self._opened_context.connector.attempt)
        self._writer.commit([what for _, what in self._pending], permit)

    patch.setattr(SinkOperator, "_pre_commit", commit)


def forget_restored_transactions(patch: pytest.MonkeyPatch) -> None:
    open_operator = SinkOperator.open

    def forget(self: SinkOperator, context: OperatorContext) -> None:
        left = {name: state for name, state in context.restored.items() if name != COMMITTABLES}
        open_operator(self, replace(context, restored=left))

    patch.setattr(SinkOperator, "open", forget)


def remove_leftovers_before_all_are_open(patch: pytest.MonkeyPatch) -> None:
    open_operator = SinkOperator.open

    def clean_up(self: SinkOperator, context: OperatorContext) -> None:
        open_operator(self, context)
        if context.restored_permit is not None:
            self._remove_leftovers(context.restored_permit)

    patch.setattr(SinkOperator, "open", clean_up)


def drop_transactions_of_aborted_checkpoints(patch: pytest.MonkeyPatch) -> None:
    def drop(self: SinkOperator, checkpoint_id: int) -> None:
        self._pending = [entry for entry in self._pending if entry[0] != checkpoint_id]

    patch.setattr(SinkOperator, "notify_checkpoint_aborted", drop)


# -- rescaling --------------------------------------------------------------------------------------------


def forget_lists_of_subtasks_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    redistribute = restore.redistribute
    patch.setattr(restore, "redistribute", lambda old, new: redistribute(old[:new], new))


def give_data_in_flight_to_the_old_receiver(patch: pytest.MonkeyPatch) -> None:
    def by_index(subtask: Any, partitioner: Any, channel: Any, elements: Any, codec: Any) -> Iterator[Any]:
        buffers = (e for e in map(channel_restore.decode_element, elements) if isinstance(e, Buffer))
        if channel.receiver % subtask.vertex.parallelism == subtask.id.index:
            yield from buffers

    patch.setattr(channel_restore, "_mine", by_index)


# -- processes and deliveries -----------------------------------------------------------------------------


def take_frames_as_they_come(patch: pytest.MonkeyPatch) -> None:
    def accept(self: InputChannel, first: int, elements: Any) -> Any:
        return self._accept(elements)

    patch.setattr(InputChannel, "_receive_out_of_order", accept)


# -- sources, the end of data, and event time -------------------------------------------------------------


def give_splits_back_that_a_checkpoint_covers(patch: pytest.MonkeyPatch) -> None:
    def forget(self: SplitAssignments, checkpoint_id: int) -> None:
        """As if no checkpoint had begun."""

    patch.setattr(SplitAssignments, "checkpointed", forget)


def leave_with_any_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def leave(self: EndOfInput, checkpoint_id: int) -> None:
        if self.phase is Phase.ENDED:
            self._leave()

    patch.setattr(EndOfInput, "notify_checkpoint_complete", leave)


def fire_windows_when_the_job_stops(patch: pytest.MonkeyPatch) -> None:
    finish = EndOfInput.finish
    patch.setattr(EndOfInput, "finish", lambda self, drain: finish(self, True))


def wait_for_receivers_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    def wait_on(self: SubtaskOutputs, channel: OutputChannelSpec) -> None:
        """As if its last answers were still to come."""

    patch.setattr(SubtaskOutputs, "receiver_gone", wait_on)


def follow_the_fastest_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WatermarkValve, "_slowest", lambda self: max(self._watermarks))


def answer_before_names_are_synced(patch: pytest.MonkeyPatch) -> None:
    def skip(self: KeptFolder) -> None:
        """Names in the folder are lost when the power fails."""

    patch.setattr(KeptFolder, "sync", skip)


def name_files_before_their_content_is_synced(patch: pytest.MonkeyPatch) -> None:
    write = ModelDisk.write

    def unsynced(self: ModelDisk, path: str, data: bytes, *, sync: bool) -> None:
        write(self, path, data, sync=False)

    patch.setattr(ModelDisk, "write", unsynced)


# -- stored files, and the compaction of the log ----------------------------------------------------------


def delete_before_the_compaction_is_written(patch: pytest.MonkeyPatch) -> None:
    compact = DecisionLog._compact

    def delete_first(self: DecisionLog, now: float) -> None:
        keep = {*self.view.begun_slots, *self.view.passed_slots}
        self._storage.delete(self._reader.superseded(self.view.next_slot, keep))
        compact(self, now)

    patch.setattr(DecisionLog, "_compact", delete_first)


def forget_checkpoints_that_are_compacted(patch: pytest.MonkeyPatch) -> None:
    compacted = LogView.compacted

    def forget(self: LogView, at: float) -> LogCompacted:
        return compacted(replace(self, completed=self.completed[:-1]), at)

    patch.setattr(LogView, "compacted", forget)


# -- damaged and lost files -------------------------------------------------------------------------------


def pass_over_damage_that_nobody_allows(patch: pytest.MonkeyPatch) -> None:
    make = DecisionLog.__init__

    def lenient(self: DecisionLog, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **{**more, "allow_damaged": True})

    patch.setattr(DecisionLog, "__init__", lenient)


def take_no_older_checkpoint(patch: pytest.MonkeyPatch) -> None:
    load = recovery.load_latest

    def newest_only(*arguments: Any, **more: Any) -> Any:
        return load(*arguments, **{**more, "allow_older": False})

    patch.setattr(job_ledger, "load_latest", newest_only)


class _Agreeing(bytes):
    """Differs from nothing."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def believe_state_without_its_checksum(patch: pytest.MonkeyPatch) -> None:
    def unchecked(storage: SnapshotStorage, handle: StateHandle) -> bytes:
        if isinstance(handle, InlineHandle):
            return handle.data
        try:
            return storage.get(handle.path)
        except ObjectNotFoundError as error:
            raise metadata.missing(storage, handle.path) from error

    for reader in (metadata, describe_tasks, operator_states, channel_state_writer):
        patch.setattr(reader, "read_state", unchecked)
    # Keyed state has a checksum of its own, too.
    patch.setattr(keyed_chunk, "xxh3_64_digest", lambda body: _Agreeing(xxh3_64_digest(body)))


def miss_files_that_a_listing_does_not_show(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_can_be_read", lambda storage, path: False)


def _end_without(patch: pytest.MonkeyPatch, **forgotten: object) -> None:
    end = DecisionLog.end

    def forget(self: DecisionLog, *given: Any, **answers: Any) -> Any:
        return end(self, *given, **{**answers, **forgotten})

    patch.setattr(DecisionLog, "end", forget)


def end_without_the_savepoint_of_a_stop(patch: pytest.MonkeyPatch) -> None:
    _end_without(patch, savepoint=None)


def end_without_the_failure(patch: pytest.MonkeyPatch) -> None:
    _end_without(patch, failure=None)


#: All of them, by the part of the system that is wrong.
PLANTED: Final[tuple[Plant, ...]] = (
    count_a_barrier_twice,
    drop_a_buffer_on_release,
    capture_no_output,
    commit_without_a_record,
    fence_no_attempt,
    leave_the_valve_open,
    give_no_splits_back,
    deal_key_groups_out_by_the_old_parallelism,
    restore_hooks_as_if_there_were_no_state,
    forget_when_restored_windows_end,
    let_no_lease_end,
    take_frames_of_other_attempts,
    send_events_past_triggers,
    take_events_twice,
    let_new_input_pass_what_is_stored,
    capture_no_input,
    capture_what_is_behind_the_barrier,
    count_an_acknowledgement_twice,
    hear_old_attempts,
    reuse_checkpoint_ids,
    sort_checkpoints_by_name,
    delete_files_that_newer_checkpoints_share,
    commit_what_the_checkpoint_does_not_cover,
    commit_with_the_snapshot,
    forget_restored_transactions,
    remove_leftovers_before_all_are_open,
    drop_transactions_of_aborted_checkpoints,
    forget_lists_of_subtasks_that_are_gone,
    give_data_in_flight_to_the_old_receiver,
    take_frames_as_they_come,
    give_splits_back_that_a_checkpoint_covers,
    leave_with_any_checkpoint,
    fire_windows_when_the_job_stops,
    wait_for_receivers_that_are_gone,
    follow_the_fastest_watermark,
    answer_before_names_are_synced,
    name_files_before_their_content_is_synced,
    delete_before_the_compaction_is_written,
    forget_checkpoints_that_are_compacted,
    pass_over_damage_that_nobody_allows,
    take_no_older_checkpoint,
    believe_state_without_its_checksum,
    miss_files_that_a_listing_does_not_show,
    end_without_the_savepoint_of_a_stop,
    end_without_the_failure,
)
