"""State that is larger than memory, and what a small change of it uploads; long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from rocksdb_setup import Files, opened, put, take

GIB = 1024**3
HERE = Path(__file__).parent


@pytest.mark.parametrize("size", [1 << 25, pytest.param(GIB, marks=pytest.mark.long)])
def test_a_change_of_one_percent_uploads_less_than_five(size: int, tmp_path: Path) -> None:
    draws, files = Random(5), Files()
    backend = opened(memory=64 * 1024 * 1024, place=tmp_path)
    keys = size // 1000
    for start in range(0, keys, 10_000):
        put(backend, {n: draws.randbytes(1000) for n in range(start, min(keys, start + 10_000))})
    # What RocksDB still has to merge of the first gigabyte would be uploaded with the change.
    backend._database._db.compact_range(None, None)
    handle = take(backend, files, 1)
    before = sum(file.size for file in handle.files)
    assert before > 0.9 * size
    put(backend, {draws.randrange(keys): draws.randbytes(1000) for _ in range(keys // 100)})
    known = set(files.content)
    take(backend, files, 2, 1)
    uploaded = sum(len(data) for path, data in files.content.items() if path not in known)
    assert uploaded < 0.05 * before


_PROGRAM = """
import os, pathlib, sys
from penstock.runtime.io.storage import open_storage
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.handles import *
sys.path.insert(0, sys.argv[1])
from rocksdb_setup import *
import itertools, pickle
place, phase, size = pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
numbers = itertools.count(10**9 if phase == "again" else 0)
storage = open_storage(str(place / "storage"), create=True)
files = StateFiles(storage, lambda: f"shared/1-1-op-0-{next(numbers)}")
backend = opened(memory=256 * MIB, place=place)
keys = size // 4000
value = lambda n, version: (n * 8 + version).to_bytes(8) + os.urandom(3992)
if phase == "first":
    for start in range(0, keys, 1000):
        put(backend, {n: value(n, 1) for n in range(start, min(keys, start + 1000))})
    handle = backend.snapshot(1, -1).finish(files)
    (place / "handle").write_bytes(pickle.dumps(handle))
else:
    backend.restore([pickle.loads((place / "handle").read_bytes())], files, 1)
    entries = backend.table("t").entries
    for n in range(0, keys, max(1, keys // 20000)):
        assert entries[n][:8] == (n * 8 + 1).to_bytes(8), n
        entries[n] = value(n, 2)
        backend.table("t").changed.add(n)
    handle = backend.snapshot(2, 1).finish(files)
peak = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024, sum(f.size for f in handle.files), flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    "size", [1 << 26, pytest.param(4 * GIB, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_state_of_four_gigabytes_fits_a_process_of_one_and_survives_its_death(
    size: int, tmp_path: Path
) -> None:
    """Peak of resident memory, block cache and write buffers included, as the kernel has it."""
    for phase in ("first", "again"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(HERE), str(tmp_path), phase, str(size)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr[-2000:]
        peak, stored = map(int, done.stdout.split())
        assert peak < GIB, f"{phase}: {peak:,} bytes resident"
        assert stored > 0.9 * size
