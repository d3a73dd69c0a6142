"""Files with the output of a job's actors: their names, and the signatures of the job's own lines.

Every process that can write into Ray's folder of logs can put a file there, or add lines to one. A name and a
header prove nothing. So a process signs each line with the key of its job, and a reader leaves out lines that
the key does not confirm. The signature covers the name of the file, so a line that was copied into another
file is invalid. Users' output can't end the signed part: a line feed in it begins another signed line.

The key is in Ray's cluster-wide key-value store. The first of the job's processes makes it. `penstock gc`
deletes it with the job's other records. A process of the same cluster can ask for it, too. It is trusted: it
could as well send messages as a subtask of the job.
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b
from typing import Final

from ray.experimental import internal_kv

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.snapshot.paths import check_job_id, escape_name

#: Stands for the vertex in the JobMaster's files; no escaped vertex has a `-`.
JOB_MASTER: Final = "job-master"
#: Stands for the vertex in files with notices of Ray itself; files of a vertex `ray` have a subtask's index.
RAY: Final = "ray"

#: A glob pattern for the files of all jobs, older ones included.
LOG_FILES: Final = "penstock@*@*.log*"


def log_file_name(job_id: str, vertex: str, index: int | None, incarnation: str) -> str:
    """Return the name of an actor's file.

    Args:
        vertex: Any text; `JOB_MASTER` or `RAY` if `index` is `None`.
        index: Index of the subtask; `None` for a JobMaster and for Ray.

    Example:
        >>> log_file_name("words-1", "count", 0, "2"), log_file_name("words-1", JOB_MASTER, None, "n-7")
        ('penstock@words-1@count@0@2.log', 'penstock@words-1@job-master@@n-7.log')
    """
    part = vertex if index is None else escape_name(vertex)
    return f"penstock@{job_id}@{part}@{'' if index is None else index}@{incarnation}.log"


def log_file_pattern(job_id: str) -> str:
    """A glob pattern for all files of a job, older ones included.

    Raises:
        ConfigurationError: The id of the job is invalid.
    """
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


_NAMESPACE: Final = b"penstock"

_PREFIX: Final = "log-key:"
#: Bytes of a key, and of a signature in front of each line.
_KEY: Final = 16

_SIGNATURE: Final = 8


def log_key(job_id: str) -> bytes:
    """The key of a job's lines; makes it if there is none yet. Blocks."""
    found = known_log_key(job_id)
    if found is None:
        name, key = (_PREFIX + job_id).encode(), secrets.token_bytes(_KEY)
        internal_kv._internal_kv_put(name, key, overwrite=False, namespace=_NAMESPACE)
        found = known_log_key(job_id)  # another process may have been faster
    assert found is not None, "Ray's key-value store has lost what was just put"
    return found


def known_log_key(job_id: str) -> bytes | None:
    """The key of a job's lines; `None` for a job that has written none in this cluster. Blocks."""
    key: bytes | None = internal_kv._internal_kv_get((_PREFIX + job_id).encode(), namespace=_NAMESPACE)
    return key


def sign(key: bytes, file: str, at: bytes, stream: bytes, text: bytes) -> bytes:
    """The signature of a line.

    Args:
        file: Name of its file, without the suffix of an older one.
    """
    # A foreign file's name may be no text: the result is then no signature of the job.
    signed = b" ".join((file.encode("utf-8", "surrogatepass"), at, stream, text))
    return blake2b(signed, key=key, digest_size=_SIGNATURE).hexdigest().encode()
