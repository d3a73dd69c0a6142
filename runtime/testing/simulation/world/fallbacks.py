"""`Fallbacks`: which checkpoint each deployment starts from, and whether it may be an older one.

A job goes on from its newest completed checkpoint. It may start from an older one only where its user allows
that and a file was damaged. Then sinks may repeat what was committed since. The simulation does what such a
user would do: it takes the world outside back, and lets no earlier attempt commit any more.

A JobMaster that was slow may deploy an attempt when a later one has completed checkpoints. It is fenced and
does not know it, and nothing that it deploys can commit. So attempts before the newest one that has completed
a checkpoint are not checked.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.testing.simulation.world.damage import Damage
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind


class Fallbacks:
    """Watches the deployments of whole jobs; see the module's text.

    Args:
        damage: What was damaged.
    """

    def __init__(self, damage: Damage, counts: FaultCounts) -> None:
        self._damage = damage
        self._counts = counts
        self._newest: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._allow_older = False
        self._on_deployment: Callable[[str, int, int | None], None] | None = None

    def watch(self, on_deployment: Callable[[str, int, int | None], None], *, allow_older: bool) -> None:
        """Check every deployment from now on.

        Args:
            on_deployment: Called when something was damaged and older checkpoints are allowed. It gets the
                job, the attempt, and the older checkpoint; `None` if it starts from the newest one.
            allow_older: Whether the user allows older checkpoints.
        """
        self._on_deployment, self._allow_older = on_deployment, allow_older

    def completed(self, job_id: str, attempt: int, checkpoint_id: int) -> None:
        """An attempt of a job has completed a checkpoint: its sinks may commit."""
        self._newest[job_id] = max(checkpoint_id, self._newest.get(job_id, -1))
        self._attempts[job_id] = max(attempt, self._attempts.get(job_id, -1))

    def is_past(self, job_id: str, attempt: int) -> bool:
        """Whether a later attempt of the job has completed a checkpoint."""
        return attempt < self._attempts.get(job_id, -1)

    def deployed(self, job_id: str, attempt: int, restore: CompletedCheckpoint | None) -> None:
        """A whole job is deployed.

        Raises:
            AssertionError: It starts from an older checkpoint, and it may not.
        """
        if self._on_deployment is None or self.is_past(job_id, attempt):
            return
        newest, checkpoint_id = self._newest.get(job_id, -1), -1 if restore is None else restore.checkpoint_id
        is_older = checkpoint_id < newest
        may_be_older = self._allow_older and self._damage.has_struck
        if is_older and not may_be_older:
            msg = f"attempt {attempt} starts from checkpoint {checkpoint_id}, although {newest} is complete"
            raise AssertionError(msg)
        if may_be_older:
            self._counts.happened(FaultKind.FELL_BACK, int(is_older))
            self._on_deployment(job_id, attempt, checkpoint_id if is_older else None)
