"""Bad input of every kind: one clear error each, the state of the job says why, what was committed stays."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jobs import bad_input
from jobs.driving import (
    after_checkpoints,
    eventually,
    failure_of,
    finish,
    kill_master,
    penstock_actors,
    submit,
    wait_until,
)
from jobs.faults import RaisesFrom
from jobs.oracle import assert_exactly_once, committed_rows, committed_updates, expected_updates
from jobs.words import counted, environment, lines, paced_lines, word_count

from penstock import FileSink, FileSource, FixedDelay, GraphError, JobConfig, NoRestart, StreamEnvironment
from penstock.actors.shared.job_report import failure_text
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: Lines of two files.
COUNT = 5_000


# -- sources ------------------------------------------------------------------------------------------------


def test_a_source_file_that_is_not_there(tmp_path: Path) -> None:
    source = FileSource.text(str(tmp_path / "nowhere" / "*.txt"))

    job = submit(word_count(tmp_path, source, restart=NoRestart()))
    message = failure_of(job)

    assert "operator 'lines'" in message
    assert "jobs/words.py" in message
    assert f"no file matches '{tmp_path}/nowhere/*.txt'" in message
    kill_master(job)
    eventually("the end of the JobMaster that came back", lambda: penstock_actors() == [], patience=30.0)
    outlived = job.report().failure
    assert outlived is not None
    assert failure_text(outlived.root) == message, "the reason outlives the JobMaster"


def write_to(file: Path, content: list[str]) -> Path:
    file.parent.mkdir(exist_ok=True)
    new = file.with_name(f"_{file.name}")
    new.write_text("".join(f"{line}\n" for line in content))
    return new.rename(file)


def slow_in_its_first_file(tmp_path: Path, **options: Any) -> tuple[RayJobHandle, Path]:
    """A job that has two files to read, and reads the first until `slow` is deleted; the second one."""
    text = lines(COUNT)
    write_to(tmp_path / "in" / "a", text[: -COUNT // 10])
    second = write_to(tmp_path / "in" / "b", text[-COUNT // 10 :])
    (tmp_path / "slow").touch()
    env = environment(tmp_path, **options)
    stream = env.from_source("lines", FileSource.text(tmp_path / "in"))
    counted(stream.map(bad_input.SlowWhile(str(tmp_path / "slow"))), FileSink.json(tmp_path / "out"))
    job = submit(env)
    after_checkpoints(job, 1)
    return job, second


@pytest.mark.long
def test_an_input_file_that_somebody_deletes_is_named_and_read_when_it_is_back(tmp_path: Path) -> None:
    job, second = slow_in_its_first_file(tmp_path, restart=FixedDelay(attempts=1_000, delay=0.1))
    second.unlink()
    (tmp_path / "slow").unlink()
    told = wait_until(job, "its name", lambda r: " is gone: it was there" in str(r.history))
    assert "operator 'lines'" in str(told.history)
    assert f"{second} is gone: it was there when the job listed its files" in str(told.history)

    write_to(second, lines(COUNT)[-COUNT // 10 :])
    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))


def test_an_input_file_that_stays_deleted_fails_the_job_by_name(tmp_path: Path) -> None:
    job, second = slow_in_its_first_file(tmp_path, restart=FixedDelay(attempts=1, delay=0.1))
    second.unlink()
    (tmp_path / "slow").unlink()

    message = failure_of(job)

    assert f"{second} is gone: it was there when the job listed its files" in message
    assert committed_updates(tmp_path / "out") <= expected_updates(lines(COUNT))


@pytest.mark.long
def test_files_that_are_left_out_because_they_are_hidden_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for name in ("a.txt", "_b.txt", ".c.txt"):
        write_to(folder / name, lines(20))

    job = submit(word_count(tmp_path, FileSource.text([folder, f"{folder}/_*"])))
    finish(job)

    [warning] = [each for each in job.report().warnings if "left out" in each]
    assert f"{folder}: 2 files were left out" in warning
    assert f"the first is {folder}/.c.txt" in warning
    assert_exactly_once(tmp_path / "out", lines(20) + lines(20))


def records_and_bad_ones(tmp_path: Path) -> tuple[list[str], list[str]]:
    """A JSON-lines file in which some lines are none: the good words, and the bad lines."""
    good, bad, written = [], [], []
    for i in range(400):
        if i % 50 == 7:
            bad.append(f"{{not json {i}")
            written.append(bad[-1])
        else:
            good.append(f"w{i % 11}")
            written.append(json.dumps({"text": good[-1]}))
    (tmp_path / "in.jsonl").write_text("\n".join(written) + "\n")
    return good, bad


def test_a_record_that_does_not_parse_twice_fails_the_job(tmp_path: Path) -> None:
    _, bad = records_and_bad_ones(tmp_path)
    source = FileSource.json(str(tmp_path / "in.jsonl"))
    env = environment(tmp_path, restart=FixedDelay(attempts=9, delay=0.1))
    counted(env.from_source("records", source).map(bad_input.text_of), FileSink.json(tmp_path / "out"))

    job = submit(env)
    message = failure_of(job)
    assert len(job.report().failures) == 2

    assert "operator 'records' (subtask 1 of 1)" in message
    assert "test_bad_input.py" in message
    assert f"{tmp_path}/in.jsonl" in message
    assert bad[0] in message
    assert "on_error" in message


@pytest.mark.long
def test_a_record_that_does_not_parse_is_skipped_and_counted(tmp_path: Path) -> None:
    good, bad = records_and_bad_ones(tmp_path)
    source = FileSource.json(str(tmp_path / "in.jsonl"), on_error="skip")
    env = environment(tmp_path)
    counted(env.from_source("records", source).map(bad_input.text_of), FileSink.json(tmp_path / "out"))

    result = finish(submit(env))

    assert_exactly_once(tmp_path / "out", good)
    assert result.statistics.operators["records"].records_skipped == len(bad)


def test_a_record_that_does_not_parse_goes_to_the_dead_letters(tmp_path: Path) -> None:
    good, bad = records_and_bad_ones(tmp_path)
    source = FileSource.json(str(tmp_path / "in.jsonl"), on_error="dead_letter")
    env = environment(tmp_path)
    records = env.from_source("records", source)
    counted(records.map(bad_input.text_of), FileSink.json(tmp_path / "out"))
    letters = records.dead_letters().map(bad_input.as_dict)
    letters.sink("letters", FileSink.json(tmp_path / "letters"))

    result = finish(submit(env))

    assert_exactly_once(tmp_path / "out", good)
    found = committed_rows(tmp_path / "letters")
    assert Counter(letter["record"] for letter in found) == Counter(bad)
    assert all(f"{tmp_path}/in.jsonl" in letter["origin"] for letter in found)
    assert result.statistics.operators["records"].dead_letters == len(bad)


# -- users' functions ---------------------------------------------------------------------------------------


def test_a_function_that_can_not_travel_is_refused_at_submission(tmp_path: Path) -> None:
    env = environment(tmp_path)
    lock = threading.Lock()
    stream = env.from_source("lines", paced_lines(100, 1_000.0))
    stream.map(lambda text: (lock, text)[1], id="locked").sink("out", FileSink.json(tmp_path / "out"))

    with pytest.raises(GraphError, match=r"operator 'locked'.*test_bad_input\.py:\d+.*lock"):
        env.submit()


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_function_that_always_raises_fails_the_job(tmp_path: Path, restarts: int) -> None:
    """It fails late: what was committed before stays."""
    picky = RaisesFrom(str(tmp_path / "armed"), str(tmp_path / "raised"))
    restart = FixedDelay(attempts=restarts, delay=0.1) if restarts else NoRestart()
    env = environment(tmp_path, restart=restart)
    stream = env.from_source("lines", paced_lines(100_000, 3_000.0)).map(picky, id="picky")
    counted(stream, FileSink.json(tmp_path / "out"))
    job = submit(env)
    eventually("a commit", lambda: committed_rows(tmp_path / "out") != [])
    (tmp_path / "armed").touch()

    message = failure_of(job)

    assert "operator 'picky' (subtask 1 of 1)" in message
    assert "test_bad_input.py" in message
    assert "faults.py" in message, "the line that raised"
    assert "can't stand" in message
    assert "operator 'picky'" in message.splitlines()[0], "the operator comes first"
    report = job.report()
    assert report.statistics.restarts == restarts
    assert (tmp_path / "raised").read_text() == "x" * (restarts + 1)
    assert len(report.failures) == restarts + 1
    if restarts:
        assert report.transitions[-1].cause.endswith("it has used its 2 restarts")
    committed = committed_updates(tmp_path / "out")
    assert committed.total() > 0
    assert committed <= expected_updates(lines(100_000))


@pytest.mark.long
def test_a_sink_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file stands where the folder should be")

    message = failure_of(submit(word_count(tmp_path, paced_lines(100, 1_000.0), restart=NoRestart())))

    assert "operator 'updates'" in message
    assert "jobs/words.py" in message
    assert str(tmp_path / "out") in message


# -- the cluster --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "needs", "has"),
    [
        ({"num_cpus": 1_000}, "Needed: 1000 CPU and 0 GPU", "the cluster has 4 CPU"),
        ({"resources": {"tpu": 2}}, "Needed: 0 CPU and 0 GPU and 2 tpu", "0 tpu (0 free)"),
    ],
)
def test_a_job_that_needs_more_than_there_is_names_what_is_missing(
    option: Any, needs: str, has: str, tmp_path: Path
) -> None:
    config = JobConfig(deployment_timeout=3.0)
    env: StreamEnvironment = environment(tmp_path, config=config, restart=NoRestart())
    stream = env.from_source("lines", paced_lines(100, 1_000.0))
    stream.rebalance().map(str.upper, id="huge", **option).sink("out", FileSink.json(tmp_path / "out"))

    message = failure_of(submit(env))

    assert "huge[0] could not be placed within 3 s" in message
    assert needs in message
    assert has in message


@pytest.mark.long
def test_a_subtask_that_needs_a_named_resource_gets_it(tmp_path: Path) -> None:
    """Each node of Ray's has a resource with its address."""
    env: StreamEnvironment = environment(tmp_path, restart=NoRestart())
    stream = env.from_collection("words", ["a", "b"])
    here = {"node:127.0.0.1": 0.01}
    stream.rebalance().map(str.upper, id="placed", resources=here).sink(
        "out", FileSink.json(tmp_path / "out")
    )

    finish(submit(env))

    assert sorted(committed_rows(tmp_path / "out")) == ["A", "B"]
