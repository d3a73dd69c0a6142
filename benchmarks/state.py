"""Keyed state: the pause for a checkpoint, the cost of timers, and process functions against Bytewax.

    python benchmarks/state.py --json state.json
    python benchmarks/state.py --only snapshots timers

- *snapshots*: every key changes between two checkpoints, while records are processed at full rate. A
  checkpoint is taken meanwhile, and another thread writes it. The benchmark measures its synchronous part,
  and the longest gap between two batches of 100 records. It also compares the rate during the checkpoint with
  the rate without one. The backend is driven directly, with the code that a function's `ValueState` runs. So
  are a `reduce` and windows whose records are lists.
- *timers*: a checkpoint is taken after timers are set, and another one after they have fired. Then as many
  timers are set and fire between two checkpoints. This runs on the heap and in RocksDB.
- *process_function*: `process` with a `ValueState` on Ray, on the heap and in RocksDB, compared with
  Bytewax's `stateful_map` with recovery and PyFlink's process function in RocksDB. All run the functions of
  `workload.py`, with a checkpoint every second.
- *gigabyte*: a checkpoint of large state into a local folder, and its recovery, with both backends.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import bytewax_worker
import pyflink_worker
from measure import (
    Figures,
    Steady,
    cluster,
    compare,
    machine,
    middle,
    options,
    rows_a_second,
    scratch,
    spread,
    steady,
    table,
    versions,
)
from measured_jobs import keyed_process_sum

from penstock import AggregateFunction, HeapState, RocksDB
from penstock.actors.shared.cycle_collector import FullCollections, spare_loaded_modules
from penstock.actors.shared.system_ports import SystemClock
from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.io.storage import open_storage
from penstock.runtime.operators.functions.keyed_folds import KeyedReduceOperator
from penstock.runtime.operators.keyed_state_requests import StateSweep
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.operators.timers import TimerQueue
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ListedContents
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.keyed_states import AggregatingState, ValueState
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend
from penstock.runtime.testing.harness_state import open_state_backend
from penstock.runtime.time.windows import TimeWindow, TumblingEventTimeWindows

_KEY_GROUPS: Final = 128
#: Records between two readings of the clock.
_LOOK: Final = 100
#: State backends of a section, by the suffix of the names of their figures.
BACKENDS: Final[dict[str, StateBackend]] = {"": HeapState(), " in RocksDB": RocksDB()}
SECTIONS: Final = ("snapshots", "timers", "process_function", "gigabyte")
PENSTOCK, BYTEWAX = "penstock, process function 1x1", "bytewax, stateful_map, one worker"
ROCKSDB: Final = "penstock, the same in RocksDB"
PYFLINK: Final = "pyflink, process function in RocksDB 1x1"


class Checkpoints:
    """Takes checkpoints of one backend; all of them complete.

    Args:
        storage: Storage of the files.
        config: The kind of backend.
    """

    def __init__(self, storage: SnapshotStorage, config: StateBackend) -> None:
        self.storage = storage
        groups = KeyGroupRange(0, _KEY_GROUPS - 1)
        self.backend = open_state_backend(config, BackendSetup("state", _KEY_GROUPS, groups, ValueCodec()))
        self.handle: KeyedStateHandle | None = None
        self._id = 0
        self._paths = iter(range(sys.maxsize))

    def files(self) -> StateFiles:
        """The files of one checkpoint."""
        return StateFiles(self.storage, lambda: f"state-{next(self._paths)}")

    def begin(self) -> tuple[float, Callable[[], None], Callable[[], None]]:
        """Run the synchronous part of a checkpoint.

        Returns:
            Its seconds, the work of the other thread, and the final work of the task.
        """
        before, self._id = self._id, self._id + 1
        begun = time.perf_counter()
        snapshot = self.backend.snapshot(self._id, before or -1)
        stopped = time.perf_counter() - begun

        def write() -> None:
            self.handle = snapshot.finish(self.files())

        def end() -> None:
            assert self.handle is not None
            self.backend.snapshot_finished(self._id, self.handle)

        return stopped, write, end

    def take(self) -> tuple[float, float]:
        """Take a whole checkpoint; return the seconds of its synchronous and its asynchronous part."""
        stopped, write, end = self.begin()
        begun = time.perf_counter()
        write()
        beside = time.perf_counter() - begun
        end()
        return stopped, beside


@dataclass(frozen=True, slots=True)
class Disturbance:
    """The effect of a checkpoint on the records.

    Attributes:
        stopped: Seconds of the synchronous part.
        gap: Seconds of the longest gap between two batches.
        before: Records per second without a checkpoint.
        during: Records per second during the checkpoint.
        usual_gap: Seconds of the longest gap without a checkpoint.
    """

    stopped: float
    gap: float
    before: float
    during: float
    usual_gap: float


class CountingTask:
    """A task at full rate: reads and writes the value of one key after another, in random order.

    Args:
        keys: Number of keys.
        following: Returns the next value of a key, from its last value or `None`.
    """

    def __init__(self, keys: int, following: Callable[[Any], Any]) -> None:
        self._checkpoints = Checkpoints(MemoryStorage(), HeapState())
        self._sweep = StateSweep(self._checkpoints.backend, SystemClock())
        self._collections = FullCollections()
        self._is_taking_checkpoint = False
        self._following = following
        self._state: Any = self._opened(self._checkpoints.backend)
        self._keys = [f"key-{number}" for number in range(keys)]
        self._change_all()
        Random(1).shuffle(self._keys)

    def disturbed(self, undisturbed: float) -> Disturbance:
        """Change all keys, take a checkpoint, and measure the records meanwhile.

        Args:
            undisturbed: Seconds for which the rate without a checkpoint is measured.
        """
        self._change_all()
        keys = self._endless()
        records, usual_gap, begun = 0, 0.0, time.perf_counter()
        last = begun
        while last - begun < undisturbed:
            last, gap = self._batch(keys, last)
            usual_gap, records = max(usual_gap, gap), records + _LOOK
        before = records / (last - begun)
        records, longest, begun = 0, 0.0, last
        stopped, write, end = self._checkpoints.begin()
        self._is_taking_checkpoint = True
        beside = threading.Thread(target=write)
        beside.start()
        while records == 0 or beside.is_alive():
            last, gap = self._batch(keys, last)
            longest, records = max(longest, gap), records + _LOOK
        beside.join()
        end()
        self._is_taking_checkpoint = False
        return Disturbance(stopped, longest, before, records / (last - begun), usual_gap)

    def _change_all(self) -> None:
        keys = iter(self._keys)
        for _ in range(0, len(self._keys), _LOOK):
            self._batch(keys, 0.0)

    def _endless(self) -> Iterator[str]:
        while True:
            yield from self._keys

    def _batch(self, keys: Iterator[str], last: float) -> tuple[float, float]:
        """Process some records; return the time afterwards, and the seconds since `last`."""
        self._process(keys, _LOOK)
        self._sweep.run_if_due()
        self._collections.collect_if_due(is_idle=False, is_taking_checkpoint=self._is_taking_checkpoint)
        now = time.perf_counter()
        return now, now - last

    def _opened(self, backend: KeyedStateBackend) -> Any:
        return backend.bind(ValueState(name="state"))

    def _process(self, keys: Iterator[str], count: int) -> None:
        backend, state, following = self._checkpoints.backend, self._state, self._following
        for _, key in zip(range(count), keys, strict=False):
            backend.current_key = key
            state.update(following(state.value()))


class Total(AggregateFunction[int, list[int], int]):
    """Sums numbers in an accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        """A list of one number."""
        return [0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        """Add a number."""
        accumulator[0] += value
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        """The sum."""
        return accumulator[0]


class FoldingTask(CountingTask):
    """A `CountingTask` that folds a number into the accumulator of each key; `following` returns it."""

    def _opened(self, backend: KeyedStateBackend) -> Any:
        return backend.bind(AggregatingState(Total(), name="state"))

    def _process(self, keys: Iterator[str], count: int) -> None:
        backend, state, following = self._checkpoints.backend, self._state, self._following
        for _, key in zip(range(count), keys, strict=False):
            backend.current_key = key
            state.add(following(None))


class OperatorTask(CountingTask):
    """A `CountingTask` whose records are lists and go through an operator, which `following` returns."""

    def _opened(self, backend: KeyedStateBackend) -> Any:
        operator = self._following(None)
        connector = ConnectorContext("job", "job", "state", 0, 1, 1, SystemClock())
        operator.open(OperatorContext(OperatorLocation("state", 0, 1), connector, backend))
        return operator

    def _process(self, keys: Iterator[str], count: int) -> None:
        rows = [[key, 1] for _, key in zip(range(count), keys, strict=False)]
        for _ in self._state.process(RowBatch(rows, [0] * len(rows))):
            pass


def _first(row: list[Any]) -> Any:
    return row[0]


def _added(before: list[Any], row: list[Any]) -> list[Any]:
    before[1] += row[1]
    return before


def _counted(key: Any, window: TimeWindow, rows: list[Any]) -> list[int]:
    return [len(rows)]


#: Tasks of the snapshots that are no `CountingTask`.
TASKS: Final[dict[str, type[CountingTask]]] = {
    "accumulators": FoldingTask,
    "values of a reduce": OperatorTask,
    "windows of lists": OperatorTask,
}


def measure_snapshots(figures: Figures, keys: int, rounds: int, undisturbed: float) -> str:
    """Measure the pause and the longest gap for six kinds of values, with this many changed keys."""
    kinds: dict[str, Callable[[Any], Any]] = {
        "numbers": lambda value: value + 1 if value else 1,
        "tuples": lambda value: ("sum", value[1] + 1) if value else ("sum", 1),
        "lists": lambda value: [value[0] + 1] if value else [1],
        "accumulators": lambda _: 1,
        "values of a reduce": lambda _: KeyedReduceOperator(_first, _added),
        "windows of lists": lambda _: WindowOperator(
            _first, TumblingEventTimeWindows(60), partial(ListedContents, _counted)
        ),
    }
    lines = []
    for kind, following in kinds.items():
        spare_loaded_modules(collects_fully=False)
        task = TASKS.get(kind, CountingTask)(keys, following)
        seen = [task.disturbed(undisturbed) for _ in range(rounds)]
        del task
        gc.collect()
        name = f"{keys:,} {kind} changed"
        stopped, gap = middle(one.stopped for one in seen), middle(one.gap for one in seen)
        figures.seconds |= {f"{name}, stopped": stopped, f"{name}, longest gap": gap}
        shares = [one.during / one.before for one in seen]
        figures.ratios[f"rate_during_checkpoint_of_{kind.replace(' ', '_')}"] = middle(shares)
        usual = middle(one.usual_gap for one in seen)
        lines.append(
            [
                name,
                f"{stopped * 1e3:.1f} ms",
                f"{gap * 1e3:.0f} ms",
                f"{usual * 1e3:.0f} ms",
                f"{max(one.gap for one in seen) * 1e3:.0f} ms",
                f"{middle(shares):.2f}",
            ]
        )
    headings = ["state", "stopped", "longest gap", "without", "worst gap", "rate during / before"]
    return table(headings, lines)


def measure_timers(figures: Figures, timers: int, rounds: int) -> str:
    """Measure setting and firing timers, a checkpoint after each, and a checkpoint after both."""
    seen: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, config in BACKENDS.items():
            seen.setdefault(name, []).append(_timers_on(config, timers))
    tables = []
    for name, of_rounds in seen.items():
        times = {what: [one[what] for one in of_rounds] for what in of_rounds[0]}
        figures.seconds |= {f"{timers:,} timers{name}, {what}": middle(each) for what, each in times.items()}
        lines = [[what, f"{middle(t) * 1e3:.1f} ms", f"{max(t) * 1e3:.1f} ms"] for what, t in times.items()]
        tables.append(table([f"{timers:,} timers{name}", "median", "longest"], lines))
    lines = []
    for what in ("to set", "to fire"):
        ratios = [rocks[what] / heap[what] for heap, rocks in zip(*seen.values(), strict=True)]
        figures.ratios[f"timers_{what.replace(' ', '_')}_in_rocksdb_vs_heap"] = middle(ratios)
        lines.append([what, f"{middle(ratios):.2f}", "at most 3", spread(ratios)])
    tables.append(table(["time in RocksDB / on the heap", "middle", "target", "all rounds"], lines))
    return "\n\n".join(tables)


def _timers_on(config: StateBackend, timers: int) -> dict[str, float]:
    times: dict[str, float] = {}
    keys = [f"key-{number}" for number in range(timers)]
    spare_loaded_modules()
    checkpoints = Checkpoints(MemoryStorage(), config)
    queue = TimerQueue(checkpoints.backend.timer_table("timers"))

    def timed(name: str, work: Callable[[], None]) -> None:
        begun = time.perf_counter()
        work()
        times[name] = time.perf_counter() - begun

    def set_all() -> None:
        for at, key in enumerate(keys):
            queue.register(key, at)

    def fire_all() -> None:
        for _ in queue.due(timers):
            pass

    timed("to set", set_all)
    times["set: stopped"] = checkpoints.take()[0]
    timed("to fire", fire_all)
    times["fired: stopped"] = checkpoints.take()[0]
    set_all()
    fire_all()
    stopped, beside = checkpoints.take()
    times["set and fired between two checkpoints: stopped"] = stopped
    times["set and fired between two checkpoints: beside"] = beside
    checkpoints.backend.close()
    return times


def measure_process_function(
    figures: Figures, seconds: float, warm_up: float, rounds: int, with_peers: bool
) -> str:
    """Compare a process function with a `ValueState` on the heap, in RocksDB, in Bytewax and in PyFlink."""
    runs: dict[str, list[Steady]] = {}
    with scratch() as folder, cluster():
        for number in range(rounds):
            env = keyed_process_sum(folder, 1)
            runs.setdefault(PENSTOCK, []).append(steady(env, "sum", warm_up, seconds))
            env = keyed_process_sum(folder, 1, state_backend=RocksDB())
            runs.setdefault(ROCKSDB, []).append(steady(env, "sum", warm_up, seconds))
            if with_peers:
                runs.setdefault(BYTEWAX, []).append(bytewax_worker.steady(folder, warm_up, seconds))
                runs.setdefault(PYFLINK, []).append(pyflink_worker.steady(folder, warm_up, seconds))
            print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    ratios = [
        ("process_function_vs_bytewax", PENSTOCK, BYTEWAX, "at least 2"),
        ("rocksdb_vs_pyflink", ROCKSDB, PYFLINK, "at least 10"),
        ("rocksdb_vs_heap", ROCKSDB, PENSTOCK, "at least 0.3"),
    ]
    lines = compare(figures, ratios, {name: [run.rate for run in each] for name, each in runs.items()})
    if with_peers:
        by_processor_time = [
            theirs.effort / ours.effort for ours, theirs in zip(runs[PENSTOCK], runs[BYTEWAX], strict=True)
        ]
        figures.ratios["process_function_vs_bytewax_by_processor_time"] = middle(by_processor_time)
        lines.append(["the same by CPU", f"{middle(by_processor_time):.2f}", "", spread(by_processor_time)])
    rates = [[name, rows_a_second(figures.rates[name])] for name in runs]
    tables = [table(["contender", "rows/s"], rates)]
    if lines:
        tables.insert(0, table(["ratio", "middle", "target", "all rounds"], lines))
    return "\n\n".join(tables)


def measure_gigabyte(figures: Figures, size: int) -> str:
    """Measure a first checkpoint of this many bytes, a second one after 1 % has changed, and recovery."""
    return "\n\n".join(_gigabyte_on(figures, size, name, config) for name, config in BACKENDS.items())


def _gigabyte_on(figures: Figures, size: int, backend: str, config: StateBackend) -> str:
    value = 1_000
    keys = [f"key-{number}" for number in range(max(100, size // value))]
    filler = Random(2).randbytes(value - 12)
    with scratch() as folder:
        checkpoints = Checkpoints(open_storage(str(folder)), config)
        state = checkpoints.backend.bind(ValueState(bytes, name="state", default=b""))
        for number, key in enumerate(keys):
            checkpoints.backend.current_key = key
            state.update(filler + number.to_bytes(12))
        times = dict(
            zip(("first checkpoint, stopped", "first checkpoint, beside"), checkpoints.take(), strict=True)
        )
        for number, key in enumerate(keys[::100]):
            checkpoints.backend.current_key = key
            state.update(filler + number.to_bytes(12))
        names = "a hundredth changed, stopped", "a hundredth changed, beside"
        times |= dict(zip(names, checkpoints.take(), strict=True))
        assert checkpoints.handle is not None
        del state
        checkpoints.backend.close()
        restored = Checkpoints(checkpoints.storage, config)
        handle = checkpoints.handle
        del checkpoints
        begun = time.perf_counter()
        restored.backend.restore([handle], restored.files(), 2)
        times["recovery"] = time.perf_counter() - begun
        assert sum(1 for _ in restored.backend.table("state").entries) == len(keys), "some keys are missing"
        restored.backend.close()
    name = f"{len(keys) * value / 1e9:.2g} GB{backend}"
    figures.seconds |= {f"{name}, {what}": seconds for what, seconds in times.items()}
    return table([name, "seconds"], [[what, f"{seconds:.3f}"] for what, seconds in times.items()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(
        __doc__, keys=1_000_000, timers=1_000_000, size=1_000_000_000, rounds=5, seconds=8.0, warm_up=2.0
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--without-peers", action="store_true", help="do not install or run other systems")
    given = parser.parse_args(arguments)
    with_peers = "process_function" in given.only and not given.without_peers
    if with_peers:
        bytewax_worker.prepare()
        pyflink_worker.prepare()
    figures = Figures()
    sections = {
        "snapshots": lambda: measure_snapshots(figures, given.keys, given.rounds, given.warm_up / 2),
        "timers": lambda: measure_timers(figures, given.timers, given.rounds),
        "process_function": lambda: measure_process_function(
            figures, given.seconds, given.warm_up, given.rounds, with_peers
        ),
        "gigabyte": lambda: measure_gigabyte(figures, given.size),
    }
    for name in given.only:
        print(f"*{name}*\n\n{sections[name]()}\n", flush=True)
    print(machine().in_words())
    peers = {"bytewax": bytewax_worker.VERSION, "pyflink": pyflink_worker.VERSION} if with_peers else {}
    figures.write(given.json, versions(**peers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
