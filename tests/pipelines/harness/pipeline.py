"""`Pipeline`: one file of this folder: a small job, its input, and what must come out.

A file has these functions, in plain Python:

* `make_input(random)`: records of one run, drawn from a `random.Random`
* `build(env, records)`: adds the job to the environment. Returns the stream whose records are compared, or
  several by name. With a third parameter `folder` it may write files there.
* `expected(records)`: what must come out, computed without Penstock: a list, or lists by name

And these where the job needs them:

* `build_again(env, records)`: the program that continues from a savepoint of `build`'s; by default `build`
* `read(folder)`: results that the job has written into `folder`, by name
* `comparable(rows)`: what of the results is the same in every run; by default all of them
* `whole(rows)`: makes of the results what is the same when a drain has fired windows and timers early. `None`
  for a job of which nothing is.
* `RESCALABLE_IN_FLIGHT = False`: the results depend on the order of watermarks and records of several
  channels. With data in flight another parallelism changes it
* `RESCALABLE = False`: the same with every checkpoint, because records in flight are state
* `IN_COLUMNS = True`: its state is in columns, which only the heap can hold
"""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from penstock import DataStream, StreamEnvironment

#: Rows by the name of their output.
Rows = Mapping[str, Sequence[Any]]

#: The name of an output that a pipeline has not named.
ONLY = "out"

_FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline; see the module's text.

    Attributes:
        program: The command that runs it again.
    """

    name: str
    module: ModuleType | SimpleNamespace
    program: str = "python tests/pipelines"

    def make_input(self, seed: int) -> Any:
        """The records of one run."""
        return self.module.make_input(random.Random(seed))

    def add_to(self, env: StreamEnvironment, records: Any, folder: Path, *, again: bool = False) -> Any:
        """Add the job to an environment.

        Args:
            env: Takes it.
            records: Its input.
            folder: Where it may write files.
            again: Whether it continues from a savepoint.

        Returns:
            The streams whose records are compared, by name.
        """
        build = getattr(self.module, "build_again", self.module.build) if again else self.module.build
        wants_folder = "folder" in inspect.signature(build).parameters
        built = build(env, records, folder) if wants_folder else build(env, records)
        return {ONLY: built} if isinstance(built, DataStream) else dict(built or {})

    def expected(self, records: Any) -> Rows:
        """The expected output."""
        return _by_name(self.module.expected(records))

    def read(self, folder: Path) -> Rows:
        """The rows that the job has written into its folder."""
        return _by_name(self.module.read(folder)) if hasattr(self.module, "read") else {}

    def comparable(self, rows: Rows) -> Rows:
        """The part of the results that is the same in every run."""
        return self._viewed("comparable", rows)

    @property
    def is_rescalable_in_flight(self) -> bool:
        """Whether another parallelism gives the same results from a snapshot with data in flight."""
        return bool(getattr(self.module, "RESCALABLE_IN_FLIGHT", True))

    @property
    def is_rescalable(self) -> bool:
        """Whether another parallelism gives the same results."""
        return bool(getattr(self.module, "RESCALABLE", True))

    @property
    def is_in_columns(self) -> bool:
        """Whether its state is in columns, which only the heap can hold."""
        return bool(getattr(self.module, "IN_COLUMNS", False))

    @property
    def can_be_drained(self) -> bool:
        """Whether something is known of the results after a drain."""
        return getattr(self.module, "whole", ...) is not None

    def whole(self, rows: Rows) -> Rows:
        """The part that is the same also when a drain has fired windows and timers early."""
        return self._viewed("whole", rows)

    def _viewed(self, name: str, rows: Rows) -> Rows:
        view = getattr(self.module, name, None)
        if view is None:
            return rows
        return _by_name(view(rows[ONLY] if list(rows) == [ONLY] else rows))


def _by_name(rows: Iterable[Any] | Mapping[str, Iterable[Any]]) -> Rows:
    if isinstance(rows, Mapping):
        return {name: list(each) for name, each in rows.items()}
    return {ONLY: list(rows)}


def names() -> list[str]:
    """The names of all pipelines: every file of the folder but tests and what pytest and Python load."""
    found = sorted(file.stem for file in _FOLDER.glob("*.py"))
    return [name for name in found if not name.startswith(("test_", "conftest", "_"))]


def load(name: str) -> Pipeline:
    """A pipeline by the name of its file."""
    return Pipeline(name, importlib.import_module(f"pipelines.{name}"))
