"""`Semantics`: the rules in which Flink 1.11 differs from Penstock, as one value.

Conformance cases replay Flink 1.11 with the classes that jobs run. Those take another value here, and differ
in nothing else. A job chooses one of the rules itself: `JobConfig(end_of_partition=...)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

EndOfPartitionMode: TypeAlias = Literal["counts_as_barrier", "aborts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """Rules of checkpoints. The defaults are those of jobs.

    Attributes:
        end_of_partition: Meaning of a channel's end for a checkpoint that waits for its barrier. It counts as
            the barrier, or aborts the checkpoint.
        coalesces_periodic_requests: No periodic request is made while one waits; otherwise they pile up.
        abort_ends_start: An abort ends the start that is under way. Otherwise the next answer of a hook or a
            coordinator ends it, which may never come.
        declines_overtaken: A subtask declines an id that a newer one overtook; otherwise it drops it.
        checkpoints_after_tasks_finish: Checkpoints continue when some subtasks have finished.
        savepoints_count: A savepoint is retained like a checkpoint, in the order of completion. A late one
            then displaces a newer checkpoint.
    """

    end_of_partition: EndOfPartitionMode = "counts_as_barrier"
    coalesces_periodic_requests: bool = True
    abort_ends_start: bool = True
    declines_overtaken: bool = True
    checkpoints_after_tasks_finish: bool = True
    savepoints_count: bool = False

    @classmethod
    def current(cls) -> Semantics:
        """The rules of jobs.

        Example:
            >>> Semantics.current().end_counts_as_barrier
            True
        """
        return cls()

    @classmethod
    def flink_1_11(cls) -> Semantics:
        """The rules of Flink 1.11.

        Example:
            >>> Semantics.flink_1_11().end_counts_as_barrier
            False
        """
        return cls(
            end_of_partition="aborts",
            coalesces_periodic_requests=False,
            abort_ends_start=False,
            declines_overtaken=False,
            checkpoints_after_tasks_finish=False,
            savepoints_count=True,
        )

    @property
    def end_counts_as_barrier(self) -> bool:
        """Whether an ended channel owes no barrier any more."""
        return self.end_of_partition == "counts_as_barrier"
