"""Functions and sources of jobs that are made for one rule of checkpoints each."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from jobs.pieces import Pieces

from penstock import KeyedProcessFunction, RuntimeContext, StateTtl, ValueState
from penstock.connectors import OnRequest, SplitEnumerator

_POLL: Final = 0.02


def ports(actor: Any) -> set[int]:
    """To be called in an actor: the ports at which its process is called."""
    own = psutil.Process().net_connections("tcp")
    return {connection.laddr.port for connection in own if connection.status == psutil.CONN_LISTEN}


def break_connections(actor: Any, ports: set[int]) -> int:
    """To be called in an actor: break the connections of its process to these ports; how many there were."""
    broken = 0
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port in ports:
            with socket.socket(fileno=os.dup(connection.fd)) as copy:
                copy.shutdown(socket.SHUT_RDWR)
            broken += 1
    return broken


def open_deliveries(actor: Any) -> list[int]:
    """To be called in a subtask's actor: how far the frames of its first channel go that have no answer."""
    return sorted(number for number, _, _ in actor._current.deliveries._waiting[0])


#: Seconds of event time of the visits, and how many of them each one remembers: 3 s are too long ago.
VISITS: Final = (0, 2, 4, 7, 8, 20, 22)
REMEMBERED: Final = (1, 2, 3, 1, 2, 1, 2)


def visit(index: int) -> int:
    return VISITS[index]


def moment(second: int) -> int:
    return second * 1_000_000


def of_one_key(_: int) -> str:
    return "visitor"


class Visits(KeyedProcessFunction[str, int, dict[str, int]]):
    """Counts visits, none of which lies three seconds of event time behind the one before it."""

    count = ValueState(int, default=0, ttl=StateTtl(3, time="event"))

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[dict[str, int]]:
        self.count.update(self.count.value() + 1)
        yield {"second": value, "remembered": self.count.value()}


class Opaque:
    """A class that no codec knows: only pickle carries it."""


class KeepsOpaque(KeyedProcessFunction[str, str, Any]):
    """Keeps in its state what only pickle carries; emits that, too, when a file exists."""

    def __init__(self, emits: str) -> None:
        self.emits = emits

    def open(self, ctx: RuntimeContext) -> None:
        self.kept = ctx.value_state("kept")

    def process(self, value: str, ctx: RuntimeContext) -> Iterator[Any]:
        self.kept.update(Opaque())
        yield Opaque() if Path(self.emits).exists() else value


class HandsOutMeanwhile(OnRequest[str]):
    """Hands a split out between its part of a checkpoint and the barriers, which a hook holds back so long.

    Before its first checkpoint it has handed one split out, and after a restore it holds none back.
    """

    def __init__(self, count: int, pieces: int, folder: Path) -> None:
        source = Pieces(count, pieces, attempt=0)
        super().__init__(source)
        self.pieces = source.splits(1)
        self.folder = folder

    def enumerator(self, context: Any, state: Any | None) -> SplitEnumerator:
        return MeanwhileEnumerator(
            context, self.pieces if state is None else state, self.folder, state is None
        )

    def master_hook(self) -> WaitsForTheSplit:
        return WaitsForTheSplit(self.folder)


class MeanwhileEnumerator:
    """Hands splits out one by one; in the first attempt the second goes out behind a snapshot."""

    def __init__(self, context: Any, left: Sequence[Any], folder: Path, is_first: bool) -> None:
        self._context = context
        self._left = list(left)
        self._handed_out = folder / "handed out"
        self._may_serve = 1 if is_first else len(self._left) + 1

    def start(self) -> None:
        """Readers ask."""

    def handle_split_request(self, subtask: int) -> None:
        if self._may_serve == 0:
            return
        self._may_serve -= 1
        if self._left:
            self._context.assign(subtask, [tuple(self._left.pop(0))])
        else:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        self._left = [*splits, *self._left]

    def snapshot(self) -> list[Any]:
        if not self._handed_out.exists():
            self._context.run_in_background(lambda: None, self._hand_out)
        return list(self._left)

    def close(self) -> None:
        """Nothing is held."""

    def _hand_out(self, _: None) -> None:
        self._context.assign(0, [tuple(self._left.pop(0))])
        self._handed_out.touch()


@dataclass(frozen=True)
class WaitsForTheSplit:
    """A master hook: the sources get no barrier before the split was handed out."""

    folder: Path
    identifier: str = "waits"

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> int:
        while not (self.folder / "handed out").exists():
            time.sleep(_POLL)
        return checkpoint_id

    def restore_checkpoint(self, checkpoint_id: int, state: Any) -> None:
        assert state == checkpoint_id

    def reset(self) -> None:
        """It has no state."""

    def close(self) -> None:
        """Nothing is held."""
