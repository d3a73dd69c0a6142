"""Failures of RocksDB say what to do about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import StorageError
from penstock.runtime.io.rocksdb.database import Database


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("IO error: No space left on device: while appending", "Free space on this disk"),
        ("IO error: While mkdir: Permission denied", "the right to write"),
        ("IO error: While open a file: Too many open files", "ulimit -n"),
        ("Corruption: block checksum mismatch", "A restart recreates the folder from the last checkpoint"),
    ],
)
def test_advice_fits_the_failure(tmp_path: Path, text: str, advice: str) -> None:
    class Fails:
        def get(self, row: bytes) -> bytes:
            raise OSError(text)

    database = Database(tmp_path / "db", 8 << 20)
    opened, database._db = database._db, Fails()
    with pytest.raises(StorageError, match=rf"could not be read: {text}\..*{advice}"):
        database.get(b"row")
    database._db = opened
    database.close()
