"""What a file format of a sink implements, and the output that it writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.runtime.io.connectors.filesystems.filesystem import OutputFile
from penstock.runtime.record.elements import Batch


class CountingOutput:
    """An output file that knows how many bytes went into it; closing it is left to the sink.

    Args:
        output: Where the bytes go.
    """

    closed = False

    def __init__(self, output: OutputFile) -> None:
        self._output = output
        self.size = 0

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        self._output.write(data)
        length = len(data)
        self.size += length
        return length

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def writable(self) -> bool:
        """Yes."""
        return True

    def flush(self) -> None:
        """Nothing: `OutputFile.finish` makes it durable."""

    def close(self) -> None:
        """Nothing: the sink finishes or discards the file."""


class Encoder(Protocol):
    """Writes batches in one format; lives as long as its writer, over many files."""

    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        """Begin a file.

        Args:
            output: The file.
            next_file: Finishes the open file and begins another one, for records that can't be in one file.
        """
        ...

    def write(self, batch: Batch) -> None:
        """Add a batch to the file.

        Raises:
            BadRecordError: A record can't be written in this format.
        """
        ...

    def end(self) -> None:
        """Write what is left of the file."""
        ...


class SinkFormat(Protocol):
    """A file format; a frozen value that is pickled.

    Attributes:
        extension: Of its files, without a dot.
    """

    @property
    def extension(self) -> str:
        """Of its files, without a dot."""
        ...

    def encoder(self) -> Encoder:
        """Make the encoder of one writer."""
        ...
