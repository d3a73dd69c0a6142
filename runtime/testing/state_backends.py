"""Opens the backends of tests and simulations that keep state on disk.

The databases are real; only their folder is temporary. In a simulation they are lost with their simulated
process. Only the uploads of checkpoints reach the simulated storage.

The package that opens them has external effects, so this module does not import it. It is loaded by name when
the first job needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend, StateBackendOpener

_OPENER: Final = "penstock.runtime.io.rocksdb.backend"


def open_state_backend(config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
    """A new, empty backend of the kind that is configured.

    Raises:
        ConfigurationError: The package of RocksDB is not installed.
    """
    opener: StateBackendOpener = import_module(_OPENER).open_state_backend
    return opener(config, setup)


class StateBackendsOfProcess:
    """Opens backends for the subtask of one simulated process; a `StateBackendOpener`."""

    def __init__(self) -> None:
        self._opened: list[KeyedStateBackend] = []

    def __call__(self, config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
        backend = open_state_backend(config, setup)
        self._opened.append(backend)
        return backend

    def die(self) -> None:
        for backend in self._opened:
            backend.close()
