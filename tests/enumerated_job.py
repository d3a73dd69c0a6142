"""A job whose source has an enumerator and no end, such as a watched folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.connectors import Source
from penstock.runtime.testing.connectors.source_job import SourceJob

#: Polls after which no new record is expected any more; each poll runs one listing at most.
_POLLS: Final = 30


class EnumeratedJob(SourceJob):
    """A job that reads on: it takes what is there, without a wait for more."""

    def __init__(self, source: Source[Any], **settings: Any) -> None:
        super().__init__(_World(source), enumerated=True, poll_rows=100, **settings)
        self.start()

    def read_on(self, polls: int = _POLLS) -> list[Any]:
        """Poll a few times, and return the new rows."""
        before = len(self.rows)
        for _ in range(polls):
            self.poll()
        return self.rows[before:]


class _World:
    """Gives a job its source."""

    def __init__(self, source: Source[Any]) -> None:
        self._source = source

    def source(self) -> Source[Any]:
        return self._source

    def write(self, records: Sequence[Any]) -> None:
        msg = "the test itself writes the files"
        raise NotImplementedError(msg)
