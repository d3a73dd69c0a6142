"""Jobs start from the snapshots that older versions have left, and every result is there exactly once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from driving import (
    DATA,
    SAVEPOINT,
    coordinator_state,
    copy_of,
    finish_from,
    in_flight,
    list_state,
    opened_at,
    take,
)
from saved_jobs import JOBS, ROOT, Order, committed, expected_of

from penstock.connectors import DeadLetter
from penstock.operators import ArrowBatch, RowBatch
from penstock.runtime.io.connectors.collect_sink import CollectedRows
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit, RowGroupSplit
from penstock.runtime.io.connectors.files.file_sink_writer import PendingFile
from penstock.runtime.io.connectors.generator_source import IndexRange
from penstock.runtime.record.elements import Watermark

VERSIONS = sorted(path.name for path in DATA.iterdir())
FIXTURES = [f"{version}/{name}" for version in VERSIONS for name in JOBS]


def fixtures_of(*names: str) -> list[str]:
    return [fixture for fixture in FIXTURES if fixture.partition("/")[2] in names]


@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_job_goes_on_where_the_snapshot_was_taken(fixture: str, tmp_path: Path) -> None:
    folder = copy_of(DATA / fixture, tmp_path)
    before, expected = committed(folder / "out"), expected_of(folder.name)
    assert before < expected

    finish_from(folder)

    assert committed(folder / "out") == expected


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_job_goes_on_at_another_parallelism(fixture: str, parallelism: int, tmp_path: Path) -> None:
    folder = copy_of(DATA / fixture, tmp_path)

    finish_from(folder, parallelism)

    assert committed(folder / "out") == expected_of(folder.name)


@pytest.mark.parametrize("fixture", fixtures_of("savepoint"))
def test_the_folder_of_a_savepoint_is_found_under_another_name(fixture: str, tmp_path: Path) -> None:
    folder = copy_of(DATA / fixture, tmp_path)
    moved = (folder / SAVEPOINT).rename(tmp_path / "elsewhere")

    finish_from(folder, snapshot=moved)

    assert committed(folder / "out") == expected_of(folder.name)


#: The end of RocksDB's sorted files.
_SORTED_FILE = (0x88E241B785F4CFF7).to_bytes(8, "little")

# -- what is written now -------------------------------------------------------------------------------------

#: Names of our classes in the snapshots of all jobs.
WRITTEN = {
    "CollectedRows",
    "DeadLetter",
    "FileSplit",
    "IndexRange",
    "JobStatus",
    "PendingFile",
    "RowGroupSplit",
    "TimeWindow",
}


def test_snapshots_name_no_module_of_ours_but_classes_by_names_that_stay(tmp_path: Path) -> None:
    data = []
    for name in JOBS:
        take(name, tmp_path / name)
        kept = tmp_path / name / (SAVEPOINT if JOBS[name].savepoint else "checkpoints")
        data += [path.read_bytes() for path in kept.rglob("*") if path.is_file()]
    assert not any(b"penstock." in each for each in data)
    whole = [each for each in data if not _is_sorted_file(each)]
    named = {name for each in whole for name in re.findall(rb"penstock[\xa0-\xbf]([A-Za-z]+)", each)}
    assert {name.decode() for name in named} == WRITTEN


def _is_sorted_file(data: bytes) -> bool:
    """Whether it is a file of RocksDB, in which the common begin of neighbouring keys is left out."""
    return data.endswith(_SORTED_FILE)


# -- what is in the snapshots --------------------------------------------------------------------------------


def splits(fixture: str) -> list[Any]:
    return list_state(opened_at(DATA / fixture), "files", "splits")


@pytest.mark.parametrize("fixture", fixtures_of("text", "json-lines", "csv", "packed", "in-flight-rows"))
def test_files_of_lines_are_in_the_middle(fixture: str) -> None:
    found = splits(fixture)
    assert len(found) == 2
    for split in found:
        assert type(split) is FileSplit
        assert split.path.startswith(f"{ROOT}/in/")
        assert split.position is not None
        assert split.start < split.position < split.end


@pytest.mark.parametrize("fixture", fixtures_of("parquet-rows", "parquet-arrow"))
def test_row_groups_of_parquet_files_are_in_the_middle(fixture: str) -> None:
    found = splits(fixture)
    assert {type(split) for split in found} == {RowGroupSplit}
    assert sum(0 < split.position < 70 for split in found) == 2


@pytest.mark.parametrize("fixture", fixtures_of("collected", "states", "windows", "savepoint"))
def test_numbers_are_in_the_middle(fixture: str) -> None:
    found = list_state(opened_at(DATA / fixture), "numbers", "splits")
    assert {type(split) for split in found} == {IndexRange}
    assert all(0 < split.next < split.end for split in found)


FILE_SINKS = [fixture for fixture in FIXTURES if not fixture.endswith("/collected")]


@pytest.mark.parametrize("fixture", FILE_SINKS)
def test_files_are_pending(fixture: str) -> None:
    opened = opened_at(DATA / fixture)
    sinks = [operator for operator in opened.checkpoint.operators if operator.startswith(("out", "dead"))]
    pending = [pair for sink in sinks for pair in list_state(opened, sink, "committables")]
    assert pending
    for checkpoint_id, file in pending:
        assert checkpoint_id == opened.checkpoint.checkpoint_id == 2
        assert type(file) is PendingFile
        folder = DATA / fixture / file.directory.removeprefix(f"{ROOT}/")
        is_committed = (folder / file.final).exists()
        assert is_committed == fixture.partition("/")[2].startswith("savepoint")
        assert (folder / (file.final if is_committed else file.name)).stat().st_size == file.size


@pytest.mark.parametrize("fixture", fixtures_of("collected"))
def test_collected_rows_are_pending(fixture: str) -> None:
    pending = list_state(opened_at(DATA / fixture), "out", "committables")
    assert len(pending) == 2
    assert {type(rows) for _, rows in pending} == {CollectedRows}


@pytest.mark.parametrize("fixture", fixtures_of("requested"))
def test_a_coordinator_has_splits_that_no_reader_has(fixture: str) -> None:
    is_listed, left = coordinator_state(opened_at(DATA / fixture), "files")
    assert is_listed
    assert len(left) > 1
    assert {type(split) for split in left} == {FileSplit}
    assert len(splits(fixture)) == 2


@pytest.mark.parametrize("fixture", fixtures_of("in-flight-rows"))
def test_rows_dead_letters_and_watermarks_are_in_flight(fixture: str) -> None:
    found = in_flight(opened_at(DATA / fixture))
    batches = [each for each in found if isinstance(each, RowBatch)]
    assert {type(row) for batch in batches for row in batch.rows} == {Order, DeadLetter}
    assert any(batch.timestamps for batch in batches)
    assert any(isinstance(each, Watermark) for each in found)


@pytest.mark.parametrize("fixture", fixtures_of("in-flight-arrow"))
def test_arrow_batches_are_in_flight(fixture: str) -> None:
    assert {type(each) for each in in_flight(opened_at(DATA / fixture))} == {ArrowBatch}


@pytest.mark.parametrize("fixture", fixtures_of("states", "windows", "savepoint"))
def test_keyed_state_stands_in_files_of_its_own(fixture: str) -> None:
    opened = opened_at(DATA / fixture)
    assert len(list(opened.checkpoint.files())) > 2
