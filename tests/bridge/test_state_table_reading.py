"""A table of state whose checkpoint the job deletes while a task reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import RestoreError
from penstock.bridge.state_table import ReadNewest, newest_checkpoint
from penstock.runtime.io.state_parts import Conversion, StateQuery
from penstock.state import read_state, write_state


def saved(folder: Path) -> str:
    keys = range(20_000)  # their files are no part of the metadata
    write_state(pa.table({"key": list(keys), "value": list(keys)}), folder, "count", "reduce", parallelism=4)
    return str(folder)


def test_state_that_is_deleted_after_the_first_rows_names_the_newer_checkpoint(tmp_path: Path) -> None:
    old, new = saved(tmp_path / "old"), saved(tmp_path / "new")
    schema = read_state(new, "count").schema.append(pa.field("checkpoint", pa.int64()))
    read = ReadNewest(StateQuery(new, "count", "reduce", Conversion()), schema, 1, "", "", "")
    rows = read.rows(old, 1, 0)
    assert next(rows).num_rows > 0
    shutil.rmtree(old)
    with pytest.raises(RestoreError, match=r"the job has deleted .*old while it was read, because .*new"):
        list(rows)


def test_damage_of_the_newest_checkpoint_is_no_deletion(tmp_path: Path) -> None:
    new = saved(tmp_path / "new")
    schema = read_state(new, "count").schema.append(pa.field("checkpoint", pa.int64()))
    read = ReadNewest(StateQuery(new, "count", "reduce", Conversion()), schema, 1, "", "", "")
    rows = read.rows(newest_checkpoint(new)[0], 1, 0)
    assert next(rows).num_rows > 0
    for file in (tmp_path / "new").iterdir():
        if "metadata" not in file.name:
            file.unlink()
    with pytest.raises(RestoreError, match=r"is incomplete.*is not there") as caught:
        list(rows)
    assert "has deleted" not in str(caught.value)
