"""`EventCounts`: which events of subtasks a checkpoint still waits for, for the message when it expires."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Came:
    """The numbers of a subtask's events that have come: all up to `first`, and those in `others`."""

    first: int = 0
    others: set[int] = field(default_factory=set)

    def add(self, number: int) -> None:
        if number > self.first:
            self.others.add(number)
        while self.first + 1 in self.others:
            self.first += 1
            self.others.discard(self.first)

    def count(self, last: int) -> int:
        return min(self.first, last) + sum(number <= last for number in self.others)


class EventCounts:
    """Counts the events of one operator's subtasks; they are numbered from 1."""

    def __init__(self) -> None:
        self._came: dict[int, _Came] = {}
        #: By checkpoint and subtask, how many events were sent in front of its part.
        self._sent: dict[int, dict[int, int]] = {}

    def came(self, subtask: int, number: int) -> None:
        """An event has come, in whatever order."""
        self._came.setdefault(subtask, _Came()).add(number)

    def acknowledged(self, checkpoint_id: int, subtask: int, sent: int) -> None:
        """A subtask has taken its part of a checkpoint behind this many events."""
        self._sent.setdefault(checkpoint_id, {})[subtask] = sent

    def missing(self, checkpoint_id: int) -> tuple[tuple[int, int, int], ...]:
        """Subtasks whose events are not complete: each with how many have come and how many were sent."""
        sent = sorted(self._sent.get(checkpoint_id, {}).items())
        counts = ((subtask, self._came.get(subtask, _Came()).count(last), last) for subtask, last in sent)
        return tuple(each for each in counts if each[1] < each[2])

    def ended(self, checkpoint_id: int) -> None:
        """A checkpoint has ended."""
        self._sent.pop(checkpoint_id, None)

    def forget(self, subtask: int) -> None:
        """A subtask is gone; the next one with its index counts from 1."""
        self._came.pop(subtask, None)

    def forget_all(self) -> None:
        """Another attempt begins."""
        self._came.clear()
        self._sent.clear()
