"""A chain that is open, and everything that left it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.runtime.config.job_config import HeapState, RocksDB, StateBackend
from penstock.runtime.errors import OperatorLocation, UserLocation
from penstock.runtime.operators.chain import LocatedSource, OperatorChain
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import Batch, Watermark
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend
from penstock.runtime.testing.harness_state import open_state_backend
from penstock.runtime.testing.manual_time import ManualClock
from penstock.testing import OperatorHarness

#: Tests import what they share from beside themselves.
for _folder in ("chain", "patterns", "ranking", "windows"):
    if (_path := str(Path(__file__).parent / _folder)) not in sys.path:
        sys.path.insert(0, _path)


@dataclass
class OpenChain:
    """Operators `op0`, `op1`, ... in a chain."""

    chain: OperatorChain
    emitted: list[tuple[int, str | None, Batch]] = field(default_factory=list)
    watermarks: list[Watermark] = field(default_factory=list)

    def rows(self, tag: str | None = None) -> list[Any]:
        return [row for _, of, batch in self.emitted if of == tag for row in batch.rows]  # type: ignore[union-attr]


def context_of(index: int, operator: Operator | None = None, **more: Any) -> OperatorContext:
    name = f"op{index}"
    location = OperatorLocation(name, 0, 2, UserLocation("job.py", 10 + index, "main"))
    keyed = operator is not None and operator.keyed
    backend = _new_backend() if keyed else None
    connector = ConnectorContext("job", "job", name, 0, 2, 1, ManualClock())
    return OperatorContext(location, connector, backend, **more)


class Chosen:
    """The backend that a test runs on."""

    config: StateBackend = HeapState()
    opened: ClassVar[list[KeyedStateBackend]] = []


@pytest.fixture(params=[HeapState(), RocksDB(8 * 1024 * 1024, "/dev/shm")], ids=["heap", "rocksdb"])
def either_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test runs on each backend: its contexts and its harnesses have it."""
    monkeypatch.setattr(Chosen, "config", request.param)
    defaults: Any = OperatorHarness.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "state_backend", request.param)
    yield
    while Chosen.opened:
        Chosen.opened.pop().close()


def _new_backend() -> KeyedStateBackend:
    setup = BackendSetup("op", 128, KeyGroupRange(0, 127), ValueCodec())
    if isinstance(Chosen.config, HeapState):
        return HeapKeyedStateBackend(setup)
    backend = open_state_backend(Chosen.config, setup)
    Chosen.opened.append(backend)
    return backend


@pytest.fixture
def new_backend(either_backend: None) -> Callable[[], KeyedStateBackend]:
    """Opens backends of the kind that the test runs on."""
    return _new_backend


@pytest.fixture
def make_context() -> Callable[..., OperatorContext]:
    return context_of


@pytest.fixture
def open_chain() -> Iterator[Callable[..., OpenChain]]:
    made: list[OperatorChain] = []

    def make(*operators: Operator, source: LocatedSource | None = None) -> OpenChain:
        contexts = {f"op{i}": context_of(i, operator) for i, operator in enumerate(operators)}
        emitted: list[tuple[int, str | None, Batch]] = []
        watermarks: list[Watermark] = []
        chain = OperatorChain(
            [(contexts[f"op{i}"].location, operator) for i, operator in enumerate(operators)],
            lambda index, tag, batch: emitted.append((index, tag, batch)),
            watermarks.append,
            source,
        )
        made.append(chain)
        chain.open(contexts)
        return OpenChain(chain, emitted, watermarks)

    yield make
    for chain in made:
        chain.close()
