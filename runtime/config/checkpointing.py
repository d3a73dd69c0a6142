"""`Checkpointing`: the settings of a job's checkpoints, and their guarantee (`CheckpointingMode`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from penstock.runtime.config.checks import Location, Settings, choice, location, truth, whole_number
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.names import NearestEnumMembers
from penstock.runtime.record.elements import CheckpointOptions, SnapshotKind
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in


class CheckpointingMode(Enum, metaclass=NearestEnumMembers):
    """The guarantee of a checkpoint when a job is restored from it."""

    #: Every record has an effect on state exactly once. Channels wait for each other at barriers, unless the
    #: barriers overtake data.
    EXACTLY_ONCE = "exactly_once"
    #: No record is lost; some may count twice after a restore. No channel ever waits.
    AT_LEAST_ONCE = "at_least_once"


class KeepAfter(Enum, metaclass=NearestEnumMembers):
    """Outcomes of a job after which its checkpoints stay in storage; savepoints always stay."""

    NEVER = "never"
    FAILURE = "failure"
    FAILURE_OR_CANCELLATION = "failure_or_cancellation"
    ALWAYS = "always"


class Alignment(Enum, metaclass=NearestEnumMembers):
    """Treatment of a channel whose barrier has arrived, until an aligned checkpoint has all barriers."""

    #: The channel is not read, and its sender stops when it has no credit left.
    HOLD = "hold"
    #: The data of the channel is stored, in memory and then on disk, and its sender continues.
    STORE = "store"


def refuse_without_store(name: str, value: int) -> NoReturn:
    msg = (
        f"{name}={value} without alignment='store': alignment='hold' stores no data, because the sender of "
        f"a held channel stops without credits. Set alignment='store', or leave {name} out"
    )
    raise ConfigurationError(msg)


@without_secrets
@dataclass(frozen=True, slots=True)
class Checkpointing(Settings):
    """Settings of a job's checkpoints. Durations are a `timedelta`, or seconds.

    Attributes:
        every: Time from the start of one periodic checkpoint to the start of the next; over 0.
        storage: Path or URL of the checkpoint storage; `None` for the default of the executor.
        mode: Exactly once, or at least once (no alignment: faster, records may count twice after a failure).
        timeout: Maximum duration of a checkpoint; a longer checkpoint is aborted.
        min_pause: Minimum time between the completion of a checkpoint and the start of the next one, periodic
            or requested. Savepoints and the job's own requests, as for a rescale, may start earlier. No pause
            follows a failed checkpoint.
        max_concurrent: Maximum number of checkpoints in progress.
        retain: Number of completed checkpoints that are kept.
        keep_after: Outcomes of the job after which its checkpoints stay.
        tolerable_failures: Maximum number of failed checkpoints in a row; one more fails the attempt. `None`
            for any number.
        allow_older: Start from an older checkpoint when the newest is damaged. Sinks may then repeat output
            that was committed after the older checkpoint.
        unaligned: Barriers overtake data, which becomes part of the checkpoint. Then back pressure does not
            delay a checkpoint, but makes it larger. Requires exactly once and `max_concurrent=1`.
            Savepoints are always aligned.
        aligned_timeout: With `unaligned`: a checkpoint begins aligned, and turns unaligned when an alignment
            takes longer than this; `None` for unaligned from the beginning.
        alignment: Treatment of a channel whose barrier has arrived in an aligned checkpoint. `hold` does not
            read it. `store` stores its data until the other barriers arrive, so its sender can continue to
            serve its other receivers. `store` is only for exactly once, without `unaligned`.
        max_alignment_bytes: With `store`: a checkpoint is aborted when a subtask has to store more than this;
            the stored data is then processed. `None` for no limit but the disk's.

    Raises:
        ConfigurationError: A value is not allowed; the message names the allowed values.

    Example:
        >>> Checkpointing(every=10, mode="at_least_once").mode
        <CheckpointingMode.AT_LEAST_ONCE: 'at_least_once'>
        >>> Checkpointing(every=0)
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: every=0: give a finite duration longer than 0 s
    """

    every: Duration
    storage: Location | None = None
    mode: CheckpointingMode | str = CheckpointingMode.EXACTLY_ONCE
    timeout: Duration = 600.0
    min_pause: Duration = 0.0
    max_concurrent: int = 1
    retain: int = 1
    keep_after: KeepAfter | str = KeepAfter.FAILURE
    tolerable_failures: int | None = 2
    allow_older: bool = False
    unaligned: bool = False
    aligned_timeout: Duration | None = None
    alignment: Alignment | str = Alignment.HOLD
    max_alignment_bytes: int | None = None

    def __post_init__(self) -> None:
        normal: dict[str, object] = {
            "every": seconds_in("every", self.every, above=0.0),
            "mode": choice("mode", self.mode, CheckpointingMode),
            "timeout": seconds_in("timeout", self.timeout, above=0.0),
            "min_pause": seconds_in("min_pause", self.min_pause),
            "max_concurrent": whole_number("max_concurrent", self.max_concurrent, at_least=1),
            "retain": whole_number("retain", self.retain, at_least=1),
            "keep_after": choice("keep_after", self.keep_after, KeepAfter),
            "allow_older": truth("allow_older", self.allow_older),
            "unaligned": truth("unaligned", self.unaligned),
            "alignment": choice("alignment", self.alignment, Alignment),
        }
        if self.tolerable_failures is not None:
            whole_number("tolerable_failures", self.tolerable_failures, at_least=0)
        if self.storage is not None:
            normal["storage"] = location("storage", self.storage)
        if self.aligned_timeout is not None:
            normal["aligned_timeout"] = seconds_in("aligned_timeout", self.aligned_timeout)
        if self.max_alignment_bytes is not None:
            whole_number("max_alignment_bytes", self.max_alignment_bytes, at_least=0)
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        self._check_unaligned()
        self._check_alignment()

    def _check_alignment(self) -> None:
        """Refuse settings that have no effect."""
        if self.alignment is Alignment.HOLD:
            if self.max_alignment_bytes is not None:
                refuse_without_store("max_alignment_bytes", self.max_alignment_bytes)
        elif self.mode is CheckpointingMode.AT_LEAST_ONCE:
            msg = (
                "alignment='store' with mode='at_least_once': at least once blocks no channel, so there is "
                "nothing to store. Use mode='exactly_once', or leave alignment out"
            )
            raise ConfigurationError(msg)
        elif self.unaligned:
            timeout = "" if self.aligned_timeout is None else f" and aligned_timeout={self.aligned_timeout!r}"
            msg = (
                f"alignment='store' with unaligned=True{timeout}: unaligned barriers overtake data and wait "
                "for no slow channel, so there is nothing to store. Leave one of the settings out"
            )
            raise ConfigurationError(msg)

    def _check_unaligned(self) -> None:
        if self.unaligned and self.mode is CheckpointingMode.AT_LEAST_ONCE:
            msg = (
                "unaligned=True with mode='at_least_once': unaligned checkpoints capture in-flight data so "
                "that exactly once need not wait for barriers, and at least once never waits. "
                "Use mode='exactly_once', or leave unaligned out"
            )
            raise ConfigurationError(msg)
        if self.unaligned and self.max_concurrent > 1:
            msg = (
                f"unaligned=True with max_concurrent={self.max_concurrent}: a newer barrier would overtake "
                "the data that an older checkpoint still captures; use max_concurrent=1"
            )
            raise ConfigurationError(msg)
        if self.aligned_timeout is not None and not self.unaligned:
            msg = (
                f"aligned_timeout={self.aligned_timeout!r} without unaligned=True: it says when an aligned "
                "checkpoint turns unaligned; set unaligned=True, or leave aligned_timeout out"
            )
            raise ConfigurationError(msg)

    def options(self, kind: SnapshotKind) -> CheckpointOptions:
        """Options of a snapshot of this kind, which its barrier carries. Savepoints are always aligned."""
        if kind.is_savepoint or not self.unaligned:
            return CheckpointOptions(kind)
        timeout = None if self.aligned_timeout is None else as_seconds(self.aligned_timeout)
        return CheckpointOptions(kind, unaligned=not timeout, aligned_timeout=timeout or None)
