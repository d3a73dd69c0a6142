"""Frames for a depot, what it gives out, and what a program calls of it."""

from __future__ import annotations

from penstock.bridge.receive_buffer.messages import DepotStatistics, Frame
from penstock.bridge.receive_buffer.receive_buffer import Depot


def frame(
    partition: int,
    number: int,
    data: bytes | None = None,
    attempt: int = 0,
    rows: int = 1,
    epoch: int = 0,
    run: str = "run",
) -> Frame:
    return Frame(epoch, run, partition, attempt, number, rows, data or f"{partition}/{number}".encode())


def data_of(depot: Depot, position: int = 0, max_bytes: int = 1_000_000) -> list[bytes]:
    return [bytes(frame.data) for frame in depot.read(position, max_bytes).frames]


def closed(depot: Depot, epoch: int, run: str, expected: dict[int, tuple[int, int]]) -> str | None:
    """What does not fit, or `None` and the epoch is closed."""
    problem = depot.prepare(epoch, run, expected)
    return depot.close(epoch) if problem is None else problem


class Asked:
    """The calls that the program makes of the actor around a depot."""

    def __init__(self, depot: Depot) -> None:
        self._depot = depot

    def stage(self, epoch: int) -> str:
        return self._depot.stage(epoch).value

    def newest(self) -> int:
        return self._depot.epochs.newest

    def begin(self, epoch: int, run: str) -> bool:
        return self._depot.begin(epoch, run)

    def prepare(self, epoch: int, run: str, expected: dict[int, tuple[int, int]]) -> str | None:
        return self._depot.prepare(epoch, run, expected)

    def close(self, epoch: int) -> str | None:
        return self._depot.close(epoch)

    def finish(self) -> None:
        self._depot.finish()

    def fail(self, reason: str) -> None:
        self._depot.fail(reason)

    def statistics(self) -> DepotStatistics:
        return self._depot.statistics()
