"""The sending end of one channel, with what it has sent."""

from __future__ import annotations

from penstock.runtime.network.result_subpartition import OpenArrowBuffer, ResultSubpartition
from penstock.runtime.network.send_queue import BufferBudget
from penstock.runtime.record.element_codec import BatchCodec, decode_element
from penstock.runtime.record.elements import (
    Batch,
    Buffer,
    RowBatch,
    StreamElement,
)


class Channel:
    """A subpartition with what it sent: frames of decoded elements by their first number."""

    def __init__(
        self, credits: int = 2, rows: int = 4, size: int = 1 << 20, rest: float = 0.0, arrow_rows: int = 1
    ) -> None:
        self.codec = BatchCodec()
        self.frames: dict[int, list[StreamElement | Batch]] = {}
        self.sending = ResultSubpartition(
            self.codec, self._send, credits, BufferBudget(rows, size), rest, OpenArrowBuffer(arrow_rows)
        )

    def _send(self, first: int, elements: list[bytes]) -> None:
        assert first == sum(map(len, self.frames.values())), "numbers follow each other"
        decoded = [decode_element(element) for element in elements]
        self.frames[first] = [self.codec.decode(e) if isinstance(e, Buffer) else e for e in decoded]

    def add(self, *rows: object) -> None:
        self.sending.add_rows(list(rows), None)

    @property
    def sent(self) -> list[StreamElement | Batch]:
        return [element for frame in self.frames.values() for element in frame]

    @property
    def rows(self) -> list[object]:
        return [row for batch in self.sent if isinstance(batch, RowBatch) for row in batch.rows]
