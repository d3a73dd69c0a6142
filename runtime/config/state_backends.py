"""Where a job keeps its keyed state: `HeapState` or `RocksDB`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.runtime.config.checks import check_names, from_fields, whole_number
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.misspelt_names import NearestNames

#: Memory of RocksDB in one process when the user says nothing, bytes.
ROCKSDB_MEMORY: Final = 256 * 1024 * 1024
#: The least that lets RocksDB work.
_LEAST_MEMORY: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HeapState(metaclass=NearestNames):
    """Keyed state in dictionaries of the subtask's process: the fastest, as large as its memory."""

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> HeapState:
        """Build it from a mapping; any setting is refused."""
        return from_fields(cls, given)


@dataclass(frozen=True, slots=True)
class RocksDB(metaclass=NearestNames):
    """Keyed state in RocksDB on the local disk of the subtask's node: larger than memory.

    Needs the package of the extra `rocksdb` wherever subtasks run.

    Attributes:
        memory: Bytes of one process, however many of its operators use RocksDB. They are for the block cache,
            the write buffers, and the values that Python holds decoded.
        folder: Where the databases are while the job runs; `None` for the temporary folder of each node. It
            is scratch space: a restart takes nothing from it.

    Example:
        >>> RocksDB(memory=512 * 1024 * 1024).memory
        536870912
        >>> RocksDB(memory=1)
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: RocksDB.memory=1: give a whole number of at least 4194304
    """

    memory: int = ROCKSDB_MEMORY
    folder: str | None = None

    def __post_init__(self) -> None:
        whole_number("RocksDB.memory", self.memory, at_least=_LEAST_MEMORY)
        if self.folder is not None and (not isinstance(self.folder, str) or not self.folder.strip()):
            msg = f"RocksDB.folder={self.folder!r}: give the path of a folder, or None"
            raise ConfigurationError(msg)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> RocksDB:
        """Build it from a mapping; an unknown setting is refused with the nearest one named."""
        return from_fields(cls, given)


#: The default.
ON_HEAP: Final = HeapState()

#: Where keyed state is kept.
StateBackend: TypeAlias = HeapState | RocksDB

_KINDS: Final[dict[str, type[HeapState] | type[RocksDB]]] = {"heap": HeapState, "rocksdb": RocksDB}


def state_backend_from_mapping(given: Mapping[str, Any]) -> StateBackend:
    """The backend that a mapping describes: its `kind`, and the settings of that kind.

    Raises:
        ConfigurationError: The kind or a setting is unknown (the nearest one is named) or not allowed.

    Example:
        >>> state_backend_from_mapping({"kind": "rocksdb", "memory": 8 * 1024 * 1024}).memory
        8388608
    """
    kind = given.get("kind")
    if not isinstance(kind, str):
        msg = f"state_backend kind={kind!r}: give one of {', '.join(map(repr, _KINDS))}"
        raise ConfigurationError(msg)
    check_names("state_backend kind", {kind: None}, list(_KINDS))
    return _KINDS[kind].from_mapping({name: value for name, value in given.items() if name != "kind"})
