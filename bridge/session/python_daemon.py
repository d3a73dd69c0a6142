"""The daemon of an executor's Python workers: it preloads modules, then forks the workers.

Spark's own daemon forks workers without preloaded modules. Each worker that serves `from_spark`
then imports pandas, Arrow and Ray, which takes about a second of processor time. Spark starts new workers
after each failed or cancelled task, and after a minute without work.

The imports start no thread that a fork would lose. Arrow and numpy restart their pools in a child, and Ray
starts threads only when it connects.

Spark runs this file as a program (`spark.python.daemon.module`), and reads the port from its standard output.
"""

from __future__ import annotations

import gc
from importlib import import_module
from importlib.util import find_spec
from typing import Final

#: Modules to preload; modules that are not installed on a node are skipped.
PRELOADED: Final = ("pandas", "pyarrow.compute", "pyspark.sql.pandas.serializers", "ray", "msgpack")


def preload() -> None:
    """Import the installed modules, and keep the garbage collector from writing to shared memory."""
    for name in PRELOADED:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    gc.freeze()


def main() -> None:
    """Preload, then serve as Spark's own daemon does."""
    from pyspark.daemon import manager

    preload()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
