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

A location is compared as a text, and opened as a URL. So it must mean what its text says. `%2e%2e` is a step
up, `?` and `#` cut a URL off, and a tab in it is left out. The first part of a location is what the user has
chosen, perhaps with `%20` in it. Behind the storage that a user names, only what `check_path` takes may
stand.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.runtime.errors import CorruptSnapshotError, RestoreError, StorageError
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.paths import check_path

#: A step that goes nowhere, or up; in a URL it may be written in other ways.
_STEP: Final = re.compile(r"\.\.?")
_STEP_OF_URL: Final = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: What ends the path of a URL, is left out of it, or separates folders without being a slash.
_MISLEADS: Final = re.compile(r"[?#\\\x00-\x1f\x7f]|%2f|%5c|%[01][0-9a-f]|%7f", re.IGNORECASE)


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
    if checkpoint.is_savepoint and location == own and _means_what_it_says(location):
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
    if location is None or inside_of(root, location) is not None:
        return checked
    msg = (
        f"the newest snapshot of job {job_id} in {root} is a savepoint, and its files are in {location}. "
        "That is outside of the storage that you have named, or is not plainly in it: below a storage "
        "that you name, folders have letters from A to Z, digits and . _ = ~ - only. If you trust whoever "
        "could write there, name that folder"
    )
    raise RestoreError(msg)


def inside_of(root: str, location: str) -> str | None:
    """The path of a location in a storage; `None` when it lies elsewhere, or does not say plainly where.

    Example:
        >>> inside_of("file:///my%20data", "file:///my%20data/saved/savepoint-j-1-1")
        'saved/savepoint-j-1-1'
        >>> inside_of("s3://bucket/data", "s3://bucket/data/%2e%2e/other/savepoint-j-1-1")
    """
    above = root.rstrip("/") + "/"
    try:
        return check_path(location.removeprefix(above)) if location.startswith(above) else None
    except StorageError:
        return None


def _means_what_it_says(location: str) -> bool:
    """Whether whoever opens a location goes down all folders of its text, and none up."""
    step, misleading = (_STEP_OF_URL, _MISLEADS) if "://" in location else (_STEP, _CONTROL)
    return misleading.search(location) is None and not any(map(step.fullmatch, location.split("/")))
