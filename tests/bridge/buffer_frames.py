"""Frames for a receive buffer, what it gives out, and what a program calls of it."""

from __future__ import annotations

from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.receive_buffer_messages import EpochStage, Frame, ReceiveBufferStatistics


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


def data_of(buffer: ReceiveBuffer, position: int = 0, max_bytes: int = 1_000_000) -> list[bytes]:
    return [bytes(frame.data) for frame in buffer.read(position, max_bytes).frames]


def closed(buffer: ReceiveBuffer, epoch: int, run: str, expected: dict[int, tuple[int, int]]) -> str | None:
    """The difference, or `None` and the epoch is closed."""
    problem = buffer.prepare(epoch, run, expected)
    return buffer.close(epoch) if problem is None else problem


class Asked:
    """The calls that the program makes of the actor around a receive buffer."""

    def __init__(self, buffer: ReceiveBuffer) -> None:
        self._buffer = buffer

    def stage(self, epoch: int) -> EpochStage:
        return self._buffer.stage(epoch)

    def newest(self) -> int:
        return self._buffer.epochs.newest

    def begin(self, epoch: int, run: str) -> bool:
        return self._buffer.begin(epoch, run)

    def prepare(self, epoch: int, run: str, expected: dict[int, tuple[int, int]]) -> str | None:
        return self._buffer.prepare(epoch, run, expected)

    def close(self, epoch: int) -> str | None:
        return self._buffer.close(epoch)

    def finish(self) -> None:
        self._buffer.finish()

    def fail(self, reason: str) -> None:
        self._buffer.fail(reason)

    def statistics(self) -> ReceiveBufferStatistics:
        return self._buffer.statistics()
