"""Whether a job has dealt with damage as its user wants: it names it, or goes back to an older checkpoint."""

from __future__ import annotations

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.view import LogView
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.simulation.cluster.job import SimulatedJob
from penstock.runtime.testing.simulation.world.world import World


def records_passed_over(world: World, job: SimulatedJob) -> list[str]:
    """Damaged records of the log that a job went on behind although its user allows no older checkpoint."""
    view = None if _allows_older(job) else _log(world, job)
    if view is None:
        return []
    paths = SnapshotPaths(job.id)
    passed = [slot for slot in view.passed_slots if not world.damage.spares([paths.log_slot(slot)])]
    return [f"the job has passed over the damaged records {passed} of its log"] if passed else []


def needless_failure(world: World, job: SimulatedJob) -> list[str]:
    """The checkpoints that a job could have started from that has failed because of damage, as problems.

    A record of the log that is gone may have been anything, so no setting allows it.
    """
    view = _log(world, job) if _allows_older(job) and not world.damage.has_lost_slot else None
    if view is None:
        return []
    storage, problems = world.storage.reliable(), []
    for record in view.completed:
        try:
            checkpoint = read_metadata(storage, record.metadata)
        except CorruptSnapshotError:
            continue
        place = checkpoint.location
        folder = "" if place is None else place.removeprefix(f"{storage.url}/") + "/"
        if world.damage.spares([record.metadata.path, *(folder + file.path for file in checkpoint.files())]):
            problems.append(f"the job has failed, and could have started from {record.checkpoint_id}")
    return problems


def _allows_older(job: SimulatedJob) -> bool:
    return job.config.checkpointing is not None and job.config.checkpointing.allow_older


def _log(world: World, job: SimulatedJob) -> LogView | None:
    """The log without what is damaged; `None` when it can't be read."""
    storage = world.storage.reliable()
    try:
        return DecisionLogReader(storage, SnapshotPaths(job.id), allow_damaged=True).replay()
    except CorruptSnapshotError:
        return None  # the only compaction of the log is damaged, or a record is gone
