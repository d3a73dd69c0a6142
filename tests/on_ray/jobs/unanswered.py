"""Files that don't answer: whoever reads one hangs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def unanswered(file: Path) -> Iterator[None]:
    """The file does not answer within this block, and is there again behind it, if it was not deleted.

    It is a named pipe meanwhile: the opening of a pipe for reading hangs as long as nobody writes. Who still
    hangs behind the block is let go, and finds that it is no file.
    """
    data = file.read_bytes()
    pipe = file.with_name(f"{file.name}#pipe")  # such names are staging files, which nobody lists
    os.mkfifo(pipe)
    pipe.replace(file)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):  # Penstock has deleted it meanwhile
            both = os.open(file, os.O_RDWR | os.O_NONBLOCK)
            back = file.with_name(f"{file.name}#back")
            back.write_bytes(data)
            back.replace(file)
            os.close(both)
