"""Removes leftovers of ended jobs from Ray's cluster and the nodes' disks, for `penstock gc`.

Ray keeps these leftovers until its cluster ends. After months a cluster would hold the report and the printed
lines of every job that it has ever run.

A running job needs its records, and so does a job that Ray is about to restart. A job whose JobMaster was
killed for good ("lost") has not ended either: its report names the folder of its checkpoints. So a job's
records are deleted only if conditions 1 and 2 hold, and its report only if condition 3 holds, too:

1. Its last report says that it has ended, and it ended long enough ago. Only the JobMaster writes such a
   report, and it begins no attempt of the job afterwards.
2. No actor is its JobMaster, none of its processes has an actor, and no program is giving the job to a
   process. Ray also lists actors that it is restarting. Actors are listed *after* the records were read. So a
   record whose actor is not listed belongs to an ended actor: an actor exists before it writes.
3. All nodes have deleted the job's lines. Otherwise the next run finds the report, and deletes the other
   lines.

An upgrade that was killed and never repeated leaves an actor that keeps the program of its job
(`ProgramKeeper`). The actor is ended before the records of its job are deleted, so it never outlives them.
Without these records the upgrade can't be repeated either.

The record of a JobMaster's job (`job-of-master`) is deleted if the JobMaster's actor and the job have ended.
The offer of a process is deleted if the process's actor has ended. Records of unknown kinds stay.

Lines may outlive the records of their job. This happens if Ray had declared a node dead when the records were
deleted, or if the head node lost its key-value store. These lines are deleted when they are old enough. Their
files are listed *before* the records are read: a job has a record before it prints, so the lines of a new job
stay.

Checkpoints, savepoints and decision logs are never touched, because this module opens no storage. Ages are
measured by the wall clock, because users give them in days. With a wrong clock, leftovers of ended jobs may
be deleted too early.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import ray

from penstock.actors.master.program_keeper import forget, keeper_name
from penstock.actors.shared import registry
from penstock.actors.shared.archive import list_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.node_processes import alive_nodes, answers_of_nodes
from penstock.actors.shared.output_capture import LOG_FILES, job_of_log_file, log_file_pattern, logs_folder
from penstock.actors.shared.registry import job_in, master_name, process_name

_NODE_TIMEOUT: Final = 30.0
#: Prefixes of the ids of nodes that did not answer.
_Silent: TypeAlias = tuple[str, ...]
#: Kinds of records that are about one job; the rest of the key begins with its id.
_OF_A_JOB: Final = frozenset({"job", "cancelled", "master-of", "process-of", "log-key", "going-back"})


@dataclass(frozen=True, slots=True)
class Garbage:
    """The jobs and records that may be deleted; `keys` excludes the keys in `reports`.

    `programs` has the jobs whose program an upgrade has kept.
    """

    jobs: tuple[str, ...]
    keys: tuple[str, ...]
    reports: tuple[str, ...]
    programs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectedGarbage:
    """The jobs, records and files that were deleted, or would be without `dry_run`.

    Attributes:
        silent_nodes: Prefixes of the ids of nodes that did not answer.
        unknown_jobs: Ids of jobs that the cluster no longer knew; only their lines were deleted.
        kept_programs: Ids of jobs whose program an upgrade had kept; its actor was ended.
    """

    jobs: tuple[str, ...]
    records: int
    files: int
    bytes: int
    silent_nodes: tuple[str, ...] = ()
    unknown_jobs: tuple[str, ...] = ()
    kept_programs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Records:
    """The key-value store at one moment, and the actors that were listed after it was read.

    `values` has all keys; only the values of `master-of` and `job-of-master` are needed.
    """

    values: Mapping[str, bytes]
    reports: Mapping[str, JobReport] = field(default_factory=dict)
    actors: Collection[str] = ()


def find_garbage(records: Records, now: float, older_than: float) -> Garbage:
    """Select the jobs and records to delete; `now` and `older_than` (time since the end) are in seconds."""
    jobs = tuple(
        sorted(
            job_id
            for job_id, report in records.reports.items()
            if _ended_before(report, now - older_than) and not _is_used(job_id, records)
        )
    )
    gone = frozenset(jobs)
    keys = [key for key in records.values if _is_garbage(key, gone, records)]
    reports = [key for key in keys if key.startswith("job:")]
    programs = tuple(job_id for job_id in jobs if keeper_name(job_id) in records.actors)
    return Garbage(jobs, tuple(sorted(set(keys) - set(reports))), tuple(sorted(reports)), programs)


def find_unknown(
    written: Mapping[str, float], records: Records, now: float, older_than: float
) -> tuple[str, ...]:
    """Return the sorted ids of jobs that have no record, and no line newer than `older_than` seconds.

    `written` has the wall-clock seconds of the last write to each file of lines, by file name. The records
    must be read after the files were listed.
    """
    known: set[str | None] = {key.partition(":")[2].partition(":")[0] for key in records.values}
    known |= {job_in(value) for key, value in records.values.items() if key.startswith("job-of-master:")}
    known |= records.reports.keys()
    last: dict[str, float] = {}
    for name, moment in written.items():
        job_id = job_of_log_file(name)
        if job_id is not None and job_id not in known:
            last[job_id] = max(moment, last.get(job_id, moment))
    return tuple(sorted(job_id for job_id, moment in last.items() if moment <= now - older_than))


def _ended_before(report: JobReport, moment: float) -> bool:
    return report.status.is_terminal and report.submitted_at + report.duration <= moment


def _is_used(job_id: str, records: Records) -> bool:
    master = records.values.get(f"master-of:{job_id}")
    if master is not None and master_name(master.decode()) in records.actors:
        return True
    if f"given:{job_id}" in records.values:
        return True
    begin = f"process-of:{job_id}:"
    return any(
        process_name(key.removeprefix(begin)) in records.actors
        for key in records.values
        if key.startswith(begin)
    )


def _is_garbage(key: str, ended: Collection[str], records: Records) -> bool:
    kind, _, rest = key.partition(":")
    if kind in _OF_A_JOB:
        return rest.partition(":")[0] in ended
    process = rest.rpartition(":")[2]
    if kind == "job-of-master":
        job = job_in(records.values[key])
        is_over = job is None or (job in records.reports and records.reports[job].status.is_terminal)
        return is_over and master_name(process) not in records.actors
    if kind == "warm-master":
        return master_name(process) not in records.actors
    return kind == "warm" and process_name(process) not in records.actors


def collect(older_than: float, now: float, *, dry_run: bool = False) -> CollectedGarbage:
    """Delete the leftovers of ended jobs in the cluster that this process has joined.

    Args:
        older_than: Seconds that must have passed since a job's end.
        dry_run: Whether to delete nothing, and only return the leftovers.
    """
    written, _ = _on_all_nodes(list_files)
    records = _records()
    garbage = find_garbage(records, now, older_than)
    unknown = find_unknown(written, records, now, older_than)
    patterns = [log_file_pattern(job_id) for job_id in (*garbage.jobs, *unknown)]
    found, silent = _on_all_nodes(delete_files, patterns, dry_run) if patterns else ({}, ())
    keys = garbage.keys if silent else (*garbage.keys, *garbage.reports)
    if not dry_run:
        for job_id in garbage.programs:
            forget(job_id)
        for key in keys:
            registry.delete(key)
    size = sum(map(int, found.values()))
    return CollectedGarbage(garbage.jobs, len(keys), len(found), size, silent, unknown, garbage.programs)


def _records() -> Records:
    values: dict[str, bytes] = {}
    for key in registry.keys(""):
        is_read = key.startswith(("master-of:", "job-of-master:"))
        value = registry.get(key) if is_read else b""
        if value is not None:
            values[key] = value
    reports = {job: report for job, report in list_cluster().items() if isinstance(report, JobReport)}
    return Records(values, reports, registry.living_actors())


def _on_all_nodes(work: Callable[..., dict[str, float]], *given: Any) -> tuple[dict[str, float], _Silent]:
    """Run `work` on every node; return its results by file name, and the silent nodes."""
    found: dict[str, float] = {}
    silent = []
    for node, answer in answers_of_nodes(alive_nodes(), _NODE_TIMEOUT, work, *given):
        if isinstance(answer, ray.exceptions.RayError):
            silent.append(node[:8])
            continue
        for name, number in answer.items():
            found[name] = max(number, found.get(name, number))
    return found, tuple(silent)


def list_files(folder: Path | None = None) -> dict[str, float]:
    """Return the wall-clock seconds of the last write to each file of lines on this node, by name."""
    found: dict[str, float] = {}
    for path in (folder or logs_folder()).glob(LOG_FILES):
        with suppress(FileNotFoundError):  # another program has deleted it
            found[path.name] = path.stat().st_mtime
    return found


def delete_files(patterns: Iterable[str], dry_run: bool, folder: Path | None = None) -> dict[str, float]:
    """Delete files in this node's log folder, unless `dry_run`; return their sizes in bytes by name."""
    found: dict[str, float] = {}
    for pattern in patterns:
        for path in (folder or logs_folder()).glob(pattern):
            try:
                found[path.name] = path.stat().st_size
                if not dry_run:
                    path.unlink()
            except FileNotFoundError:  # another node on this machine was faster
                continue
    return found
