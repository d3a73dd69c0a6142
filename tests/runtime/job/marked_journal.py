"""A journal outside of a job, in whose data its source's master hook writes the marks of checkpoints.

The journal has parts, one a reader. It only grows, and it outlives every JobMaster: the mark of a checkpoint
that came to nothing stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import RowBatch

PARTS = 2


class Journal:
    """Numbers in two parts, and the checkpoints whose marks stand in front of a position of a part.

    Attributes:
        met: Each mark that a reader has met, with its part, in this order.
        held: A part from which nothing is read for now.
    """

    def __init__(self) -> None:
        self.met: list[tuple[int, int]] = []
        self.held: int | None = None
        self.parts: list[list[int]] = [[] for _ in range(PARTS)]
        self.marks: list[dict[int, int]] = [{} for _ in range(PARTS)]
        self.has_ended = False

    def write(self, first: int, second: int) -> None:
        """So many more numbers in each part."""
        for part, count in zip(self.parts, (first, second), strict=True):
            part += range(len(part), len(part) + count)

    def cut(self, checkpoint_id: int) -> list[int]:
        """Write the mark of a checkpoint at the end of every part; where that is."""
        cut = [len(part) for part in self.parts]
        for marks, position in zip(self.marks, cut, strict=True):
            marks[position] = checkpoint_id
        return cut

    def until(self, cut: Sequence[int]) -> dict[int, list[int]]:
        """The numbers in front of a cut."""
        return {part: self.parts[part][:position] for part, position in enumerate(cut) if position}


class JournalHook:
    """Writes the marks. Its state says how many there are on the way to a checkpoint, and where the last is.

    Attributes:
        calls: What it was asked for.
        states: What it gave, by checkpoint.
    """

    identifier = "journal"

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._written = 0
        self.calls: list[tuple[Any, ...]] = []
        self.states: dict[int, dict[str, Any]] = {}

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> dict[str, Any]:
        """Write the mark, behind what is in the journal now."""
        self._written += 1
        state = {"written": self._written, "cut": self._journal.cut(checkpoint_id)}
        self.states[checkpoint_id] = state
        self.calls.append(("trigger", checkpoint_id))
        return state

    def restore_checkpoint(self, checkpoint_id: int, state: Any) -> None:
        self._written = state["written"]
        self.calls.append(("restore", checkpoint_id, state))

    def reset(self) -> None:
        self._written = 0
        self.calls.append(("reset",))

    def close(self) -> None:
        self.calls.append(("close",))


class JournalSource:
    """Reads the journal part by part; a split is `(part, position, last mark met)`."""

    def __init__(self, journal: Journal, hook: JournalHook) -> None:
        self._journal = journal
        self._hook = hook

    def master_hook(self) -> JournalHook:
        return self._hook

    def splits(self, parallelism: int) -> Sequence[tuple[int, int, int]]:
        return [(part, 0, 0) for part in range(PARTS)]

    def reader(self, context: Any, splits: Sequence[tuple[int, int, int]]) -> JournalReader:
        [split] = splits
        return JournalReader(self._journal, split)


class JournalReader:
    """Gives pairs of part and number, a few a poll, and none after a mark before it has said it."""

    def __init__(self, journal: Journal, split: tuple[int, int, int]) -> None:
        self._journal = journal
        self._part, self._position, self._met = split

    def poll(self, max_rows: int) -> Polled[tuple[int, int]]:
        numbers = self._journal.parts[self._part]
        if self._journal.held == self._part:
            return Polled()
        if self._unsaid is None and self._position == len(numbers):
            return Polled(finished=self._journal.has_ended)
        start = self._position
        while self._position < min(start + 3, len(numbers)) and self._unsaid is None:
            self._position += 1
        rows = [(self._part, number) for number in numbers[start : self._position]]
        return Polled(RowBatch(rows) if rows else None)

    def should_trigger_checkpoint(self) -> int | None:
        mark = None if self._journal.held == self._part else self._unsaid
        if mark is not None:
            self._journal.met.append((self._part, mark))
        self._met = mark or self._met
        return mark

    def snapshot(self) -> Sequence[tuple[int, int, int]]:
        return [(self._part, self._position, self._met)]

    def close(self) -> None:
        """Nothing is held."""

    @property
    def _unsaid(self) -> int | None:
        """The mark right in front of the position, unless it was met before."""
        mark = self._journal.marks[self._part].get(self._position, 0)
        return mark if mark > self._met else None
