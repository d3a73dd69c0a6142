"""Open a file of a split, and refuse one that is no longer the file that was listed."""

from __future__ import annotations

from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.filesystems.filesystem import FileSystem, InputFile
from penstock.runtime.io.connectors.formats.compression import DecompressedFile, is_compressed
from penstock.runtime.io.connectors.formats.recoding import RecodedFile


def open_listed(filesystem: FileSystem, path: str, size: int) -> InputFile:
    """Open a file as it is stored.

    Args:
        filesystem: What serves it.
        path: Its full path.
        size: Its bytes when it was listed.

    Raises:
        ConnectorError: It is gone, has another size now, or can't be opened.
    """
    try:
        now = filesystem.size(path)
        if now is None:
            msg = (
                f"{path} is gone: it was there when the job listed its files. Put it back (a restart goes on "
                "where it was), make sure that every node sees it, or start the job anew without it"
            )
            raise ConnectorError(msg)
        if now != size:
            raise ConnectorError(changed(path, size, now))
        return filesystem.open_input(path)
    except OSError as error:
        msg = f"{path} can't be opened: {error}. Check that the user of the Ray workers may read it"
        raise ConnectorError(msg) from error


def open_for_lines(filesystem: FileSystem, path: str, size: int, stored_as: str | None = None) -> InputFile:
    """Open a file of text, decompressed when its name says that it is compressed.

    Args:
        filesystem: What serves it.
        path: Its full path.
        size: Its bytes when it was listed.
        stored_as: Its encoding, if it is recoded to UTF-8.

    Raises:
        ConnectorError: As `open_listed`.
    """
    handle: InputFile = open_listed(filesystem, path, size)
    compressed = is_compressed(path)
    if compressed:
        handle = DecompressedFile(path, handle)
    if stored_as is not None:
        handle = RecodedFile(path, handle, stored_as, None if compressed else size)
    return handle


def changed(path: str, listed: int, now: int) -> str:
    """Say that a file is not what it was."""
    return (
        f"{path} has changed since it was listed: {listed} bytes then, {now} now. Positions in "
        "it mean nothing any more; put the old file back, or start the job anew. Write new data as new files"
    )
