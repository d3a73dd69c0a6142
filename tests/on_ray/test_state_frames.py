"""Jobs that start from tables, and tables of what jobs have counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from jobs.driving import after_checkpoints, finish, submit, when_records_flow
from jobs.oracle import committed_updates, expected_updates
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import JobFailedError
from penstock.cluster import RayJobHandle
from penstock.runtime.record.arrow_values import from_arrow
from penstock.state import read_state, write_state

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 3_000, 3_000.0


def counted_in(url: str) -> Counter[str]:
    """The word counts of a snapshot; each value is a pair of word and count."""
    table = read_state(url, "count")
    pairs = dict(zip(from_arrow(table["key"]), from_arrow(table["value"]), strict=True))
    assert all(key == word for key, (word, _) in pairs.items())
    return Counter(dict(pairs.values()))


def words(count: int) -> Counter[str]:
    return Counter(word for line in lines(count) for word in line.split())


@pytest.mark.long
def test_a_job_starts_with_state_from_a_table_and_goes_on_counting(tmp_path: Path) -> None:
    before = Counter(dict.fromkeys(list(words(COUNT))[::2], 100))
    table = pa.table({"key": list(before), "value": [{"_1": word, "_2": n} for word, n in before.items()]})
    start = write_state(table, tmp_path / "start", "count", parallelism=3)

    env = word_count(tmp_path, paced_lines(COUNT, 1e9), parallelism=2)
    job = env.submit(restore_from=start)
    assert isinstance(job, RayJobHandle)
    finish(job)

    expected = Counter((word, n + before[word]) for word, n in expected_updates(lines(COUNT)))
    assert committed_updates(tmp_path / "out") == expected


def test_a_savepoint_is_read_and_corrected_and_the_job_goes_on_from_it(tmp_path: Path) -> None:
    """The counts that are read equal those of the input.

    One operator's state is replaced, the source continues.
    """
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, parallelism=2))
    when_records_flow(job, "count", 500)
    after_checkpoints(job, 2)
    path = job.stop(tmp_path / "saved")
    counted = counted_in(path)
    last = Counter[str]()
    for word, n in committed_updates(tmp_path / "out"):
        last[word] = max(last[word], n)
    assert 0 < last.total() < words(COUNT).total()
    assert counted == last
    table = pa.table(
        {"key": list(counted), "value": [{"_1": w, "_2": n + 1_000_000} for w, n in counted.items()]}
    )
    corrected = write_state(table, tmp_path / "corrected", "count", base=path)

    (tmp_path / "go").touch()
    job = word_count(tmp_path, source, parallelism=3).submit(restore_from=corrected)
    assert isinstance(job, RayJobHandle)
    finish(job)

    expected = Counter(
        (word, n if n <= counted[word] or word not in counted else n + 1_000_000)
        for word, n in expected_updates(lines(COUNT))
    )
    assert committed_updates(tmp_path / "out") == expected


@pytest.mark.long
def test_state_for_another_number_of_key_groups_is_refused_by_the_job(tmp_path: Path) -> None:
    start = write_state(
        pa.table({"key": ["the"], "value": [{"_1": "the", "_2": 1}]}),
        tmp_path / "start",
        "count",
        max_parallelism=64,
    )
    job = word_count(tmp_path, paced_lines(10, 1e9)).submit(restore_from=start)
    with pytest.raises(JobFailedError, match=r"StreamEnvironment\(max_parallelism=64\)"):
        job.wait(90)
