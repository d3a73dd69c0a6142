"""Whether a job has failed because of damage although its user lets it start from an older checkpoint."""

from __future__ import annotations

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.simulation.cluster.job import SimulatedJob
from penstock.runtime.testing.simulation.world.world import World


def needless_failure(world: World, job: SimulatedJob) -> list[str]:
    """The checkpoints that a job could have started from that has failed because of damage, as problems.

    A record of the log that is gone may have been anything, so no setting allows it.
    """
    checkpointing = job.config.checkpointing
    if checkpointing is None or not checkpointing.allow_older or world.damage.has_lost_slot:
        return []
    storage, problems = world.storage.reliable(), []
    try:
        kept = DecisionLogReader(storage, SnapshotPaths(job.id), allow_damaged=True).replay().completed
    except CorruptSnapshotError:
        return []  # the only compaction of the log is damaged
    for record in kept:
        try:
            checkpoint = read_metadata(storage, record.metadata)
        except CorruptSnapshotError:
            continue
        place = checkpoint.location
        folder = "" if place is None else place.removeprefix(f"{storage.url}/") + "/"
        if world.damage.spares([record.metadata.path, *(folder + file.path for file in checkpoint.files())]):
            problems.append(f"the job has failed, and could have started from {record.checkpoint_id}")
    return problems
