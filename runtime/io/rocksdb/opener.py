"""Opens the backend that a job's settings name: the `StateBackendOpener` of real processes."""

from __future__ import annotations

from pathlib import Path

from penstock.runtime.config.state_backends import HeapState, StateBackend
from penstock.runtime.io.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.runtime.state.heap_backend import heap_backend
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend


def open_state_backend(config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
    """A new, empty backend of the kind that is configured.

    Raises:
        ConfigurationError: The package of RocksDB is not installed.
        StorageError: There is no room for it.
    """
    if isinstance(config, HeapState):
        return heap_backend(setup)
    folder = None if config.folder is None else Path(config.folder)
    return RocksDBKeyedStateBackend(setup, config.memory, folder)
