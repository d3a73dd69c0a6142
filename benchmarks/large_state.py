"""The cost of a checkpoint for the task when the state is large and little of it has changed.

    python benchmarks/large_state.py --json large_state.json

The synchronous part of the snapshot stops the task. Its cost must depend on the changed keys and not on the
size of the state. So the benchmark uses keyed state of two sizes, one a hundred times the other, with the
same number of changed keys between checkpoints. It drives the state backend of a subtask directly, without a
cluster. The synchronous and the asynchronous part never wait. So processor time is measured, and other load
on the machine does not add to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from measure import Figures, machine, middle, options, table, versions

from penstock.actors.shared.cycle_collector import spare_loaded_modules
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup

_KEY_GROUPS = 128
_SMALLER = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """The figures of one checkpoint.

    Attributes:
        stopped: Seconds of the synchronous part.
        beside: Seconds of the asynchronous part.
        written: Bytes of new files.
    """

    stopped: float
    beside: float
    written: int


class CheckpointedState:
    """Keyed state of `(key, sum)` pairs; all of its checkpoints complete."""

    def __init__(self, keys: int) -> None:
        self._backend = HeapKeyedStateBackend(
            BackendSetup("op", _KEY_GROUPS, KeyGroupRange(0, _KEY_GROUPS - 1), ValueCodec())
        )
        self._table = self._backend.table("sum")
        self._storage = MemoryStorage()
        self._checkpoint_id = 0
        self._paths = iter(range(sys.maxsize))
        self.change(range(keys))

    def change(self, numbers: Iterable[int]) -> None:
        """Write the values of these keys."""
        for number in numbers:
            key = f"key-{number}"
            self._table.entries[key] = key, number + self._checkpoint_id
            self._table.changed.add(key)

    def checkpoint(self) -> Cost:
        """Take a checkpoint that completes."""
        before, self._checkpoint_id = self._checkpoint_id, self._checkpoint_id + 1
        begun = time.thread_time()
        snapshot = self._backend.snapshot(self._checkpoint_id, before or -1)
        stopped = time.thread_time() - begun
        files = StateFiles(self._storage, lambda: f"state-{next(self._paths)}")
        begun = time.thread_time()
        handle = snapshot.finish(files)
        beside = time.thread_time() - begun
        self._backend.snapshot_finished(self._checkpoint_id, handle)
        return Cost(stopped, beside, sum(file.size for file in files.written))


def costs(keys: int, changes: int, rounds: int) -> tuple[Cost, list[Cost]]:
    """The costs of the first checkpoint of `keys` keys, and of later ones after `changes` changes each."""
    state = CheckpointedState(keys)
    first = state.checkpoint()
    later = []
    for number in range(rounds):
        start = number * changes
        state.change((start + i) * 7919 % keys for i in range(changes))
        later.append(state.checkpoint())
    return first, later


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, keys=1_000_000, changes=1_000, rounds=20).parse_args(arguments)
    figures, lines = Figures(), []
    stopped: dict[int, float] = {}
    for keys in (max(given.changes, given.keys // _SMALLER), given.keys):
        spare_loaded_modules()
        first, later = costs(keys, given.changes, given.rounds)
        stopped[keys] = middle(cost.stopped for cost in later)
        beside = middle(cost.beside for cost in later)
        name = f"{keys:,} keys"
        figures.seconds |= {
            f"{name}, all changed, stopped": first.stopped,
            f"{name}, {given.changes:,} changed, stopped": stopped[keys],
            f"{name}, {given.changes:,} changed, beside": beside,
        }
        lines.append(
            [name, f"{stopped[keys] * 1e3:.2f} ms", f"{beside * 1e3:.2f} ms", f"{first.stopped * 1e3:.0f} ms"]
        )
    small, large = stopped.values()
    figures.ratios["stopped_large_vs_small_state"] = large / small
    changed = f"{given.changes:,} changed"
    print(
        table(["state", f"{changed}: stopped", "beside the task", "all changed: stopped"], lines), end="\n\n"
    )
    print(f"A state {_SMALLER} times as large stops the task {large / small:.2f} times as long.")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
