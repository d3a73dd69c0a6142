"""A watched folder: files come while a reader, and then the JobMaster, is killed; each line is read once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from jobs.driving import eventually, finish, kill_master, kill_subtask, submit
from jobs.oracle import committed_rows, hidden_files
from jobs.words import environment

from penstock import FileSink, FileSource
from penstock.cluster import RayJobHandle
from penstock.files import FolderWatch

pytestmark = pytest.mark.usefixtures("ray_cluster")

FILES, LINES = 30, 20


class Writer:
    """A program that writes files of numbered lines: complete, and under their final names at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: Iterator[int] = count()
        self.written = 0

    def write(self, files: int) -> None:
        for _ in range(files):
            name = f"{next(self._names):04}.jsonl"
            lines = range(self.written, self.written + LINES)
            hidden = self._folder / f"_{name}"
            hidden.write_text("".join(f"{json.dumps({'number': number})}\n" for number in lines))
            hidden.rename(self._folder / name)
            self.written += LINES


def test_files_that_come_while_processes_are_killed_are_read_once_and_deleted(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    program = Writer(folder)
    watch = FolderWatch(0.1, rest=0, clean_source="delete")
    env = environment(tmp_path, parallelism=2)
    env.from_source("numbers", FileSource.json(folder, watch=watch)).sink("out", FileSink.json(out))

    def numbers() -> Counter[int]:
        return Counter(row["number"] for row in committed_rows(out)) if out.exists() else Counter()

    def committed(job: RayJobHandle) -> None:
        assert not job.report().status.is_terminal
        eventually(f"{program.written} lines", lambda: numbers().total() >= program.written)

    program.write(FILES)
    job = submit(env)
    committed(job)
    program.write(FILES)
    kill_subtask(job, "numbers", 1)
    program.write(FILES)
    committed(job)
    program.write(FILES)
    kill_master(job)
    program.write(FILES)
    committed(job)
    eventually("the files that are covered are deleted", lambda: not any(folder.iterdir()))

    job.stop(tmp_path / "savepoint")
    result = finish(job)

    assert numbers() == Counter(range(5 * FILES * LINES))
    assert hidden_files(out) == []
    assert result.statistics.restarts == 2
