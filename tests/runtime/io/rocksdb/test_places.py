"""Folders of databases, their remains, and errors without room or without the package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from rocksdb_setup import Files, opened, put, take

from penstock import Checkpointing, CollectSink, HeapState, RocksDB, StreamEnvironment
from penstock.aggregates import Sum
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError, GraphError, StorageError
from penstock.runtime.graph.executor import check_state_backends
from penstock.runtime.io.rocksdb import database as memory_of_process
from penstock.runtime.io.scratch import ScratchFolder, remove_abandoned


def test_a_backend_leaves_nothing_behind(tmp_path: Path) -> None:
    backend, files = opened(place=tmp_path), Files()
    put(backend, {"a": 1})
    take(backend, files, 1)
    backend.snapshot(2, 1)
    assert len(list(tmp_path.iterdir())) == 1
    backend.close()
    backend.close()
    assert list(tmp_path.iterdir()) == []


def test_linked_files_of_a_checkpoint_that_is_given_up_are_removed(tmp_path: Path) -> None:
    backend = opened(place=tmp_path)
    put(backend, {"a": 1})
    backend.snapshot(1, -1)
    assert len(list(backend._scratch.path.glob("checkpoint-*"))) == 1
    backend.forget(1)
    assert list(backend._scratch.path.glob("checkpoint-*")) == []


def test_what_a_killed_process_has_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from penstock.runtime.io.scratch import ScratchFolder\n"
        "folder = ScratchFolder(pathlib.Path(sys.argv[1]))\n"
        "print(folder.path, flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    living = ScratchFolder(tmp_path)
    assert left.exists()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    ScratchFolder(tmp_path).remove()
    assert not left.exists()
    assert living.path.exists()
    assert remove_abandoned(living.path.parent) == 0
    living.remove()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"no scratch space for RocksDB in .*file.*folder="):
        opened(place=tmp_path / "file")


def test_a_full_disk_is_said_and_loses_nothing_that_is_saved(tmp_path: Path) -> None:
    """The disk of another process takes no file above a megabyte."""
    program = (
        "import pathlib, resource, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from rocksdb_setup import *\n"
        "backend, files = opened(place=pathlib.Path(sys.argv[1])), Files()\n"
        "put(backend, {'saved': 1})\n"
        "handle = take(backend, files, 1)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
        "import os\n"
        "try:\n"
        "    for n in range(3000):\n"
        "        put(backend, {n: os.urandom(2000)})\n"
        "    backend.snapshot(2, 1)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "print(held(restored([handle], files)))\n"
        "close_all()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    failure, saved = done.stdout.strip().splitlines()
    assert failure.startswith("StorageError the RocksDB in ")
    assert "Free space on this disk" in failure
    assert saved == "{'saved': 1}"


def test_a_process_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_of_process, "_ONE", [])
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[rocksdb\]'"):
        opened()


def job(**settings: object) -> StreamEnvironment:
    env = StreamEnvironment("j", checkpointing=Checkpointing(every=10), **settings)  # type: ignore[arg-type]
    words = env.from_collection("words", [{"w": "a", "n": 1}])
    words.key_by("w").aggregate("sums", total=Sum("n")).sink("out", CollectSink([].append))  # type: ignore[arg-type]
    words.key_by(lambda row: row["w"]).reduce("longest", max).sink("longest-out", CollectSink([].append))  # type: ignore[arg-type]
    return env


def test_columns_on_rocksdb_are_refused_before_anything_runs() -> None:
    what = r"test_places.py:\d+.*operator 'sums', .*state in columns.*give it state_backend=HeapState\(\)"
    env = job(state_backend=RocksDB())
    with pytest.raises(GraphError, match=what):
        check_state_backends(env.build(), env.config)


def test_a_missing_package_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("penstock.runtime.graph.executor.version", missing)
    env = StreamEnvironment("j")
    words = env.from_collection("words", ["a"]).key_by(str)
    words.reduce("longest", max, state_backend=RocksDB()).sink("out", CollectSink([].append))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"'longest' keeps its state in RocksDB.*\[rocksdb\]"):
        check_state_backends(env.build(), env.config)
    check_state_backends(job().build(), JobConfig())


def test_an_operator_may_have_another_backend_than_its_job() -> None:
    env = StreamEnvironment("j", state_backend=RocksDB())
    words = env.from_collection("words", ["a"]).key_by(str)
    words.reduce("on-heap", max, state_backend=HeapState()).sink("out", CollectSink([].append))  # type: ignore[arg-type]
    (spec,) = (o for v in env.build().vertices for o in v.operators if o.id == "on-heap")
    assert spec.state_backend == HeapState()
    assert env.config.state_backend == RocksDB()


def test_a_backend_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"state_backend='rocksdb': give HeapState\(...\) or RocksDB"
    ):
        JobConfig(state_backend="rocksdb")  # type: ignore[arg-type]
    stream = StreamEnvironment("j").from_collection("words", ["a"])
    with pytest.raises(GraphError, match=r"map: state_backend is for operators with keyed state"):
        stream.map(str, state_backend=RocksDB())
    with pytest.raises(GraphError, match=r"reduce: state_backend must be HeapState\(\) or RocksDB"):
        stream.key_by(str).reduce("r", max, state_backend="rocksdb")  # type: ignore[arg-type]
    made = JobConfig.from_mapping({"state_backend": {"kind": "rocksdb", "memory": 1 << 24}})
    assert made.state_backend == RocksDB(memory=1 << 24)
    with pytest.raises(ConfigurationError, match="did you mean 'rocksdb'"):
        JobConfig.from_mapping({"state_backend": {"kind": "rocksbd"}})
