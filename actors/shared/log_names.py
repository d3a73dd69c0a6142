"""Names of the files that hold what the actors of a job printed."""

from __future__ import annotations

import re
from typing import Final

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.snapshot.paths import check_job_id, escape_name

#: Stands for the vertex in the JobMaster's files; no escaped vertex has a `-`.
JOB_MASTER: Final = "job-master"
#: Stands for the vertex in files with notices of Ray itself; files of a vertex `ray` have a subtask's index.
RAY: Final = "ray"

#: A glob pattern for the files of all jobs, older ones included.
LOG_FILES: Final = "penstock@*@*.log*"


def log_file_name(job_id: str, vertex: str, index: int | None, incarnation: str) -> str:
    """The file of one actor.

    Args:
        job_id: Lower-case letters, digits and `-`.
        vertex: Any text; `JOB_MASTER` or `RAY` if `index` is `None`.
        index: Index of the subtask; `None` for a JobMaster and for Ray.
        incarnation: Tells actors of the same subtask from each other.

    Example:
        >>> log_file_name("words-1", "count", 0, "2"), log_file_name("words-1", JOB_MASTER, None, "n-7")
        ('penstock@words-1@count@0@2.log', 'penstock@words-1@job-master@@n-7.log')
    """
    part = vertex if index is None else escape_name(vertex)
    return f"penstock@{job_id}@{part}@{'' if index is None else index}@{incarnation}.log"


def log_file_pattern(job_id: str) -> str:
    """A glob pattern for all files of a job, older ones included.

    Raises:
        ConfigurationError: This can't be the id of a job.
    """
    return f"penstock@{check_job_id(job_id)}@*.log*"


def job_of_log_file(name: str) -> str | None:
    """The job whose file this is; `None` for a file of another kind.

    Example:
        >>> job_of_log_file("penstock@words-1@count@0@2.log.1"), job_of_log_file("raylet.out")
        ('words-1', None)
    """
    found = re.fullmatch(r"penstock@([^@]+)@[^@]*@\d*@[^@]*\.log(\.1)?", name)
    if found is None:
        return None
    try:
        return check_job_id(found[1])
    except ConfigurationError:
        return None
