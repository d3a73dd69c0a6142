"""`JobEnd`: the snapshots that an ended job has left, and the command that continues from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.runtime.checkpoint.completed_store import is_kept_after
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.graph.executor import JobStatus, restore_command


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Snapshots that an ended job has left.

    Attributes:
        kept: Text that lists the snapshots that stay; `None` if none does.
        deleted: Text with the snapshots that are deleted and the setting that causes it; `None` if none is.
        snapshot: URL of the snapshot from which a program continues; `None` without one.
    """

    kept: str | None = None
    deleted: str | None = None
    snapshot: str | None = None

    @property
    def command(self) -> str | None:
        """The command that continues; `None` if no snapshot of the job is known."""
        return None if self.snapshot is None else restore_command(self.snapshot)

    def lines(self) -> tuple[str, ...]:
        """One line for each fact, the command last."""
        named = ("kept", self.kept or "nothing"), ("deleted", self.deleted), ("to continue", self.command)
        return tuple(f"{name}: {text}" for name, text in named if text is not None)

    def to_dict(self) -> dict[str, Any]:
        """The fields and the command as values that JSON can hold."""
        return {**asdict(self), "command": self.command}


def keeps_checkpoints(settings: Mapping[str, str], end: JobStatus) -> bool:
    """Whether a job with these settings keeps its checkpoints when it ends with this status."""
    rule = _keep_after(settings)
    return rule is not None and is_kept_after(end.value, rule)


def job_end(
    status: JobStatus,
    settings: Mapping[str, str],
    folder: str | None,
    *,
    has_snapshot: bool,
    has_checkpoint: bool,
    savepoint: str | None,
    drained: bool,
    earlier_savepoints: int,
    restored_from: str | None,
) -> JobEnd:
    """Describe what a job has left.

    Args:
        folder: The job's folder in its checkpoint storage; `None` without checkpoints.
        has_snapshot: Whether the job has completed a checkpoint or a savepoint.
        has_checkpoint: Whether it has completed a checkpoint that is not a savepoint.
        savepoint: URL of the savepoint with which the job was stopped.
        earlier_savepoints: Number of savepoints that its report lists, besides `savepoint`.
    """
    stays = has_snapshot and keeps_checkpoints(settings, status)
    kept = [] if savepoint is None else [f"the savepoint {savepoint}"]
    if stays:
        kept.append(f"its checkpoints in {folder}")
    if earlier_savepoints:
        counted = (
            "1 earlier savepoint" if earlier_savepoints == 1 else f"{earlier_savepoints} earlier savepoints"
        )
        kept.append(f"{counted}, which `penstock checkpoints` lists")
    if drained and savepoint is not None:
        snapshot = None
    elif savepoint is not None or stays:
        snapshot = savepoint or folder
    else:  # without a snapshot of its own, the job has committed nothing since its start
        snapshot = None if has_snapshot or status is JobStatus.FINISHED else restored_from
    rule = _keep_after(settings)
    deletes = has_checkpoint and not stays and rule is not None
    return JobEnd(
        kept=", and ".join(kept) or None,
        deleted=f"its checkpoints, by keep_after={rule.value!r}" if deletes and rule is not None else None,
        snapshot=snapshot,
    )


def _keep_after(settings: Mapping[str, str]) -> KeepAfter | None:
    rule = settings.get("checkpointing.keep_after")  # as text: KeepAfter.FAILURE
    return None if rule is None else KeepAfter[rule.rpartition(".")[2]]
