"""`JobConfig`: every setting of a job that is not part of its graph, and the state backends.

`Semantics` has the rules in which Flink 1.11 differs from Penstock. Conformance cases replay Flink 1.11 with
the classes that jobs run; only this value differs. Users can set one of the rules:
`JobConfig(end_of_partition=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, get_args

from penstock.runtime.config.checkpointing import (
    Alignment,
    Checkpointing,
    CheckpointingMode,
    refuse_without_store,
)
from penstock.runtime.config.checks import (
    Location,
    Settings,
    from_fields,
    location,
    of_kind,
    truth,
    whole_number,
)
from penstock.runtime.config.restart import (
    ExponentialBackoff,
    NoRestart,
    RestartConfig,
    restart_from_mapping,
)
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.redaction import redacted, without_secrets
from penstock.runtime.time.durations import Duration, seconds_in

EndOfPartitionMode: TypeAlias = Literal["counts_as_barrier", "aborts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """Rules of checkpoints. Jobs follow the defaults; users can change only `end_of_partition`.

    Attributes:
        end_of_partition: Meaning of a channel's end for a checkpoint that waits for the channel's barrier.
        coalesces_periodic_requests: A periodic request is not added while another one waits. If false, the
            requests pile up.
        abort_ends_start: An abort ends the start in progress. If false, the start waits for the next answer
            of a hook or a coordinator, which may never arrive.
        declines_overtaken: A subtask declines an overtaken checkpoint. If false, it drops the checkpoint.
        checkpoints_after_tasks_finish: Checkpoints continue when some subtasks have finished.
        savepoints_count: A savepoint counts as a retained checkpoint, in the order of completion. A late
            savepoint then displaces a newer checkpoint.
    """

    end_of_partition: EndOfPartitionMode = "counts_as_barrier"
    coalesces_periodic_requests: bool = True
    abort_ends_start: bool = True
    declines_overtaken: bool = True
    checkpoints_after_tasks_finish: bool = True
    savepoints_count: bool = False

    @classmethod
    def current(cls) -> Semantics:
        return cls()

    @classmethod
    def flink_1_11(cls) -> Semantics:
        return cls(
            end_of_partition="aborts",
            coalesces_periodic_requests=False,
            abort_ends_start=False,
            declines_overtaken=False,
            checkpoints_after_tasks_finish=False,
            savepoints_count=True,
        )

    @property
    def end_counts_as_barrier(self) -> bool:
        return self.end_of_partition == "counts_as_barrier"


#: Default bytes of stored alignments that a subtask keeps in memory.
ALIGNMENT_MEMORY: Final = 32 * 1024 * 1024
#: Default memory of RocksDB in one process, in bytes.
ROCKSDB_MEMORY: Final = 256 * 1024 * 1024
#: Minimum memory of RocksDB, in bytes.
_LEAST_MEMORY: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HeapState(Settings):
    """Keyed state in the memory of the subtask's process: the fastest backend, limited by that memory."""


@dataclass(frozen=True, slots=True)
class RocksDB(Settings):
    """Keyed state in RocksDB on the local disk of the subtask's node, for state larger than memory.

    Needs the package of the extra `rocksdb` wherever subtasks run.

    Attributes:
        memory: Bytes per process, shared by all its operators that use RocksDB: for the block cache, the
            write buffers, and decoded values.
        folder: Folder of the databases while the job runs; `None` for the temporary folder of each node. It
            is scratch space: a restart reads nothing from it.

    Example:
        >>> RocksDB(memory=512 * 1024 * 1024).memory
        536870912
    """

    memory: int = ROCKSDB_MEMORY
    folder: Location | None = None

    def __post_init__(self) -> None:
        whole_number("RocksDB.memory", self.memory, at_least=_LEAST_MEMORY)
        if self.folder is not None:
            object.__setattr__(self, "folder", location("RocksDB.folder", self.folder))


#: The default state backend.
ON_HEAP: Final = HeapState()

#: A state backend.
StateBackend: TypeAlias = HeapState | RocksDB

_KINDS: Final[dict[str, type[HeapState] | type[RocksDB]]] = {"heap": HeapState, "rocksdb": RocksDB}


def state_backend_from_mapping(given: Mapping[str, Any]) -> StateBackend:
    """Make a state backend from a mapping with its `kind` and the settings of that kind.

    Example:
        >>> state_backend_from_mapping({"kind": "rocksdb", "memory": 8 * 1024 * 1024}).memory
        8388608
    """
    return of_kind("state_backend", _KINDS, given)


AllowPickle: TypeAlias = bool | Literal["records"]

Failover: TypeAlias = Literal["region", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancedConfig(Settings):
    """Settings that tune the buffers and the timeouts of a job; few jobs need them.

    Durations are a `timedelta` or seconds, and kept as seconds.

    Attributes:
        buffer_rows: Maximum number of records in a buffer of rows.
        buffer_bytes: Target size of an encoded buffer of rows.
        debloat_target: Time that a receiver should need for all buffers of rows on one channel. Buffers for a
            slow receiver get smaller, so barriers pass sooner. 0 leaves buffers as large as `buffer_rows` and
            `buffer_bytes` allow.
        arrow_buffer_rows: Maximum number of records in a buffer that holds an Arrow batch.
        arrow_buffer_bytes: Target size of a buffer that holds an Arrow batch.
        credits: Maximum number of buffers in flight on one channel. More credits hide latency, and leave more
            data between subtasks that a checkpoint's barrier has to pass.
        slice_duration: Time that a subtask works before it checks for barriers and control messages.
        lease_timeout: Time without a renewal by the JobMaster after which a subtask ends itself. A process
            that has not answered for this long is killed, even if its processor time advances.
        heartbeat_timeout: Time after which a process that has not answered is killed if its processor time
            does not advance, as under SIGSTOP. Status and logs name it after half of that time.
        gap_timeout: Time that a receiver waits for an element that a later element has overtaken.
        cancellation_timeout: Time that users' code may take to return after a cancellation.
        storage_timeout: Time without progress after which a call to the storage fails. At the end of a job,
            its record and its deletions each wait no longer than this.
        alignment_memory: With `Checkpointing(alignment="store")`: bytes that a subtask keeps in memory. The
            rest goes to a file in the temporary folder of the node.
        max_raw_state_bytes: Maximum bytes of raw state of one operator in one subtask; a checkpoint with more
            fails. Writing the state takes twice its size in memory.

    Raises:
        ConfigurationError: A value is not allowed, or a setting is unknown (the nearest one is named).

    Example:
        >>> AdvancedConfig(credits=4).credits
        4
    """

    buffer_rows: int = 16_384
    buffer_bytes: int = 256 * 1024
    debloat_target: Duration = 1.0
    arrow_buffer_rows: int = 256 * 1024
    arrow_buffer_bytes: int = 4 * 1024 * 1024
    credits: int = 8
    slice_duration: Duration = 0.01
    lease_timeout: Duration = 60.0
    heartbeat_timeout: Duration = 8.0
    gap_timeout: Duration = 30.0
    cancellation_timeout: Duration = 30.0
    storage_timeout: Duration = 60.0
    alignment_memory: int = ALIGNMENT_MEMORY
    max_raw_state_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("debloat_target", "cancellation_timeout"):
            object.__setattr__(self, name, seconds_in(name, getattr(self, name)))
        for name in (
            "slice_duration",
            "lease_timeout",
            "heartbeat_timeout",
            "gap_timeout",
            "storage_timeout",
        ):
            object.__setattr__(self, name, seconds_in(name, getattr(self, name), above=0.0))
        for name in ("buffer_rows", "buffer_bytes", "arrow_buffer_rows", "arrow_buffer_bytes", "credits"):
            whole_number(name, getattr(self, name), at_least=1)
        for name in ("alignment_memory", "max_raw_state_bytes"):
            whole_number(name, getattr(self, name), at_least=0)


@without_secrets
@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig(Settings):
    """The settings of a job. Durations are a `timedelta` or seconds, and kept as seconds.

    Attributes:
        checkpointing: Settings of checkpoints; `None` disables them, and no state survives a failure.
        restart: Restart strategy; for the default see `restart_or_default`.
        failover: Scope of a restart after a failure: `region`, the subtasks that exchanges connect to the
            failed subtask, or `full`, all subtasks.
        buffer_timeout: Maximum time that a record waits in a buffer that is not full. On an idle channel a
            record is sent at once, or after at most a tenth of this time if a frame has just left. So a slow
            stream sends up to ten frames per timeout and channel, which cost processor time at both ends.
        allow_pickle: Whether values that no other codec knows are pickled, and unpickled from the snapshot
            that the job starts from. `False` makes them an error. `"records"` allows it for records between
            subtasks, not for snapshots. With unaligned checkpoints, which hold records, it allows neither.
        deployment_timeout: Maximum time of each step of a deployment: start the processes, read splits and
            snapshots in the JobMaster, open the subtasks. Before that, master hooks have the same time to
            restore. A cluster that adds nodes on demand needs minutes.
        reuse_processes: Whether subtasks and the JobMaster may reuse processes of this program's earlier
            jobs, and leave their own to later jobs. A process costs about a second to start. `False` gives
            each of them a new process that ends with the job.
        standby: Number of processes that the job keeps in reserve. They replace processes that die, so a
            restart does not wait for a new process. Each takes about 70 MB. Subtasks with `num_cpus`,
            `num_gpus` or `resources` can't use them.
        end_of_partition: Meaning of a channel's end for a checkpoint that waits for the channel's barrier:
            `counts_as_barrier`, or `aborts` as in Flink 1.11. `aborts` excludes `mode="at_least_once"`.
        state_backend: Backend of operators without a backend of their own: `HeapState()`, or `RocksDB()` for
            state that is larger than memory.
        advanced: Settings that tune a job; few jobs need them.

    Raises:
        ConfigurationError: A value is not allowed, or a setting is unknown (the nearest one is named).

    Example:
        >>> JobConfig(buffer_timeout=0.02, advanced=AdvancedConfig(credits=4)).buffer_timeout
        0.02
    """

    checkpointing: Checkpointing | None = None
    restart: RestartConfig | None = None
    failover: Failover = "region"
    buffer_timeout: Duration = 0.1
    allow_pickle: AllowPickle = True
    deployment_timeout: Duration = 300.0
    reuse_processes: bool = True
    standby: int = 0
    end_of_partition: EndOfPartitionMode = "counts_as_barrier"
    state_backend: StateBackend = ON_HEAP
    advanced: AdvancedConfig = AdvancedConfig()

    def __post_init__(self) -> None:
        object.__setattr__(self, "buffer_timeout", seconds_in("buffer_timeout", self.buffer_timeout))
        timeout = seconds_in("deployment_timeout", self.deployment_timeout, above=0.0)
        object.__setattr__(self, "deployment_timeout", timeout)
        whole_number("standby", self.standby, at_least=0)
        _one_of("allow_pickle", self.allow_pickle, (True, False, "records"))
        truth("reuse_processes", self.reuse_processes)
        _one_of("failover", self.failover, get_args(Failover))
        _one_of("end_of_partition", self.end_of_partition, get_args(EndOfPartitionMode))
        _kind_of("checkpointing", self.checkpointing, Checkpointing, NoneType)
        _kind_of("restart", self.restart, *get_args(RestartConfig), NoneType)
        _kind_of("state_backend", self.state_backend, *get_args(StateBackend))
        _kind_of("advanced", self.advanced, AdvancedConfig)
        memory = self.advanced.alignment_memory
        holds = self.checkpointing is not None and self.checkpointing.alignment is Alignment.HOLD
        if memory != ALIGNMENT_MEMORY and holds:
            refuse_without_store("alignment_memory", memory)
        self._check_end_of_partition()

    def _check_end_of_partition(self) -> None:
        """Refuse `aborts` with at least once: after the end of a channel no checkpoint would complete."""
        if self.checkpointing is None or self.end_of_partition == "counts_as_barrier":
            return
        if self.checkpointing.mode is CheckpointingMode.AT_LEAST_ONCE:
            msg = (
                "end_of_partition='aborts' with mode='at_least_once': a checkpoint would wait for channels "
                "that have ended, so none would complete once a subtask has finished; use "
                "'counts_as_barrier'"
            )
            raise ConfigurationError(msg)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> JobConfig:
        """Build a config from a mapping, as read from a file; nested settings are mappings too.

        Raises:
            ConfigurationError: A setting is unknown (the nearest one is named) or not allowed.

        Example:
            >>> config = JobConfig.from_mapping({"checkpointing": {"every": 5}, "restart": {"kind": "none"}})
            >>> config.checkpointing.every, config.restart
            (5.0, NoRestart())
        """
        nested: dict[str, Callable[[Mapping[str, Any]], object]] = {
            "checkpointing": Checkpointing.from_mapping,
            "restart": restart_from_mapping,
            "state_backend": state_backend_from_mapping,
            "advanced": AdvancedConfig.from_mapping,
        }
        settings = {
            name: nested[name](value) if name in nested and isinstance(value, Mapping) else value
            for name, value in given.items()
        }
        return from_fields(cls, settings)

    @property
    def pickles_state(self) -> bool:
        """Whether values without another codec may be pickled into snapshots, and unpickled from them."""
        return self.allow_pickle is True

    @property
    def pickles_records(self) -> bool:
        """Whether records between subtasks may be pickled; in an unaligned checkpoint they are state."""
        if self.allow_pickle == "records":
            return self.checkpointing is None or not self.checkpointing.unaligned
        return self.allow_pickle

    @property
    def restart_or_default(self) -> RestartConfig:
        """The restart strategy, with the default filled in.

        With checkpoints a restart loses nothing. So the job restarts up to ten times in a row, with growing
        delays that start at 1 s. With `standby` it restarts up to thirteen times, starting at 0.1 s. A job
        that fails twice at the same line of the user's code before its first checkpoint is not restarted.
        Without checkpoints a restart would begin from nothing and might write everything twice, so there is
        none.
        """
        if self.restart is not None:
            return self.restart
        if self.checkpointing is None:
            return NoRestart()
        if self.standby:
            return ExponentialBackoff(initial=0.1, attempts=13)
        return ExponentialBackoff(attempts=10)


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        msg = f"{name}={value!r}: give {' or '.join(map(repr, allowed))}"
        raise ConfigurationError(msg)


def _kind_of(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        allowed = " or ".join("None" if kind is NoneType else f"{kind.__name__}(...)" for kind in kinds)
        msg = f"{name}={value!r}: give {allowed}"
        raise ConfigurationError(msg)


def settings_as_text(config: JobConfig) -> dict[str, str]:
    """Every setting by its name; a nested setting is prefixed with its parent: `advanced.credits`."""
    return dict(_flat(config, ""))


def _flat(settings: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            yield f"{prefix}{field.name}", type(value).__name__
            yield from _flat(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", redacted(str(value))
