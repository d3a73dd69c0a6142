"""`OperatorEventValve`: holds an operator coordinator's events back around a checkpoint (Flink's class).

A coordinator and its subtasks take a checkpoint at different moments, so an event between them could be in
both snapshots or in neither. For example, a coordinator assigns a split after its own snapshot, and the split
reaches its reader before the barrier. Then the reader would read the split, and after a restore it would be
assigned again. So the valve is closed from the coordinator's snapshot until the sources have their
barriers. Events that are sent in between wait. They are sent after the barriers, in the order in which they
were sent.

In one checkpoint the valve is

* *marked* when the coordinator is asked for its snapshot,
* *shut* when the coordinator has given it,
* *opened* when the barriers are injected or the start was aborted.

A mark that is older than the last one, or a snapshot for another mark, is a bug and refused.

What it must never do:

* send an event while it is shut,
* change the order of two events of one subtask,
* send an event that was held for a subtask that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.coordinators import EventAnswer


class EventDiscardedError(PenstockError):
    """An event was never sent: its subtask failed or the job was restored while the event waited."""


class EventSender(Protocol):
    """The port that carries events to the subtasks of one operator, those of one subtask in order."""

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        """Send an event; `answer` is called at once or later, in the coordinator's thread."""
        ...


@dataclass(frozen=True, slots=True)
class HeldEvent:
    event: Any
    answer: EventAnswer


class OperatorEventValve:
    """Lets events through, or holds them; see the module's docstring."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self._held: dict[int, list[HeldEvent]] = {}
        self._is_shut = False
        self._marked: int | None = None
        self._last_marked: int | None = None

    @property
    def is_shut(self) -> bool:
        return self._is_shut

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        if self._is_shut:
            self._held.setdefault(subtask, []).append(HeldEvent(event, answer))
        else:
            self._sender.send(subtask, event, answer)

    def mark_for_checkpoint(self, checkpoint_id: int) -> None:
        """The coordinator is about to be asked for its snapshot.

        Raises:
            RuntimeError: Another checkpoint is marked, or an equal or newer one was.
        """
        if self._marked not in (None, checkpoint_id):
            msg = f"the valve is marked for checkpoint {self._marked} and can't be for {checkpoint_id}"
            raise RuntimeError(msg)
        if self._last_marked is not None and checkpoint_id <= self._last_marked:
            msg = f"the valve was marked for checkpoint {self._last_marked} before {checkpoint_id}"
            raise RuntimeError(msg)
        self._marked = self._last_marked = checkpoint_id

    def shut(self, checkpoint_id: int) -> None:
        """The coordinator has given its snapshot.

        Raises:
            RuntimeError: The valve is not marked for this checkpoint.
        """
        if checkpoint_id != self._marked:
            marked = "nothing" if self._marked is None else f"checkpoint {self._marked}"
            msg = f"the valve can't be shut for checkpoint {checkpoint_id}: it is marked for {marked}"
            raise RuntimeError(msg)
        self._is_shut = True

    def open_and_unmark(self) -> None:
        self._marked = None
        self._is_shut = False
        held, self._held = self._held, {}
        for subtask, events in held.items():
            for waiting in events:
                self.send(subtask, waiting.event, waiting.answer)

    def reset(self) -> None:
        held, self._held = self._held, {}
        self._is_shut = False
        self._marked = None
        for events in held.values():
            self._discard(events, "the job was restored")

    def reset_subtask(self, subtask: int) -> None:
        self._discard(self._held.pop(subtask, ()), f"subtask {subtask} failed")

    def _discard(self, events: Iterable[HeldEvent], why: str) -> None:
        for waiting in events:
            waiting.answer.failed(EventDiscardedError(f"the event was never sent: {why}"))


@dataclass(frozen=True, slots=True)
class EventCallbacks:
    on_sent: Callable[[], None]
    on_failed: Callable[[BaseException], None]

    def sent(self) -> None:
        self.on_sent()

    def failed(self, error: BaseException) -> None:
        self.on_failed(error)
