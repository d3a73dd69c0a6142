"""Functions that tell which process they run in, and leave something behind there."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Any

_calls = 0
_children: list[subprocess.Popen[bytes]] = []


def pid_of(_: int) -> int:
    return os.getpid()


def calls_so_far(_: int) -> int:
    """The number of calls of this function in this process; a module's global."""
    global _calls
    _calls += 1
    return _calls


def sets_a_variable(_: int) -> int:
    os.environ["PENSTOCK_TEST_VARIABLE"] = "set"
    return os.getpid()


def changes_the_folder(_: int) -> int:
    os.chdir("/")
    return os.getpid()


def sets_the_umask(_: int) -> int:
    os.umask(0o077)
    return os.getpid()


def stops_the_clock(_: int) -> int:
    time.time = float  # type: ignore[assignment]
    return os.getpid()


def leaves_a_child(_: int) -> int:
    _children.append(subprocess.Popen(["sleep", "60"]))
    return os.getpid()


def leaves_a_thread(_: int) -> int:
    threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()
    return os.getpid()


def fails(_: int) -> Any:
    msg = f"in process {os.getpid()}"
    raise ValueError(msg)


def said(text: str) -> str:
    print(f"said {text}")
    return text
