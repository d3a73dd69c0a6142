"""Files that don't answer: opening one hangs. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

# Of <sys/fanotify.h>: a group that is asked before a file is opened, and a mark that asks it.
_CLASS_CONTENT: Final = 4
_MARK_ADD: Final = 1
_OPEN_PERMISSION: Final = 0x10000
_HERE: Final = -100


@contextlib.contextmanager
def unanswered(file: Path) -> Iterator[None]:
    """The file does not answer within this block; behind it, it does.

    The kernel asks this process before anybody opens the file (fanotify), and gets no answer. So the file
    stays a plain one, and its opening hangs as on a network disk whose server is gone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fanotify_mark.argtypes = [
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_char_p,
    ]
    group = libc.fanotify_init(_CLASS_CONTENT, os.O_RDONLY | os.O_CLOEXEC)
    if group < 0:
        pytest.skip(f"files can't be made to hang here: {os.strerror(ctypes.get_errno())}")
    try:
        if libc.fanotify_mark(group, _MARK_ADD, _OPEN_PERMISSION, _HERE, os.fsencode(file)) < 0:
            pytest.skip(f"files can't be made to hang here: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        os.close(group)  # releases calls that still hang
