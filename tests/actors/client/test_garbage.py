"""Leftovers of jobs in the cluster: a record that may still be needed stays."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import astuple
from pathlib import Path

import msgpack
import pytest

from penstock import JobStatus
from penstock.actors.client.garbage import (
    Garbage,
    Records,
    delete_files,
    find_garbage,
    find_unknown,
    list_files,
)
from penstock.actors.master.program_keeper import keeper_name
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.output_capture import log_file_name, log_file_pattern
from penstock.actors.shared.registry import SubmittedJob
from penstock.runtime.graph.executor import JobStatistics

NOW, LIMIT = 10_000.0, 1_000.0
ENDED = [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED]


def report(job_id: str, status: JobStatus = JobStatus.FINISHED, ended_at: float = 0.0) -> JobReport:
    return JobReport(job_id, job_id, status, 0.0, ended_at, JobStatistics(status))


def taken(job_id: str) -> bytes:
    data: bytes = msgpack.packb(astuple(SubmittedJob(job_id, job_id, 0.0, (b"graph",))))
    return data


def garbage_of(
    *reports: JobReport, actors: Collection[str] = (), **values: bytes | None
) -> tuple[Collection[str], Collection[str]]:
    """Jobs and keys; in names of keys `__` stands for `:` and `_` for `-`."""
    kept = {name.replace("__", ":").replace("_", "-"): value or b"" for name, value in values.items()}
    kept |= {f"job:{each.job_id}": b"{}" for each in reports}
    found = find_garbage(Records(kept, {each.job_id: each for each in reports}, actors), NOW, LIMIT)
    return found.jobs, (*found.keys, *found.reports)


@pytest.mark.parametrize("status", ENDED)
def test_everything_of_a_job_that_ended_long_ago_goes_its_report_last(status: JobStatus) -> None:
    values = {
        "job:a": b"",
        "cancelled:a": b"",
        "master-of:a": b"m1",
        "process-of:a:p1": b"64",
        "job-of-master:m1": taken("a"),
    }
    assert find_garbage(Records(values, {"a": report("a", status)}), NOW, LIMIT) == Garbage(
        ("a",), ("cancelled:a", "job-of-master:m1", "master-of:a", "process-of:a:p1"), ("job:a",)
    )


def test_a_job_that_ended_a_moment_ago_stays() -> None:
    assert garbage_of(report("a", ended_at=NOW - LIMIT + 1)) == ((), ())
    assert garbage_of(report("a", ended_at=NOW - LIMIT)) == (("a",), ("job:a",))


@pytest.mark.parametrize("status", [each for each in JobStatus if each not in ENDED])
def test_a_job_that_has_not_ended_stays_also_when_it_is_lost(status: JobStatus) -> None:
    kept = {
        "master_of__a": b"m1",
        "process_of__a__p1": b"64",
        "cancelled__a": b"",
        "job_of_master__m1": taken("a"),
    }
    assert garbage_of(report("a", status), **kept) == ((), ())
    assert garbage_of(report("a", status), actors={"master:m1", "process:p1"}, **kept) == ((), ())


def test_a_job_without_a_report_stays() -> None:
    assert garbage_of(master_of__a=b"m1", process_of__a__p1=b"64", job_of_master__m1=taken("a")) == ((), ())


@pytest.mark.parametrize("actor", ["master:m1", "process:p1"])
def test_an_ended_job_stays_while_one_of_its_actors_is_there(actor: str) -> None:
    kept = {"master_of__a": b"m1", "process_of__a__p1": b"64", "job_of_master__m2": taken("a")}
    jobs, keys = garbage_of(report("a"), actors={actor}, **kept)
    assert jobs == ()
    assert set(keys) <= {"job-of-master:m2"}


def test_an_ended_job_that_somebody_gives_to_a_process_stays() -> None:
    assert garbage_of(report("a"), given__a=b"") == ((), ())


def test_what_a_process_does_when_ray_restarts_it_stays_while_its_actor_is_there() -> None:
    assert garbage_of(report("a"), actors={"master:m1"}, job_of_master__m1=taken("a"))[1] == ("job:a",)
    assert garbage_of(actors={"master:m1"}, job_of_master__m1=b"") == ((), ())
    assert garbage_of(job_of_master__m1=b"") == ((), ("job-of-master:m1",))


def test_offers_of_processes_go_with_their_actors() -> None:
    offers = {"warm_master__m1": b"", "warm__01_ab__64__p1": b""}
    assert garbage_of(actors={"master:m1", "process:p1"}, **offers) == ((), ())
    assert set(garbage_of(**offers)[1]) == {"warm-master:m1", "warm:01-ab:64:p1"}


def test_the_program_that_a_killed_upgrade_has_kept_goes_with_the_records_of_its_job() -> None:
    reports = {"a": report("a"), "b": report("b", JobStatus.STOPPING), "c": report("c", ended_at=NOW)}
    values = {f"{kind}:{job_id}": b"" for kind in ("job", "going-back") for job_id in reports}
    found = find_garbage(Records(values, reports, {keeper_name(job_id) for job_id in reports}), NOW, LIMIT)
    assert found == Garbage(("a",), ("going-back:a",), ("job:a",), programs=("a",))


def test_records_of_unknown_kinds_stay() -> None:
    assert garbage_of(report("a"), something__a=b"", collector__a=b"")[1] == ("job:a",)


def test_a_job_whose_id_begins_as_that_of_an_ended_one_keeps_its_records_and_lines(tmp_path: Path) -> None:
    running = report("a-1", JobStatus.RUNNING)
    assert garbage_of(report("a"), running, cancelled__a_1=b"")[1] == ("job:a",)
    for job_id in ("a", "a-1"):
        (tmp_path / log_file_name(job_id, "count", 0, "2")).write_text("line\n")
    (tmp_path / f"{log_file_name('a', 'count', 0, '2')}.1").write_text("older\n")
    (tmp_path / "raylet.out").write_text("of Ray\n")
    patterns = [log_file_pattern("a")]
    assert sum(delete_files(patterns, True, tmp_path).values()) == 11
    assert len(list(tmp_path.iterdir())) == 4
    assert len(delete_files(patterns, False, tmp_path)) == 2
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {log_file_name("a-1", "count", 0, "2"), "raylet.out"}
    assert delete_files(patterns, False, tmp_path) == {}


def unknown(written: dict[str, float], *reports: JobReport, **values: bytes) -> tuple[str, ...]:
    kept = {name.replace("__", ":").replace("_", "-"): value for name, value in values.items()}
    return find_unknown(written, Records(kept, {each.job_id: each for each in reports}), NOW, LIMIT)


def test_lines_of_a_job_that_the_cluster_no_longer_knows_go_when_all_are_old() -> None:
    old, new = NOW - LIMIT, NOW - LIMIT + 1
    first, second = log_file_name("a", "count", 0, "2"), log_file_name("a", "count", 1, "2")
    assert unknown({first: old, f"{second}.1": old, "raylet.out": 0.0}) == ("a",)
    assert unknown({first: old, second: new}) == ()


@pytest.mark.parametrize(
    "records",
    [
        {"job__a": b""},
        {"cancelled__a": b""},
        {"master_of__a": b"m"},
        {"process_of__a__p": b"64"},
        {"given__a": b""},
        {"job_of_master__m": taken("a")},
    ],
)
def test_lines_of_a_job_stay_while_any_record_names_it(records: dict[str, bytes]) -> None:
    lines = {log_file_name("a", "count", 0, "2"): 0.0, log_file_name("a-1", "count", 0, "2"): 0.0}
    assert unknown(lines, **records) == ("a-1",)


def test_the_files_of_lines_are_listed_with_the_time_of_their_last_line(tmp_path: Path) -> None:
    for name in (log_file_name("a", "count", 0, "2"), "raylet.out"):
        (tmp_path / name).write_text("line\n")
        os.utime(tmp_path / name, (5.0, 7.0))
    assert list_files(tmp_path) == {log_file_name("a", "count", 0, "2"): 7.0}
