"""Which folders the metadata of a savepoint may name.

A savepoint may be in a folder of its own, outside of the checkpoint storage. A note in the storage then names
that folder: `location` in its metadata. Whoever can write the storage, or hands over a snapshot, can change
the note. A location that is believed makes the workers open any folder or bucket that they may.

So two rules hold.

- A note names the folder that Penstock itself would have made: `.../savepoint-<job>-<id>-<attempt>`, with the
  job, number and attempt of the note. A job that restarts from its own savepoint asks for no more, because
  the place came from its own user.
- For a snapshot that a user names, the folder must also be inside of the storage that the user has named. A
  savepoint elsewhere is opened when the user names its folder: who does that trusts the place.
"""

from __future__ import annotations

from penstock.runtime.errors import CorruptSnapshotError, RestoreError
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint


def check_own_location(checkpoint: CompletedCheckpoint, job_id: str) -> CompletedCheckpoint:
    """Refuse a location that is not the folder of this savepoint.

    Args:
        checkpoint: As its metadata has it.
        job_id: The job whose storage holds the metadata.

    Returns:
        The checkpoint.

    Raises:
        CorruptSnapshotError: The location is another one; nothing was opened there.
    """
    location = checkpoint.location
    if location is None:
        return checkpoint
    place, _, _ = location.rpartition("/")
    own = f"{place}/savepoint-{job_id}-{checkpoint.checkpoint_id}-{checkpoint.attempt}"
    is_plain = not any(part in (".", "..") for part in location.split("/")) and "\0" not in location
    if checkpoint.is_savepoint and is_plain and location == own:
        return checkpoint
    named = own.rpartition("/")[2]
    msg = (
        f"the metadata of {checkpoint.kind.value} {checkpoint.checkpoint_id} of job {job_id} names "
        f"{location!r} as the place of its files, which is not the folder {named} of this savepoint: "
        "it was changed, or damaged"
    )
    raise CorruptSnapshotError(msg)


def check_named_location(checkpoint: CompletedCheckpoint, job_id: str, root: str) -> CompletedCheckpoint:
    """Also refuse a location outside of the storage that a user has named.

    Args:
        checkpoint: As its metadata has it.
        job_id: The job whose folder holds the metadata.
        root: URL of the storage that the user has named.

    Returns:
        The checkpoint.

    Raises:
        CorruptSnapshotError: The location is not the folder of this savepoint.
        RestoreError: It lies elsewhere; nothing was opened there.
    """
    checked = check_own_location(checkpoint, job_id)
    location = checked.location
    if location is None or location.startswith(root.rstrip("/") + "/"):
        return checked
    msg = (
        f"the newest snapshot of job {job_id} in {root} is a savepoint, and its files are in {location}. "
        "That is outside of the storage that you have named. If you trust whoever could write "
        "there, name that folder"
    )
    raise RestoreError(msg)
