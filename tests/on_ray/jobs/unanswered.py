"""Files that don't answer: each read of one hangs until the test lets it go."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class Unanswered:
    """A named pipe where a file was. Opening a pipe for reading hangs as long as nobody writes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writer: int | None = None
        self._both: int | None = None

    def is_read(self) -> bool:
        """Whether somebody reads it. Their reading hangs on, now for data that never comes."""
        if self._writer is None:
            with contextlib.suppress(OSError):  # nobody reads yet
                self._writer = os.open(self._file, os.O_WRONLY | os.O_NONBLOCK)
        return self._writer is not None

    def put_back(self, data: bytes) -> None:
        """The file is there again; what reads the pipe hangs on, as an end would look like an empty file."""
        self._both = os.open(self._file, os.O_RDWR | os.O_NONBLOCK)  # opening for reading returns now
        back = self._file.with_name(f"{self._file.name}#back")
        back.write_bytes(data)
        back.replace(self._file)

    def let_go(self) -> None:
        """End the reads that still hang; they have been given up by now."""
        for descriptor in (self._writer, self._both):
            if descriptor is not None:
                os.close(descriptor)


@contextlib.contextmanager
def unanswered(file: Path) -> Iterator[Unanswered]:
    """The file does not answer within this block, and is there again behind it, if it was not deleted.

    Call `let_go` when nobody waits for the reads any more.
    """
    data = file.read_bytes()
    pipe = file.with_name(f"{file.name}#pipe")  # such names are staging files, which nobody lists
    os.mkfifo(pipe)
    pipe.replace(file)
    hanging = Unanswered(file)
    try:
        yield hanging
    finally:
        with contextlib.suppress(FileNotFoundError):  # Penstock has deleted it meanwhile
            hanging.put_back(data)
