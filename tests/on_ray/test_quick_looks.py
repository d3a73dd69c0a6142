"""Quick looks at streams from the program that builds them, on a real cluster."""

from __future__ import annotations

import os
import signal
import threading
from operator import add
from pathlib import Path

import pytest
from jobs.driving import PATIENCE, eventually

from penstock import (
    CollectSink,
    FileSink,
    GeneratorSource,
    JobFailedError,
    JobTimeoutError,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.actors.client.jobs import known_jobs

pytestmark = pytest.mark.usefixtures("ray_cluster")


def number(i: int) -> int:
    return i


def in_seconds(n: int) -> int:
    return 1_700_000_000 + n


def still_running() -> list[str]:
    return [job.report.job_id for job in known_jobs() if job.is_running]


def test_some_rows_of_a_stream_without_end_and_nothing_in_its_sinks(tmp_path: Path) -> None:
    env = StreamEnvironment("endless", parallelism=2)
    squares = env.from_source("in", GeneratorSource(number, count=None)).map(lambda n: n * n)
    squares.sink("out", FileSink.json(str(tmp_path / "out")))
    rows = squares.take(5, timeout=PATIENCE)
    assert len(rows) == 5
    assert all(round(row**0.5) ** 2 == row for row in rows)
    assert not (tmp_path / "out").exists()
    assert still_running() == []


def test_all_rows_as_a_list_and_as_a_frame() -> None:
    env = StreamEnvironment("bounded", parallelism=2)
    rows = env.from_collection("in", range(6)).map(lambda n: {"n": n, "odd": n % 2 == 1})
    frame = rows.to_pandas(timeout=PATIENCE).sort_values("n")
    assert frame["n"].tolist() == list(range(6))
    assert frame["odd"].tolist() == [False, True] * 3
    sums = rows.map(lambda row: row["n"]).key_by(lambda n: n % 2).reduce("sums", add)
    found = sums.collect(timeout=PATIENCE)
    # Two subtasks read, so the numbers of a key come in any order; the last sum of each has them all.
    assert len(found) == 6
    assert {0 + 2 + 4, 1 + 3 + 5} <= set(found)


@pytest.mark.parametrize("is_of_source", [True, False])
def test_timestamps_in_another_unit_are_warned_of_in_the_program(
    is_of_source: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(in_seconds)
    source = GeneratorSource(number, count=50, rate=50.0)
    env = StreamEnvironment("units")
    if is_of_source:
        stream = env.from_source("in", source, watermarks=seconds)
    else:
        stream = env.from_source("in", source).assign_timestamps_and_watermarks(seconds, id="in-time")
    assert len(stream.collect(timeout=PATIENCE)) == 50
    (warning,) = [record.getMessage() for record in caplog.records if "1970" in record.getMessage()]
    assert f"operator '{'in' if is_of_source else 'in-time'}': timestamp assigner in_seconds" in warning
    assert warning.endswith('give unit="s"')


def test_a_function_that_fails_is_named_and_the_job_is_not_tried_again() -> None:
    stream = StreamEnvironment("broken").from_collection("in", ["1", "two"]).map(int, id="parse")
    with pytest.raises(JobFailedError, match="'parse'"):
        stream.collect(timeout=PATIENCE)
    assert still_running() == []


@pytest.mark.long
def test_a_look_that_takes_too_long_is_cancelled() -> None:
    stream = StreamEnvironment("nothing").from_source("in", GeneratorSource(number, count=None, rate=1.0))
    nothing = stream.filter(lambda n: False)
    with pytest.raises(JobTimeoutError, match=r"quick look .*after 1 s; the job was cancelled"):
        nothing.take(1, timeout=1)
    assert still_running() == []


@pytest.mark.long
def test_a_look_that_is_interrupted_leaves_no_job_behind() -> None:
    stream = StreamEnvironment("nothing").from_source("in", GeneratorSource(number, count=None, rate=1.0))

    def interrupt() -> None:
        eventually("the look's job", lambda: any(job.state == "running" for job in known_jobs()))
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt) as interrupted:
        stream.filter(lambda n: False).take(1, timeout=PATIENCE)
    other.join()
    assert not getattr(interrupted.value, "__notes__", []), "no advice to cancel what has been cancelled"
    assert still_running() == []


@pytest.mark.long
def test_a_collecting_sink_needs_no_collector() -> None:
    results = CollectSink()
    env = StreamEnvironment("collected", parallelism=2)
    env.from_collection("in", range(10)).sink("results", results)
    env.run(progress=False, timeout=PATIENCE)
    assert sorted(results.rows()) == list(range(10))


@pytest.mark.long
def test_a_collecting_sink_has_the_rows_of_the_newest_run_alone() -> None:
    """As in a notebook whose cell is run again, also for a sink of two streams, and a run without rows."""
    results, seen = CollectSink(), []
    for rows in (range(10), range(3), range(0), range(4)):
        env = StreamEnvironment("again", parallelism=2)
        env.from_collection("in", rows).sink("out", results)
        env.from_collection("more", rows).sink("twice", results)
        for _ in range(2):
            env.run(progress=False, timeout=PATIENCE)
            seen.append(sorted(results.rows()))
    assert seen == [
        sorted([*rows, *rows]) for rows in (range(10), range(3), range(0), range(4)) for _ in "12"
    ]
