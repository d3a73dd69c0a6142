"""Keeps users' output and log lines of an actor in a file that `penstock logs` finds.

Ray's log files name neither time nor subtask, and may begin with output of earlier work in the process. So an
actor writes its own file into Ray's log folder on its node. Each complete line is written at once, with its
time, so the file has every complete line that was printed before a SIGKILL. The file outlives the actor.
Ray's own file still receives everything. See docs/decisions/0004-logs.md.

A file begins with a line of JSON that names its actor. When a file reaches `MAX_BYTES`, it replaces the
single older file, and a new file is started. So endless output can't fill the disk.

Every process that can write into Ray's log folder can put a file there, or add lines to one. So names and
headers prove nothing. Therefore a process signs each line with the key of its job, and a reader drops lines
with an invalid signature. The signature covers the name of the file, so a line that was copied into another
file is invalid. Users' output can't end the signed part: a line feed in it begins another signed line.

The key is in Ray's cluster-wide key-value store. The job's first process makes it. `penstock gc`
deletes it with the job's other records. Any process of the cluster can read the key. Such a process is
trusted: it could also send messages as a subtask.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import secrets
import stat
import sys
import threading
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TextIO

import ray
from ray.util.annotations import RayDeprecationWarning

from penstock.actors.shared import registry
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.redaction import redacted
from penstock.runtime.snapshot.paths import check_job_id, escape_name

#: Stands for the vertex in the JobMaster's files; no escaped vertex contains a `-`.
JOB_MASTER: Final = "job-master"
#: Stands for the vertex in files with notices of Ray itself; files of a vertex `ray` have a subtask's index.
RAY: Final = "ray"

#: A glob pattern for the files of all jobs, including older files.
LOG_FILES: Final = "penstock@*@*.log*"


def log_file_name(job_id: str, vertex: str, index: int | None, incarnation: str) -> str:
    """The name of an actor's file; `vertex` is `JOB_MASTER` or `RAY` if `index` is `None`, else any text.

    Example:
        >>> log_file_name("words-1", "count", 0, "2"), log_file_name("words-1", JOB_MASTER, None, "n-7")
        ('penstock@words-1@count@0@2.log', 'penstock@words-1@job-master@@n-7.log')
    """
    part = vertex if index is None else escape_name(vertex)
    return f"penstock@{job_id}@{part}@{'' if index is None else index}@{incarnation}.log"


def log_file_pattern(job_id: str) -> str:
    """A glob pattern for all files of a job, including older files."""
    return f"penstock@{check_job_id(job_id)}@*.log*"


def job_of_log_file(name: str) -> str | None:
    """The job whose file this is; `None` for a file of another kind."""
    found = re.fullmatch(r"penstock@([^@]+)@[^@]*@\d*@[^@]*\.log(\.1)?", name)
    if found is None:
        return None
    try:
        return check_job_id(found[1])
    except ConfigurationError:
        return None


_PREFIX: Final = "log-key:"
#: Bytes of a key, and of a signature. The signature precedes the text of each line, in hex.
_KEY: Final = 16

_SIGNATURE: Final = 8


def log_key(job_id: str) -> bytes:
    """The key of a job's lines; creates the key if it does not exist. Blocks."""
    found = known_log_key(job_id)
    if found is None:
        registry.put(_PREFIX + job_id, secrets.token_bytes(_KEY), overwrite=False)
        found = known_log_key(job_id)  # another process may have been faster
    assert found is not None, "Ray's key-value store has lost a value that was just written"
    return found


def known_log_key(job_id: str) -> bytes | None:
    """The key of a job's lines; `None` while no process of this cluster has created it. Blocks."""
    return registry.get(_PREFIX + job_id)


def sign(key: bytes, file: str, at: bytes, stream: bytes, text: bytes) -> bytes:
    """The signature of a line; `file` is the name of its file, without the suffix of an older one."""
    # A foreign file's name may be invalid UTF-8; its lines then have no valid signature.
    signed = b" ".join((file.encode("utf-8", "surrogatepass"), at, stream, text))
    return blake2b(signed, key=key, digest_size=_SIGNATURE).hexdigest().encode()


#: Bytes after which a new file is started; only the previous file is kept.
MAX_BYTES: Final = 16 * 1024 * 1024
#: Characters after which an unfinished line is written.
_LONGEST: Final = 64 * 1024

_LOG_FORMAT: Final = "%(levelname)s %(name)s: %(message)s"


class LogFile:
    """A bounded file of timestamped lines; any thread may add to it."""

    def __init__(
        self, path: Path, header: Mapping[str, Any], max_bytes: int = MAX_BYTES, key: bytes = b""
    ) -> None:
        self._path = path
        self._key = key
        self._header = (json.dumps(dict(header)) + "\n").encode()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._begun: dict[tuple[int, str], str] = {}
        self._open()

    def add(self, mark: str, text: str) -> None:
        """Write the complete lines of a thread's text; keep the rest until its line ends.

        `mark` names the stream of the text: `out`, `err` or `log`.
        """
        key = (threading.get_ident(), mark)
        with self._lock:
            text = self._begun.pop(key, "") + text
            *lines, rest = text.split("\n")
            if len(rest) > _LONGEST:
                lines.append(rest)
            elif rest:
                self._begun[key] = rest
            if lines:
                self._write(mark, lines)

    def flush(self) -> None:
        with self._lock:
            for (_, mark), rest in self._begun.items():
                self._write(mark, [rest])
            self._begun.clear()

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _write(self, mark: str, lines: list[str]) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
        stream, name, key = mark.encode(), self._path.name, self._key
        texts = (line.rstrip("\r").encode("utf-8", "replace") for line in lines)
        data = b"".join(
            b"%b %b %b %b\n" % (at, stream, sign(key, name, at, stream, text), text) for text in texts
        )
        if self._size + len(data) > self._max_bytes and self._size > len(self._header):
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._open()
        self._file.write(data)
        self._size += len(data)

    def _open(self) -> None:
        self._file = open(self._path, "ab", buffering=0, opener=own_file)  # noqa: SIM115
        self._size = self._file.tell()
        if self._size == 0:
            self._file.write(self._header)
            self._size = len(self._header)


def open_log_file(folder: Path, job_id: str, vertex: str, index: int | None, key: bytes) -> LogFile:
    """Open this process's file of a job, with the header that names the process and its role."""
    node, pid = ray.get_runtime_context().get_node_id(), os.getpid()
    incarnation = f"{node[:8]}-{pid}"
    header = {
        "job_id": job_id,
        "vertex": vertex,
        "index": index,
        "incarnation": incarnation,
        "node_id": node,
        "pid": pid,
    }
    return LogFile(folder / log_file_name(job_id, vertex, index, incarnation), header, key=key)


def own_file(path: str, flags: int) -> int:
    """Open a file that only this user may read, because Ray's log folder may be open to all users.

    Raises:
        OSError: Another user, or a link, has taken the name.
    """
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise PermissionError(errno.EPERM, "it is not a file of this user", path)
    os.fchmod(fd, 0o600)
    return fd


class _Formatter(logging.Formatter):
    """Removes secrets from Penstock's log lines; a traceback may name a URL that could not be opened."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return redacted(text) if record.name.partition(".")[0] == "penstock" else text


class _Tee(io.TextIOBase):
    """Writes to a stream and, while a file is set, to this file.

    After an error of the file it reports the error and stops writing there. Libraries keep the `sys.stderr`
    that they find when they are imported. So a process has one `_Tee` for each stream, for all jobs that it
    serves.
    """

    def __init__(self, stream: TextIO, mark: str) -> None:
        self.stream = stream
        self.file: LogFile | None = None
        self._mark = mark

    @classmethod
    def of(cls, stream: TextIO, mark: str) -> _Tee:
        """Return the stream if it is a `_Tee`, otherwise a new `_Tee` around it."""
        return stream if isinstance(stream, cls) else cls(stream, mark)

    def write(self, text: str) -> int:
        written = self.stream.write(text)
        if self.file is not None:
            try:
                self.file.add(self._mark, text)
            except (OSError, ValueError) as error:
                self.file = None
                self.stream.write(f"`penstock logs` shows no further lines of this output: {error}\n")
        return written

    def flush(self) -> None:
        self.stream.flush()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _FileHandler(logging.Handler):
    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file
        self.setFormatter(_Formatter(_LOG_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.add("log", self.format(record) + "\n")
        except Exception:  # report it as logging's own handlers do
            self.handleError(record)


class OutputCapture:
    """Copies the output and log lines of this process to a file until released.

    A root logger with the default level then passes INFO, even after the release. Ray's own loggers don't
    propagate to it and remain unchanged.
    """

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._tees = _Tee.of(sys.stdout, "out"), _Tee.of(sys.stderr, "err")
        root = logging.getLogger()
        log_to_ray()
        self._handler = _FileHandler(file)
        if not any(getattr(handler, "stream", None) in self._tees for handler in root.handlers):
            root.addHandler(self._handler)
        for tee in self._tees:
            tee.file = file
        sys.stdout, sys.stderr = self._tees

    def flush(self) -> None:
        self._file.flush()

    def release(self) -> None:
        for tee in self._tees:
            tee.file = None
        sys.stdout, sys.stderr = self._tees
        logging.getLogger().removeHandler(self._handler)
        self._file.close()


def log_to_ray() -> None:
    """Let a root logger with the default level pass INFO, and one without handlers write to Ray's own file.

    A second call changes nothing.
    """
    root = logging.getLogger()
    if not root.handlers:
        to_ray = logging.StreamHandler(_Tee.of(sys.stderr, "err").stream)
        to_ray.setFormatter(_Formatter(_LOG_FORMAT))
        root.addHandler(to_ray)
    if root.level in (logging.NOTSET, logging.WARNING):
        root.setLevel(logging.INFO)


def session_folder() -> str | None:
    """The folder of Ray's session on this node; `None` outside a cluster."""
    node = ray._private.worker._global_node
    return None if node is None else str(Path(node.get_logs_dir_path()).parent)


def logs_folder() -> Path:
    node = ray._private.worker._global_node
    if node is None:
        msg = "this process is not in a Ray cluster"
        raise RuntimeError(msg)
    return Path(node.get_logs_dir_path())


def capture_output(job_id: str, vertex: str, index: int | None, key: bytes | None) -> OutputCapture | None:
    """Capture this process's output as that of a subtask, or of a JobMaster if `index` is `None`.

    Returns `None` outside of a Ray actor, without a key, or if the file can't be opened.
    """
    is_actor = ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
    if key is None or not is_actor:
        return None
    try:
        file = open_log_file(logs_folder(), job_id, vertex, index, key)
    except OSError as error:
        logging.getLogger(__name__).warning("`penstock logs` shows no lines of this process: %s", error)
        return None
    # Ray warns about its own code, which a job's user can't change.
    warnings.filterwarnings("ignore", category=RayDeprecationWarning)
    return OutputCapture(file)
