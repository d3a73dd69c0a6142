"""Every kind of window, with late records at the side, under the failures of many seeds.

The job is that of `tests/on_ray/test_windows.py`, and so is the computation that it is compared with. Its
parallelism stays: a straggler may get a window of its own when keys of several subtasks meet in one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from deep import DEEP
from jobs.all_windows import FUNCTIONS, SLIDES, Numbers, add_all_windows, expected_rows

from penstock import Checkpointing, CollectSink, HeapState, RocksDB, StreamEnvironment
from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.testing import simulate

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

COUNT = 60
SEEDS = 8 * DEEP


class Results(dict[str, InMemoryCollector]):
    """One collector for each sink."""

    def sink_of(self, name: str) -> CollectSink:
        self[name] = InMemoryCollector()
        return CollectSink(self[name])


def rows_of(results: Results) -> list[tuple[str, tuple[Any, ...]]]:
    return [(name, tuple(row)) for name, collector in results.items() for row in collector.rows()]


#: Without a limit for failures: a short deadline would let a run with many subtasks restart for ever.
WAYS = {
    "aligned": Checkpointing(every=1, tolerable_failures=None),
    "unaligned": Checkpointing(every=1, tolerable_failures=None, unaligned=True),
    "with timeout": Checkpointing(every=1, tolerable_failures=None, unaligned=True, aligned_timeout=0.01),
}


#: Each function and each way of taking checkpoints once; the other pairs are long.
PAIRS = [
    pytest.param(function, way, "heap", marks=[pytest.mark.long] * (n != m))
    for n, function in enumerate(FUNCTIONS)
    for m, way in enumerate(WAYS)
]
#: One of them on disk; a run there takes three times as long.
ON_DISK = [
    pytest.param(function, way, "rocksdb", marks=[pytest.mark.long] * ((n, m) != (2, 0)))
    for n, function in enumerate(FUNCTIONS)
    for m, way in enumerate(WAYS)
]
BACKENDS: dict[str, StateBackend] = {"heap": HeapState(), "rocksdb": RocksDB(8 * 1024 * 1024)}


@pytest.mark.parametrize(("function", "way", "backend"), [*PAIRS, *ON_DISK])
def test_windows_of_every_kind_and_what_is_late_are_exact_whatever_fails(
    function: str, way: str, backend: str, record_property: Callable[[str, object], None]
) -> None:
    names = [f"{kind}-{function}" for kind in SLIDES]

    def build() -> tuple[StreamEnvironment, Results]:
        env, results = StreamEnvironment(checkpointing=WAYS[way], state_backend=BACKENDS[backend]), Results()
        add_all_windows(env, Numbers(COUNT), results.sink_of, 2, names)
        return env, results

    expected = expected_rows(COUNT, names)
    right = Counter((name, row) for name, rows in expected.items() for row in rows)
    report = simulate(
        build,
        output=rows_of,
        equal=lambda calm, now: Counter(now) == right,
        seeds=range(SEEDS if backend == "heap" else SEEDS // 2),
        interleavings=2,
        rescale=False,
    )
    kills = {kind: count for kind, count in report.failures.items() if "crash" in kind}
    record_property("shown", f"{way}: {sum(kills.values())} kills: {kills}")
    assert sum(kills.values()) >= (8 if backend == "heap" else 4)
