"""The world outside of a job, as the tests of a connector see it: a database, a folder, a broker, or a model.

A world has two methods. Everything else is optional. A test that needs more than a world offers is skipped,
and the reason names what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import pytest

from penstock.runtime.operators.sinks import Sink
from penstock.runtime.operators.source import Source
from penstock.runtime.testing.simulation.world.external import Fate

T = TypeVar("T")

#: What may happen to a request of a connector, besides an answer.
FATES: Final = tuple(fate for fate in Fate if fate is not Fate.ANSWERED)

#: The end of an attempt: its processes are killed, or an error closes the connector.
Death: TypeAlias = Literal["killed", "failed"]


@runtime_checkable
class SinkWorld(Protocol):
    """The system to which a sink writes. Two methods are needed; all other members are optional.

    | member | for tests of |
    | --- | --- |
    | `hidden()` | data that is written and not visible: it is removed when no checkpoint covers it |
    | `next_fate(fate)` | calls that are slow, refused or hang, and answers that are lost |
    | `secret` | a password of the connector, which no text may show |
    | `kill(writer)` | a writer with threads, which the death of its process would end |
    | `cleanup()` | called when the world is not needed any more |
    """

    def sink(self) -> Sink[Any]:
        """Return a new sink that writes to this system."""
        ...

    def rows(self) -> Collection[Any]:
        """Return the records that a reader of the system sees now."""
        ...


@runtime_checkable
class SourceWorld(Protocol):
    """The system from which a source reads. Two methods are needed; all other members are optional.

    | member | for tests of |
    | --- | --- |
    | `write_bad()`, `tolerant_source(on_error)` | records that can't be read |
    | `write_to(split, records)` | watermarks by split, paused and idle splits; splits 0 and 1 exist |
    | `growing_source()`, `add_split(records)` | splits that come while the job runs; this source has no end |
    | `acknowledged()` | records that the source has acknowledged: the system never sends them again |
    | `next_fate(fate)`, `secret`, `kill(reader)`, `cleanup()` | as in `SinkWorld` |
    """

    def source(self) -> Source[Any]:
        """Return a new source that reads what was written so far, and then ends."""
        ...

    def write(self, records: Sequence[Any]) -> None:
        """Add records to the system."""
        ...


@runtime_checkable
class DecidesFates(Protocol):
    """Optional for a world: it decides the fate of requests. An `ExternalWorld` needs no such method."""

    def next_fate(self, fate: Fate | None) -> None:
        """Set the fate of the next request; `None` withdraws it if no request was made.

        A world that can't do this raises `NotImplementedError`; the case is left out.
        """
        ...


@runtime_checkable
class ShowsHidden(Protocol):
    """Optional for the world of a sink: it shows uncommitted data."""

    def hidden(self) -> Collection[Any]:
        """Return everything that is written and not visible, in any form."""
        ...


@runtime_checkable
class HasSecret(Protocol):
    """Optional for a world: its connector has a password."""

    @property
    def secret(self) -> str:
        """The password, as the connector gets it."""
        ...


@runtime_checkable
class HasBadRecords(Protocol):
    """Optional for the world of a source: it takes records that the source can't read."""

    def write_bad(self) -> None:
        """Add a record that can't be read."""
        ...

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> Source[Any]:
        """Return a source as `source` does, which skips bad records or makes dead letters of them."""
        ...


@runtime_checkable
class HasSplits(Protocol):
    """Optional for the world of a source: a test chooses the split of a record."""

    def write_to(self, split: int, records: Sequence[Any]) -> None:
        """Add records to the split 0 or 1; both exist from the beginning."""
        ...


@runtime_checkable
class AddsSplitsLater(Protocol):
    """Optional for the world of a source with an enumerator: new splits come while the job runs."""

    def growing_source(self) -> Source[Any]:
        """Return a source without an end that finds new splits."""
        ...

    def add_split(self, records: Sequence[Any]) -> None:
        """Add a split with these records."""
        ...


@runtime_checkable
class ShowsAcknowledged(Protocol):
    """Optional for the world of a source that acknowledges records."""

    def acknowledged(self) -> Collection[Any]:
        """Return the records that the system never sends again."""
        ...


@runtime_checkable
class KillsThreads(Protocol):
    """Optional for a world: its connector has threads, which die with the process of a subtask."""

    def kill(self, connector: Any) -> None:
        """End the threads of a reader or writer, without the effects of its `close`."""
        ...


@runtime_checkable
class CleansUp(Protocol):
    """Optional for a world: it holds resources."""

    def cleanup(self) -> None:
        """Release everything."""
        ...


def offered(world: object, kind: type[T], without: str) -> T:
    """Return the world if it offers `kind`; else skip the test: `without` says what is not tested."""
    if isinstance(world, kind):
        return world
    members = sorted(name for name in vars(kind) if not name.startswith("_"))
    lacks = " and ".join(name for name in members if not hasattr(world, name))
    pytest.skip(f"{type(world).__name__} has no {lacks}: {without}")
