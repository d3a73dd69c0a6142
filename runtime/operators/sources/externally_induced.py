"""Sources that decide by their data when a checkpoint happens (Flink's `ExternallyInducedSourceReader`).

A system outside can put a mark into its data, and everything in front of the mark is to be in one checkpoint.
Two parts make that work. The source's *master hook* runs in the JobMaster: when a checkpoint starts it asks
the system to write the mark of that checkpoint. The reader of each subtask meets the mark, says so, and the
subtask takes the checkpoint exactly there.

The job still tells its sources of each checkpoint; such a reader's subtask takes that as the permission to
begin, not as the moment. A mark that is met before the permission comes stops the reader until it does, or
until the checkpoint is aborted or overtaken. A mark from before a restart stops no reader. When the data has
ended there are no more marks, and the subtask takes checkpoints like any other. Savepoints go the same way;
one with which the job is stopped ends the data of each reader at its mark.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from penstock.runtime.operators.coordinators.master_hook import MasterHook


@runtime_checkable
class HasMasterHook(Protocol):
    """A `Source` with a part in every checkpoint that runs in the JobMaster."""

    def master_hook(self) -> MasterHook:
        """Make the hook; called once, in the JobMaster."""
        ...


@runtime_checkable
class ExternallyInducedReader(Protocol):
    """A `SourceReader` that meets marks."""

    def should_trigger_checkpoint(self) -> int | None:
        """The checkpoint whose mark stands right after what the last `poll` gave; asked once a poll."""
        ...
