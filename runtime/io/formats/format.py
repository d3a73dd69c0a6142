"""The protocols of formats, and the result of a decoder.

A format is a frozen value that is pickled with the job; it holds settings only. Each subtask makes its own
decoder or encoder, so these may hold connections and caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from penstock.runtime.record.elements import Batch, BatchFormat


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of decoding some values.

    Attributes:
        batch: The good values in their order.
        bad: Index and reason of each value that can't be decoded, in order.
    """

    batch: Batch
    bad: Sequence[tuple[int, str]] = ()


class Decoder(Protocol):
    """Decodes the values of one subtask; one thread at a time may use it."""

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode values together.

        Args:
            values: The values; `None` (a tombstone) becomes `None` in rows, and a row of nulls in columns.

        Raises:
            ConnectorError: A schema registry gives no answer.
        """
        ...

    def close(self) -> None:
        """Release everything that the decoder opened."""
        ...


class Encoder(Protocol):
    """Encodes the records of one subtask; one thread at a time may use it."""

    def encode(self, batch: Batch) -> list[bytes | None]:
        """Encode each record of a batch; the row `None` becomes `None`.

        Raises:
            BadRecordError: A record can't be encoded; the message shows the record.
        """
        ...

    def close(self) -> None:
        """Release everything that the encoder opened."""
        ...


@runtime_checkable
class HasSubject(Protocol):
    """A format whose schema is under a subject of a schema registry."""

    def for_topic(self, topic: str, *, is_key: bool = False) -> Format:
        """The format for a topic's values or keys; connectors with topics call it."""
        ...


@runtime_checkable
class Format(Protocol):
    """Converts between bytes and records; a frozen value that is pickled."""

    def decoder(self, batch_format: BatchFormat) -> Decoder:
        """Create a decoder whose batches are rows or Arrow columns.

        Raises:
            ConfigurationError: The format can't decode to such batches, or a library is missing.
        """
        ...

    def encoder(self) -> Encoder:
        """Create an encoder, which takes rows and Arrow columns."""
        ...
