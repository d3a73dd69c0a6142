"""Errors that users see: what happened, where, and what to do.

All of them are `PenstockError`s, except `OperatorInterrupt` and `SavepointStillNeededWarning`. Errors that
belong to one place of a job carry an `OperatorLocation`. So the message names the operator, the subtask and
the user's own line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.runtime.redaction import redacted


@dataclass(frozen=True, slots=True)
class UserLocation:
    """A line of the user's program.

    Attributes:
        line: Line number, from 1.
        function: The function around the line.

    Example:
        >>> str(UserLocation("job.py", 12, "main"))
        'job.py:12 in main'
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class OperatorLocation:
    """A place in a running job.

    Attributes:
        subtask: Index of the subtask, from 0; `None` outside a running subtask.
        defined_at: The user's line that put the operator into the graph.

    Example:
        >>> str(OperatorLocation("count", 0, 2, UserLocation("job.py", 12, "main")))
        "operator 'count' (subtask 1 of 2), defined at job.py:12 in main"
    """

    operator: str
    subtask: int | None = None
    parallelism: int = 1
    defined_at: UserLocation | None = None

    def __str__(self) -> str:
        where = f"operator '{self.operator}'"
        if self.subtask is not None:
            where += f" (subtask {self.subtask + 1} of {self.parallelism})"
        if self.defined_at is not None:
            where += f", defined at {self.defined_at}"
        return where


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose; its text has no secrets (`redacted`)."""

    def __str__(self) -> str:
        return redacted(super().__str__())

    def __repr__(self) -> str:
        return redacted(super().__repr__())

    def _render_traceback_(self) -> list[str]:
        """The lines that a notebook shows for this error: the cause, then the user's own lines."""
        lines = [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]
        trace, left_out = self.__traceback__, 0
        while trace is not None:
            code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] in _FOLDED:
                left_out += 1
            else:
                is_cell = "ipykernel" in code.co_filename or code.co_filename.startswith("<ipython-input")
                where = "the cell" if is_cell else code.co_filename
                lines.append(f"  at line {trace.tb_lineno} of {where}, in {code.co_name}")
            trace = trace.tb_next
        more = "`traceback.print_exception(sys.last_value)` shows them"
        return [*lines, f"(left out {left_out} lines of Penstock, Ray and IPython: {more})"]


#: Packages whose lines a notebook leaves out.
_FOLDED: Final = frozenset({"penstock", "ray", "IPython", "ipykernel"})


class GraphError(PenstockError):
    """The graph can't be built; the message names the user's line."""


class ConfigurationError(PenstockError, ValueError):
    """A setting or an argument is not allowed; the message says why, or what is allowed."""


class OperatorError(PenstockError):
    """An operator failed; the message names operator, subtask and the user's line.

    Attributes:
        cause_text: The user's traceback as text; the cause itself may not survive a pickle.
        what: The failure, without the place.
        raised_at: The user's line that raised, if it is known.
    """

    def __init__(
        self,
        location: OperatorLocation,
        what: str,
        cause_text: str = "",
        raised_at: UserLocation | None = None,
    ) -> None:
        super().__init__(f"{location}: {what}")
        self.location = location
        self.what = what
        self.cause_text = cause_text
        self.raised_at = raised_at

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.location, self.what, self.cause_text, self.raised_at)


class OperatorInterrupt(KeyboardInterrupt):
    """A `KeyboardInterrupt` in an operator; in a job it is a failure like any other."""

    def __init__(self, error: OperatorError) -> None:
        super().__init__(str(error))
        self.error = error

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.error,)


class CodecError(PenstockError):
    """A value can't be encoded, or bytes can't be decoded."""


class KeyTypeError(PenstockError, TypeError):
    """A value can't be a key: it is mutable, has no reliable equality, or has no stable form."""


class KeyGroupError(PenstockError, ValueError):
    """Keyed state has a key of another subtask's key groups; the message names the key."""


class StorageError(PenstockError):
    """A checkpoint storage can't be read or written; the message names the place and what to do."""


class ObjectNotFoundError(StorageError):
    """No object is stored under this path."""


class ObjectExistsError(StorageError):
    """A put-if-absent failed: an object is already stored under this path."""


class FolderNotFoundError(StorageError):
    """A local folder does not exist, or is a file."""


class StorageTimeoutError(StorageError):
    """A call to a storage hung and was abandoned; it may still take effect at any later time."""


class JobIdTakenError(StorageError):
    """A new job finds the log of another submission under its id; the message names the place."""


class CorruptSnapshotError(StorageError):
    """A snapshot's file is damaged; the message names the file."""


class ConnectorError(PenstockError):
    """A source or sink can't continue; the message names the place, the record, and a remedy."""


class BadRecordError(ConnectorError):
    """A record can't be read or written, and the connector is set to fail on bad records."""


class SuppressRestartsError(PenstockError):
    """A failure that a restart would only repeat: the job fails at once. Connectors raise subclasses."""


class BadInputError(PenstockError):
    """A source's input can't be read; the message names the place, such as a file and an offset.

    The data there does not change. So the second failure with the same message ends the job, whatever the
    restart strategy says. Users' sources may raise it, too.
    """


class LostInputError(SuppressRestartsError):
    """Input that the job needs is lost: its system has deleted it, and no checkpoint covers it."""


class LostOutputError(SuppressRestartsError):
    """Output that was written is lost, and no attempt will write it again."""


class StreamCorruptError(PenstockError):
    """The elements of a channel break the protocol (a repeated barrier, an unknown kind)."""


class DeploymentError(PenstockError):
    """A cluster, a process or a server can't be started, reached or used; the message says why."""


class CheckpointError(PenstockError):
    """A checkpoint that a user requested was not taken; the message says why."""


class SavepointError(PenstockError):
    """A savepoint could not be taken, or the job could not be stopped with one; the message says why."""


class SavepointStillNeededWarning(UserWarning):
    """A savepoint is complete, and its job would still restart from it: its files must stay for now.

    Attributes:
        path: URL of the savepoint.
    """

    def __init__(self, path: str, job_id: str, why: str) -> None:
        super().__init__(
            f"the savepoint {path} is complete, but job {job_id} still builds on it: {why}. Leave its files "
            "where they are until the job has completed a checkpoint (`penstock checkpoints` shows them)"
        )
        self.path = path


class RequestLostError(PenstockError):
    """A request to a job was lost with its JobMaster, which may or may not have carried it out."""


class RescaleError(PenstockError):
    """A job could not be rescaled and continues as before; the message says why."""


class RestoreError(PenstockError):
    """A job can't start from the snapshot that it was given; the message says why and what to do."""


class UnusableSnapshotError(RestoreError):
    """The snapshot that a job was given is missing, incomplete or damaged: no program can start from it."""


class StateMismatchError(RestoreError):
    """A snapshot does not fit the job that should start from it; the message names operator and reason."""


class JobTimeoutError(PenstockError, TimeoutError):
    """An event did not happen in time; the job continues. The message says what to do."""


class JobFailedError(PenstockError):
    """A job ended as failed; the message begins with the root cause."""


class JobCancelledError(PenstockError):
    """A job was cancelled while a caller waited for its result."""
