"""The times at which files of a sink appear, and the remains of those that do not."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from obstore.store import LocalStore, MemoryStore

from penstock import ConnectorError, FileSink
from penstock.connectors import UntrustedPathError
from penstock.runtime.io.connectors.files.file_sink_writer import PendingFile
from penstock.runtime.io.connectors.files.file_source import FileSource
from penstock.runtime.io.connectors.object_files import ObjectFileSystem
from penstock.runtime.operators.sinks import RemovesLeftovers
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.record.value_codec import ValueCodec


class Place:
    """A directory, on disk or in a store, and what is in it."""

    def __init__(self, directory, filesystem, names):
        self.directory = directory
        self.options = {} if filesystem is None else {"filesystem": filesystem}
        self.names = names

    def rows(self, read_all):
        return read_all(FileSource.json(self.directory, **self.options)).rows

    def remove(self, name):
        if "filesystem" in self.options:
            self.options["filesystem"].delete(self.directory, [name])
        else:
            os.remove(os.path.join(self.directory, name))


@pytest.fixture(params=["disk", "memory store", "local store"])
def place(request, tmp_path):
    directory = tmp_path / "out"
    if request.param == "disk":
        return Place(str(directory), None, lambda: sorted(os.listdir(directory)))
    store = MemoryStore() if request.param == "memory store" else LocalStore(tmp_path)
    files = ObjectFileSystem(store, "s3://bucket")

    def names():
        return sorted(each["path"].rpartition("/")[2] for chunk in store.list("out") for each in chunk)

    return Place("s3://bucket/out", files, names)


def test_rows_appear_when_they_are_committed_and_not_before(place, context, permit, read_all):
    writer = FileSink.json(place.directory, **place.options).writer(context(operator="to files"))
    writer.write(RowBatch([{"a": 1}, {"a": "é\n"}]))
    first = writer.prepare_commit()
    writer.write(RowBatch([[3]]))
    assert all(name.startswith("_") for name in place.names())
    writer.commit(first, permit)
    assert place.rows(read_all) == [{"a": 1}, {"a": "é\n"}]
    writer.commit(writer.prepare_commit(), permit)
    assert place.names() == ["part-job-1-to=20files-0-1-0.jsonl", "part-job-1-to=20files-0-1-1.jsonl"]
    assert place.rows(read_all) == [{"a": 1}, {"a": "é\n"}, [3]]
    writer.close()


def test_after_a_crash_the_next_attempt_commits_what_was_pre_committed(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    crashed = sink.writer(context())
    crashed.write(RowBatch([1]))
    pending = crashed.prepare_commit()
    crashed.write(RowBatch([2]))
    codec = ValueCodec(allow_pickle=False)
    restored = sink.writer(context(attempt=2, subtask=1, parallelism=3))
    restored.commit(codec.loads(codec.dumps(list(pending))), permit)
    assert place.rows(read_all) == [1]


def test_committing_twice_changes_nothing(place, context, permit, read_all):
    writer = FileSink.json(place.directory, **place.options).writer(context())
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    writer.commit(pending, permit)
    writer.commit(pending, permit)
    assert place.rows(read_all) == [1]
    assert place.names() == [pending[0].final]


def test_committed_data_that_is_missing_is_an_error_unless_consumers_may_take_it(place, context, permit):
    writer = FileSink.json(place.directory, **place.options).writer(context())
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    place.remove(pending[0].name)
    with pytest.raises(
        ConnectorError, match=r"committed data is missing: neither _in.* nor .*part-.*allow_missing"
    ):
        writer.commit(pending, permit)
    FileSink.json(place.directory, allow_missing=True, **place.options).writer(context()).commit(
        pending, permit
    )


def test_a_final_name_that_is_taken_is_never_overwritten(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    writer = sink.writer(context())
    writer.write(RowBatch(["mine"]))
    (mine,) = writer.prepare_commit()
    other = replace(sink, trust_paths=True).writer(context(job="other"))
    other.write(RowBatch(["older"]))
    (theirs,) = other.prepare_commit()
    other.commit([PendingFile(theirs.directory, theirs.name, mine.final, theirs.size)], permit)
    with pytest.raises(ConnectorError, match="nothing was overwritten"):
        writer.commit([mine], permit)
    assert place.rows(read_all) == ["older"]


def test_leftovers_of_earlier_attempts_of_this_operator_are_removed_and_nothing_else(place, context, permit):
    sink = FileSink.json(place.directory, **place.options)

    def leave(**where):
        left = sink.writer(context(**where))
        left.write(RowBatch([where]))
        return left.prepare_commit()

    gone = [*leave(), *leave(subtask=1), *leave(subtask=11, attempt=2)]
    kept = [
        *leave(attempt=3),
        *leave(job="job-1-files", operator="0"),
        *leave(job="job"),
        *leave(job="job-12"),
        *leave(operator="files-0"),
        *leave(operator="files2"),
    ]
    committed = leave(subtask=2)
    restored = sink.writer(context(attempt=3))
    assert isinstance(restored, RemovesLeftovers)
    restored.commit(committed, permit)
    restored.remove_leftovers(permit)
    assert place.names() == sorted([pending.name for pending in kept] + [committed[0].final])
    assert gone


def test_large_files_are_ended_early_and_committed_together(place, context, permit, read_all):
    writer = FileSink.json(place.directory, max_file_size=1000, **place.options).writer(context())
    for i in range(100):
        writer.write(RowBatch([f"row {i:04}"] * 10))
    pending = writer.prepare_commit()
    assert len(pending) == 10
    assert {each.size for each in pending} == {1100}
    writer.commit(pending, permit)
    assert sorted(place.rows(read_all)) == sorted(f"row {i:04}" for i in range(100) for _ in range(10))


def test_closing_removes_what_was_not_pre_committed_and_leaves_the_rest(place, context, permit, read_all):
    writer = FileSink.json(place.directory, max_file_size=10, **place.options).writer(context())
    writer.write(RowBatch(["pre-committed"]))
    pending = writer.prepare_commit()
    writer.write(RowBatch(["ended because it is large"]))
    writer.write(RowBatch(["open"]))
    writer.close()
    writer.close()
    assert place.names() == [pending[0].name]


def test_a_second_writer_of_the_same_attempt_uses_new_names(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    for i in range(3):
        writer = sink.writer(context())
        writer.write(RowBatch([i]))
        writer.commit(writer.prepare_commit(), permit)
    assert place.rows(read_all) == [0, 1, 2]


def test_nothing_written_is_nothing_to_commit(place, context):
    writer = FileSink.json(place.directory, **place.options).writer(context())
    writer.write(RowBatch([]))
    assert list(writer.prepare_commit()) == []
    writer.close()


def test_files_go_where_they_were_written_even_when_the_sink_has_moved_if_the_user_says_so(
    tmp_path, context, permit
):
    writer = FileSink.json(tmp_path / "old").writer(context())
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    moved = FileSink.json(tmp_path / "new")
    with pytest.raises(UntrustedPathError, match=r"old', which is not .*new.*trust_paths=True"):
        moved.writer(context(attempt=2)).commit(pending, permit)
    replace(moved, trust_paths=True).writer(context(attempt=2)).commit(pending, permit)
    assert os.listdir(tmp_path / "old") == ["part-job-1-files-0-1-0.jsonl"]


def test_a_crash_between_the_two_steps_of_a_commit_is_healed(tmp_path, context, permit):
    writer = FileSink.json(tmp_path).writer(context())
    writer.write(RowBatch([1]))
    (pending,) = writer.prepare_commit()
    os.link(tmp_path / pending.name, tmp_path / pending.final)
    writer.commit([pending], permit)
    assert os.listdir(tmp_path) == [pending.final]


def test_a_directory_that_can_not_be_written_is_named_when_the_writer_is_made(tmp_path, context):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        ConnectorError, match=r"operator 'files': directory .*/file can't be written.*Create it"
    ):
        FileSink.json(tmp_path / "file").writer(context())
    with pytest.raises(ConnectorError, match=r"directory .*/file/below can't be written"):
        FileSink.json(tmp_path / "file" / "below").writer(context())


def test_any_text_is_an_operator_id(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    operators = ["Zähler/../-[*]", "日本語" * 50, "日本語" * 50 + "!", "a#%?\n", "", "=3D", "="]
    for operator in operators:
        writer = sink.writer(context(operator=operator))
        writer.write(RowBatch([operator]))
        writer.commit(writer.prepare_commit(), permit)
    assert len(place.names()) == len(operators)
    assert all(len(name) < 200 and name.isascii() for name in place.names())
    assert sorted(place.rows(read_all)) == sorted(operators)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"directory": "/etc"}, "names '/etc', which is not .*/out"),
        ({"name": "../secret"}, "the file '../secret', which is not a file name"),
        ({"final": "../../home/.profile"}, "is not a file name"),
        ({"name": "secret"}, "not names of this sink"),
        ({"name": "_inprogress-job-1-files-0-1-7.jsonl"}, "not names of this sink"),
        (
            {"name": "_inprogress-job-1-other-0-1-0.jsonl", "final": "part-job-1-other-0-1-0.jsonl"},
            "not names",
        ),
        ({"final": "index.html"}, "not names of this sink"),
        ({"name": 7}, "the file 7, which is not a file name"),
    ],
)
def test_a_changed_snapshot_moves_no_file_of_others(tmp_path, context, permit, changed, why):
    (tmp_path / "secret").write_text("keep")
    out = tmp_path / "out"
    writer = FileSink.json(out).writer(context())
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    before = sorted(os.listdir(out))
    bad = [*pending, replace(pending[0], **changed)]
    with pytest.raises(UntrustedPathError, match=why):
        writer.commit(bad, permit)
    assert (sorted(os.listdir(out)), (tmp_path / "secret").read_text()) == (before, "keep")


@pytest.mark.parametrize(
    ("declared", "named"),
    [("out", "out/of-others"), ("out[1]", "out1"), ("out*", "outside"), ("out?", "out2"), ("out", 7)],
)
def test_a_sink_touches_its_own_directory_and_no_other_one(tmp_path, context, permit, declared, named):
    writer = FileSink.json(tmp_path / declared).writer(context())
    writer.write(RowBatch([1]))
    (pending,) = writer.prepare_commit()
    other = named if isinstance(named, int) else str(tmp_path / named)
    if isinstance(other, str):
        os.makedirs(other)
        (tmp_path / named / pending.name).write_text("of others")
    bad = replace(pending, directory=other)
    with pytest.raises(UntrustedPathError, match=r"which is not .*trust_paths=True"):
        writer.commit([pending, bad], permit)
    assert pending.name in os.listdir(tmp_path / declared), "nothing is done before all were looked at"
    writer.commit([pending], permit)
    if isinstance(other, str):
        assert os.listdir(other) == [pending.name]


def test_what_is_no_pending_file_is_refused(tmp_path, context, permit):
    with pytest.raises(UntrustedPathError, match="'rm' instead of a file to commit"):
        FileSink.json(tmp_path).writer(context()).commit(["rm"], permit)


def test_files_of_a_snapshot_of_another_job_are_committed(tmp_path, context, permit):
    first = FileSink.json(tmp_path).writer(context(job="2", operator="1"))
    first.write(RowBatch([1]))
    pending = first.prepare_commit()
    FileSink.json(tmp_path).writer(context(job="9", operator="1")).commit(pending, permit)
    assert os.listdir(tmp_path) == ["part-2-1-0-1-0.jsonl"]
