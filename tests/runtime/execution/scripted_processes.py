"""Processes whose answers the test gives, in cases that no cluster produces on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.execution.processes import CurrentRole, Place, ProcessSpec, Room
from penstock.runtime.execution.role import Role
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

JOB = "words-1"
_CALLS = ("ask", "prepare", "take", "deploy", "run", "control", "stop", "renew", "processor_times", "leave")


@dataclass
class Call:
    """One call that waits for its answer.

    Attributes:
        name: The method.
        process: Whom it is for.
        arguments: All but the process and the reply.
        reply: Gives the answer.
    """

    name: str
    process: str
    arguments: tuple[Any, ...]
    reply: Callable[[Any], None]

    @property
    def role(self) -> Role:
        """The role that the call carries."""
        role = self.arguments[0]
        assert isinstance(role, Role)
        return role


class ScriptedProcesses:
    """The `Processes` port of a test: records calls; the test answers them."""

    def __init__(self, left: dict[str, CurrentRole] | None = None) -> None:
        self.left = left or {}
        self.started: list[tuple[str, ProcessSpec]] = []
        self.ended: list[str] = []
        self.forgotten: list[str] = []
        self.offered: list[str] = []
        #: Processes that can be claimed.
        self.warm: list[str] = []
        self.warnings: list[str] = []
        self.calls: list[Call] = []
        #: Answers at once, by method; what is not in here waits.
        self.answers: dict[str, Callable[[Call], Any]] = {"take": lambda call: Place(7, "node-of-the-test")}

    def left_behind(self) -> Sequence[str]:
        return list(self.left)

    def start(self, spec: ProcessSpec) -> str:
        self.started.append((f"new-{len(self.started) + 1}", spec))
        return self.started[-1][0]

    def claim(self, spec: ProcessSpec) -> str | None:
        return self.warm.pop(0) if self.warm else None

    def forget(self, process: str) -> None:
        self.forgotten.append(process)

    def offer(self, process: str) -> None:
        self.offered.append(process)

    def end(self, process: str, why: str = "") -> None:
        self.ended.append(process)
        self.warnings.append(why)

    def room(self) -> Room:
        return Room({"CPU": 4.0, "host1": 2.0}, {"CPU": 1.0})

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in (
            "ask",
            "prepare",
            "take",
            "deploy",
            "run",
            "control",
            "stop",
            "renew",
            "processor_times",
            "leave",
        ):
            raise AttributeError(name)

        def called(process: str, *arguments: Any) -> None:
            *rest, reply = arguments
            call = Call(name, process, tuple(rest), reply)
            if name in self.answers:
                self.called(name).append(call)
                reply(self.answers[name](call))
            else:
                self.calls.append(call)

        return called

    def called(self, name: str) -> list[Call]:
        """The calls of a method that were answered at once."""
        return self.__dict__.setdefault(f"_{name}", [])

    def waiting(self, name: str) -> list[Call]:
        """The calls of a method that wait for an answer."""
        return [call for call in self.calls if call.name == name]

    def answer(self, name: str, answer: Any, process: str | None = None) -> Call:
        """Answer the oldest call of a method."""
        call = next(c for c in self.waiting(name) if process in (None, c.process))
        self.calls.remove(call)
        call.reply(answer)
        return call


def timers() -> tuple[ManualClock, ManualTimers]:
    clock = ManualClock()
    return clock, ManualTimers(clock)
