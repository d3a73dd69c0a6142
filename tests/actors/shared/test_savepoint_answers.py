"""The caller's answer to a request for a savepoint."""

from __future__ import annotations

import warnings

import pytest

from penstock import SavepointError, SavepointStillNeededWarning
from penstock.actors.shared.snapshot_answers import SavepointTaken, SnapshotRefused, path_of, savepoint_answer
from penstock.runtime.checkpoint.coordinator.requests import CheckpointSucceeded
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint

SAVED = CompletedCheckpoint(7, 1, SnapshotKind.SAVEPOINT, {}, 0.0, 0.0, location="/saved/savepoint-j-7-1")


def test_a_savepoint_that_the_job_does_not_need_gives_its_url_without_a_warning() -> None:
    with warnings.catch_warnings(action="error"):
        assert path_of(savepoint_answer(CheckpointSucceeded(SAVED), "/jobs"), "j") == SAVED.location


def test_a_savepoint_that_the_job_still_needs_gives_its_url_with_a_warning() -> None:
    answer = savepoint_answer(CheckpointSucceeded(SAVED, still_needed="disk full"), "/jobs")
    assert isinstance(answer, SavepointTaken)
    with pytest.warns(SavepointStillNeededWarning, match="job j still builds on it: disk full") as warned:
        assert path_of(answer, "j") == SAVED.location
    (warning,) = (each.message for each in warned)
    assert isinstance(warning, SavepointStillNeededWarning)
    assert warning.path == SAVED.location


def test_a_refused_savepoint_raises_why() -> None:
    with pytest.raises(SavepointError, match="no savepoint of job j: disk full"):
        path_of(SnapshotRefused("disk full"), "j")
