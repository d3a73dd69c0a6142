"""Rows that are looked for by what they begin with: all of them, no others, and none behind them is read."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random

import pytest
from rocksdb_setup import MIB, opened

from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.operators.timers import TimerQueue


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_scan_gives_the_rows_of_its_prefix_in_order(tmp_path: Path, is_flushed: bool) -> None:
    random = Random(1)
    bytes_of_rows = [0, 1, 7, 254, 255]
    rows = {bytes(random.choices(bytes_of_rows, k=random.randint(1, 5))): b"x" * 100 for _ in range(2_000)}
    database = Database(tmp_path / "db", 8 * MIB)
    database.write(rows.items())
    if is_flushed:
        database.checkpoint(tmp_path / "frozen")
    for prefix in [b"", b"\x00", b"\x01\x07", b"\x07\xff", b"\xff", b"\xff\xff", b"\xfe\xff\xff", b"\x05"]:
        for first in [b"", b"\x01", b"\x07\xff\x01"]:
            expected = sorted(row for row in rows if row.startswith(prefix) and row >= first)
            assert [row for row, _ in database.scan(prefix, first)] == expected
    database.destroy()


def test_scans_that_are_left_and_go_on_side_by_side_know_their_ends(tmp_path: Path) -> None:
    """RocksDB reads the end of a scan in memory of Python's."""
    database = Database(tmp_path / "db", 8 * MIB)
    database.write((bytes([first, 5, number]), b"x" * 500) for first in range(255) for number in range(50))
    database.checkpoint(tmp_path / "frozen")
    scans = [database.scan(bytes([first, 5])) for first in range(255)]
    begun = [next(scan) for scan in scans]
    del scans[::3]
    for first in range(255):
        assert list(database.scan(bytes([first, 6]))) == []
    gc.collect()
    taken = [len(list(scan)) for scan in scans]
    assert [row for row, _ in begun] == [bytes([first, 5, 0]) for first in range(255)]
    assert set(taken) == {49}
    database.destroy()


@pytest.mark.timeout(120)
def test_timers_are_set_again_where_many_have_just_fired() -> None:
    """A look for the timers of a key does not walk over the deleted rows of all others; it took hours so."""
    timers = 50_000
    queue = TimerQueue(opened().timer_table("timers"))
    for _ in range(2):
        for number in range(timers):
            queue.register(f"key-{number}", number)
        assert [at for at, _ in queue.due(timers)] == list(range(timers))
    assert len(queue) == 0
