"""Every argument that names a place takes a path or a URL, and refuses anything else by its name.

The arguments are found in the signatures of the public modules, so a new one is tried, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from test_durations import STOPPED, Asked, arguments

import penstock
from penstock import cluster, spark, state
from penstock.actors.client import jobs
from penstock.delta import DeltaSink, DeltaSource
from penstock.files import FolderWatch
from penstock.formats import Json

LOCATION = re.compile(r"\bLocations?\b")
#: Names of places.
PLACE = re.compile(r"(^|_)(storage|savepoint|snapshot|folder|directory|path|locations?|base)$|restore_from")
#: Public arguments of such a name that are no places of users.
NO_PLACES = {
    "FileInfo.path": "what a file system returns",
    "FileSink.directory": "a field that json, csv and parquet fill",
    "FileSource.locations": "a field that json, csv, parquet and text fill",
    "FileSystem.create.directory": "what a sink hands to a file system",
    "FileSystem.delete.directory": "what a sink hands to a file system",
    "FileSystem.make_directory.directory": "what a sink hands to a file system",
    "FileSystem.names.directory": "what a sink hands to a file system",
    "FileSystem.partition_files.directory": "what a sink hands to a file system",
    "FileSystem.publish.directory": "what a sink hands to a file system",
    "FileSystem.open_input.path": "what a source hands to a file system",
    "FileSystem.size.path": "what a source hands to a file system",
    "FolderWatch.check_archive.locations": "those of the source",
    "FolderWatch.rest_of.location": "one of the source",
    "OperatorContext.location": "the operator in the job",
    "OperatorHarness.abort_checkpoint.snapshot": "the snapshot itself",
    "OperatorHarness.complete_checkpoint.snapshot": "the snapshot itself",
    "PostgresCdcSource.snapshot": "whether a snapshot of the tables is read",
    "SinkTests.make_world.folder": "what the kit hands to a test",
    "SinkTests.outside.tmp_path": "pytest's own fixture",
    "SourceHarness.complete_checkpoint.snapshot": "the snapshot itself",
    "SourceTests.make_world.folder": "what the kit hands to a test",
    "SourceTests.outside.tmp_path": "pytest's own fixture",
    "WebhookSource.path": "the path of a URL",
    "check_declared.path": "what a snapshot names",
    "check_directory.directory": "what a snapshot names",
}


class NoCluster:
    """In place of a handle's calls and of an executor: raises what it is asked for."""

    def ask(self, method: str, *arguments: Any, of_ended: Any, deadline: Any, request: str = "") -> Any:
        raise Asked(request)

    def submit(self, job: Any, config: Any) -> Any:
        raise Asked(job.restore_from)


def env() -> Any:
    made = penstock.StreamEnvironment(executor=NoCluster())  # type: ignore[arg-type]
    made.from_collection("in", [1]).sink("out", penstock.DiscardSink())
    return made


def handle() -> Any:
    made: Any = cluster.RayJobHandle("none", "none")
    made._master = NoCluster()
    return made


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str | None) -> None:
        raise penstock.DeploymentError

    monkeypatch.setattr(jobs, "join_existing", refuse)


CALLS: dict[str, Callable[..., Any]] = {
    "Checkpointing": lambda storage: penstock.Checkpointing(every=1, storage=storage).storage,
    "RocksDB": lambda folder: penstock.RocksDB(folder=folder).folder,
    **{
        f"{kind}.{form}": getattr(getattr(penstock, kind), form)
        for kind, forms in {
            "FileSink": ("json", "csv", "parquet"),
            "FileSource": ("json", "csv", "parquet", "text"),
        }.items()
        for form in forms
    },
    "FileSink.records": lambda directory: penstock.FileSink.records(directory, Json()),
    "FileSource.records": lambda locations: penstock.FileSource.records(locations, Json()),
    "StreamEnvironment.run": lambda restore_from: env().run(restore_from=restore_from),
    "StreamEnvironment.submit": lambda restore_from: env().submit(restore_from=restore_from),
    "RayJobHandle.savepoint": lambda savepoint: handle().savepoint(savepoint),
    "RayJobHandle.take_savepoint": lambda savepoint: handle().take_savepoint(savepoint),
    "RayJobHandle.stop": lambda savepoint: handle().stop(savepoint),
    "job": lambda storage: penstock.job("none", storage=storage),
    "jobs": lambda storage: penstock.jobs(storage=storage),
    "read_state": lambda snapshot: state.read_state(snapshot, "op"),
    "write_state": lambda savepoint="/none", base="/none": state.write_state(
        pa.table({"key": [1], "value": [1]}), savepoint, "op", base=base
    ),
    "DeltaSink": DeltaSink,
    "DeltaSource": DeltaSource,
    "FolderWatch": lambda archive_dir: (
        FolderWatch(60, clean_source="archive", archive_dir=archive_dir).archive_dir
    ),
    "SparkTable": spark.SparkTable,
    "from_structured_streaming": lambda checkpoint_location: spark.from_structured_streaming(
        env(),
        SimpleNamespace(sparkSession=STOPPED),
        checkpoint_location=checkpoint_location,  # type: ignore[arg-type]
    ),
}

LOCATIONS = sorted(
    {(call, argument) for call, argument, annotation in arguments() if LOCATION.search(annotation)}
)


def outcome(call: str, argument: str, value: Any) -> object:
    """The result of a call, or its error behind the check of the argument."""
    try:
        return CALLS[call](**{argument: value})
    except (Asked, penstock.PenstockError) as error:
        return str(error)


def test_every_argument_that_is_a_place_is_tried() -> None:
    assert {call for call, _ in LOCATIONS} == set(CALLS)


def test_an_argument_with_the_name_of_a_place_says_what_it_is() -> None:
    named = {f"{call}.{name}" for call, name, kind in arguments() if PLACE.search(name)}
    assert named - {f"{call}.{name}" for call, name in LOCATIONS} == set(NO_PLACES)


@pytest.mark.parametrize(("call", "argument"), LOCATIONS)
def test_a_path_and_its_text_mean_the_same(call: str, argument: str, tmp_path: Path) -> None:
    place = tmp_path / "missing"
    taken = outcome(call, argument, place)
    assert repr(taken) == repr(outcome(call, argument, str(place)))
    assert f"{argument}={place!r}: give" not in str(taken)


@pytest.mark.parametrize("value", [7, b"/data", " ", Path], ids=repr)
@pytest.mark.parametrize(("call", "argument"), LOCATIONS)
def test_what_is_no_place_is_refused_by_the_name_of_its_argument(
    call: str, argument: str, value: Any
) -> None:
    with pytest.raises(penstock.PenstockError, match=rf"\b{argument}={re.escape(repr(value))}: give "):
        CALLS[call](**{argument: value})
