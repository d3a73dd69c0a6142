from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import ConfigurationError, StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.paths import SnapshotPaths, check_folder, escape_name
from penstock.runtime.trust.paths import check_path

PATHS = SnapshotPaths("job-1")
PLACE = {"checkpoint_id": 7, "attempt": 2, "subtask": 3, "number": 0}


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a b", "a#1", "a\\b", "ä", "a\n"]
)
def test_a_path_that_some_storage_does_not_take_is_refused(path: str) -> None:
    with pytest.raises(StorageError, match="must be relative"):
        check_path(path)


@pytest.mark.parametrize("folder", ["a", "/", "a//", "../"])
def test_a_folder_ends_with_one_slash(folder: str) -> None:
    with pytest.raises(StorageError):
        check_folder(folder)


def test_the_root_is_a_folder() -> None:
    assert check_folder("") == ""


@pytest.mark.parametrize("job_id", ["", "A", "a_b", "-a", "a-", "a/b", "a" * 101, "ä", "a\n", 3])
def test_a_job_id_that_can_not_name_a_folder_is_refused(job_id: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case"):
        SnapshotPaths(job_id)


@given(
    st.text(st.characters(exclude_categories=()), max_size=300), st.integers(0, 10**6), st.integers(0, 10**6)
)
def test_every_operator_id_gives_a_path_that_every_storage_takes(
    name: str, checkpoint_id: int, attempt: int
) -> None:
    place = PLACE | {"checkpoint_id": checkpoint_id, "attempt": attempt, "operator_id": name}
    for path in (PATHS.shared_file(**place), PATHS.savepoint_file(**place)):
        assert check_path(path) == path
        assert len(path.rsplit("/", 1)[1]) < 200
        assert PATHS.checkpoint_of(path) == checkpoint_id


@given(st.text(max_size=120), st.text(max_size=120))
def test_different_names_never_share_a_file(one: str, other: str) -> None:
    assert (escape_name(one) == escape_name(other)) == (one == other)


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert escape_name("x" * 500 + "a") != escape_name("x" * 500 + "b")


def test_only_records_are_slots() -> None:
    assert PATHS.slot_of(PATHS.log_slot(12)) == 12
    assert PATHS.slot_of("job-1/log/notes") is None


def test_slots_sort_like_numbers() -> None:
    assert sorted(map(PATHS.log_slot, (10, 9, 100))) == [PATHS.log_slot(n) for n in (9, 10, 100)]


def test_attempts_never_write_each_others_files() -> None:
    kind = SnapshotKind.CHECKPOINT
    assert PATHS.metadata(kind, 7, 1) != PATHS.metadata(kind, 7, 2)
    place = PLACE | {"operator_id": "a"}
    assert PATHS.shared_file(**place) != PATHS.shared_file(**place | {"attempt": 3})


def test_a_checkpoints_files_may_be_deleted_and_know_their_writer() -> None:
    for path in (PATHS.metadata(SnapshotKind.CHECKPOINT, 7, 2), PATHS.shared_file(**PLACE, operator_id="a")):
        assert PATHS.may_delete(FileHandle(path, 1, ""))
        assert (PATHS.writer_of(path), PATHS.checkpoint_of(path)) == (2, 7)


@pytest.mark.parametrize(
    "path",
    [
        "job-1/savepoint-7-2/metadata",
        "job-2/shared/2-7-a-3-0",
        "job-1/log/00000000000000000001",
        "job-1/status.json",
        "job-10/chk-7-2/metadata",
        "job-1/shared/2-7-a",
        "job-1/shared/2-7-a/thesis.tex",
        "job-1/shared/2-7-a-3-0/thesis.tex",
        "job-1/shared/2-7-a-3-0.bak",
        "job-1/shared/2-7-A-3-0",
        f"job-1/shared/{'2' * 5000}-7-a-3-0",
        "job-1/chk-7-2/thesis.tex",
        "job-1/chk-7-2/metadata/thesis.tex",
        "job-1/chk-7-2/channels-a-3/x",
        "job-1/savepoint-7-2/thesis.tex",
    ],
)
def test_what_has_another_owner_is_never_deleted(path: str) -> None:
    assert not PATHS.may_delete(FileHandle(path, 1, ""))
    assert PATHS.writer_of(path) is None


def test_files_that_no_version_has_made_have_no_attempt() -> None:
    assert PATHS.attempt_of("job-1/savepoint-7-2/metadata") == 2
    assert PATHS.attempt_of("job-1/savepoint-7-2/a.2db-0-1") == 2
    assert PATHS.attempt_of("job-1/savepoint-7-2/thesis.tex") is None


@given(st.text(max_size=120), st.integers(0, 2**62 - 1), st.integers(0, 10**6))
def test_the_file_of_a_channels_state_knows_its_writer(vertex: str, checkpoint_id: int, attempt: int) -> None:
    path = PATHS.channel_state(checkpoint_id=checkpoint_id, attempt=attempt, vertex=vertex, subtask=3)
    assert (PATHS.writer_of(path), PATHS.checkpoint_of(path)) == (attempt, checkpoint_id)


@pytest.mark.parametrize("name", ["x", "1x", "9" * 5000, "٣", "7/8"])
def test_only_a_number_says_that_an_id_was_given(name: str) -> None:
    assert PATHS.assigned_id_of("job-1/ids/" + name) is None
