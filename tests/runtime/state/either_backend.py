"""The backend that a test of state runs on: `test_...[heap]` and `test_...[rocksdb]`.

A test file says `pytestmark = pytest.mark.usefixtures("either_backend")`, and makes its backends with
`new_backend`. A test about what only the heap does asks for the fixture `only_heap`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from penstock.runtime.config.job_config import HeapState, RocksDB, StateBackend
from penstock.runtime.ports import Clock
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.keyed_snapshot import CompactionPolicy
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.harness_state import open_state_backend

ALL = KeyGroupRange(0, 127)
NEVER = CompactionPolicy(max_files=100, growth=100.0)
MEMORY = 8 * 1024 * 1024
KINDS: dict[str, StateBackend] = {"heap": HeapState(), "rocksdb": RocksDB(MEMORY, "/dev/shm")}


class Chosen:
    """The backends of the running test."""

    config: StateBackend = KINDS["heap"]
    opened: ClassVar[list[Any]] = []


@pytest.fixture(params=list(KINDS))
def either_backend(request: pytest.FixtureRequest) -> Iterator[StateBackend]:
    """The test runs on each backend."""
    Chosen.config = KINDS[request.param]
    yield Chosen.config
    Chosen.config = KINDS["heap"]
    while Chosen.opened:
        Chosen.opened.pop().close()


@pytest.fixture
def only_heap(either_backend: StateBackend) -> None:
    """The test is about the heap backend alone."""
    if not isinstance(either_backend, HeapState):
        pytest.skip("about the heap backend")


def new_backend(
    policy: CompactionPolicy = NEVER,
    own: KeyGroupRange = ALL,
    *,
    max_parallelism: int = 128,
    codec: ValueCodec | None = None,
    clock: Clock | None = None,
) -> Any:
    """A new, empty backend of the kind that the test runs on."""
    codec = codec or ValueCodec()
    if isinstance(Chosen.config, HeapState):
        return HeapKeyedStateBackend(BackendSetup("op", max_parallelism, own, codec, clock=clock), policy)
    backend = open_state_backend(Chosen.config, BackendSetup("op", max_parallelism, own, codec, clock=clock))
    Chosen.opened.append(backend)
    return backend
