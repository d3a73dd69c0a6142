"""A new job whose id is that of an earlier one is refused by name, and changes nothing of the earlier one.

The log of its own submission is another matter: a process that has died has begun the job.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from jobs.driving import eventually, failure_of, finish, submit
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import JobStatus
from penstock.actors.client import executor
from penstock.actors.client.own_masters import OwnMasters
from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.graph_shipping import pack_job
from penstock.actors.shared.registry import SubmittedJob
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.io.storage import open_storage
from penstock.runtime.snapshot.paths import SnapshotPaths

pytestmark = pytest.mark.usefixtures("ray_cluster")

TAKEN = "words-0123456789abcdef0123456789abcdef"
REPLACED = "words-0123456789abcdef0123456789abcdee"
COUNT = 300


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_job_whose_id_has_a_log_in_its_storage_fails_and_leaves_it_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after two submissions in two clusters that share a storage."""
    earlier = DecisionLog(open_storage(str(tmp_path / "checkpoints")), SnapshotPaths(TAKEN))
    earlier.begin_attempt(1.0)
    before = content(tmp_path / "checkpoints")
    source = paced_lines(COUNT, 3_000.0, attempt=NEVER, release=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(executor, "make_job_id", lambda name: TAKEN)
        refused = submit(word_count(tmp_path, source))
        message = failure_of(refused)

    assert refused.job_id == TAKEN
    assert f"job id '{TAKEN}' is taken: {tmp_path}/checkpoints/{TAKEN}/log/" in message
    assert "Nothing was changed there; submit the job again" in message
    assert refused.report().statistics.restarts == 0
    assert content(tmp_path / "checkpoints") == before
    assert not (tmp_path / "out").exists()

    finish(submit(word_count(tmp_path, source)))
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert content(tmp_path / "checkpoints" / TAKEN).items() <= before.items()


@pytest.mark.long
def test_a_job_whose_first_attempt_a_lost_process_began_is_carried_on(tmp_path: Path) -> None:
    """As after a freeze before its first attempt, when the process that came in its place has died, too."""
    lost = DecisionLog(
        open_storage(str(tmp_path / "checkpoints")), SnapshotPaths(REPLACED), submission="once"
    )
    lost.begin_attempt(1.0)
    env = word_count(tmp_path, paced_lines(COUNT, 3_000.0, attempt=NEVER, release=tmp_path))
    chunks = tuple(pack_job(env.build(), env.config))
    job = SubmittedJob(REPLACED, "words", time.time(), chunks, submission="once")

    OwnMasters().begin(lambda: job, may_reuse=False)  # its first process dies before the job has begun

    eventually("the end", lambda: is_finished(REPLACED))
    assert_exactly_once(tmp_path / "out", lines(COUNT))


def is_finished(job_id: str) -> bool:
    report = load_from_cluster(job_id)
    return report is not None and report.status is JobStatus.FINISHED
