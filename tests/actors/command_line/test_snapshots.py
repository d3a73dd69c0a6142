"""`penstock inspect` and `penstock restore` without a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from simulated_jobs.scripted_job import ScriptedJob
from typer.testing import CliRunner

from penstock.actors.client.executor import with_restore
from penstock.actors.command_line.app import app
from penstock.runtime.checkpoint.coordinator.completion import complete_elsewhere
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError, RestoreError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    MasterState,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
)
from penstock.runtime.snapshot.storage import MemoryStorage

SHOWS_ENVIRONMENT = (
    "import os, sys; print(os.environ['PENSTOCK_RESTORE_FROM'], "
    "os.environ['PENSTOCK_ALLOW_NON_RESTORED_STATE'], *sys.argv[1:]); sys.exit(3)"
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A savepoint on disk."""
    env = StreamEnvironment("count", parallelism=2)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=1_000_000))
    numbers.key_by(lambda i: i % 300).reduce("largest", max).sink("out", CollectSink(InMemoryCollector()))
    job = ScriptedJob(
        build_execution_graph(env.build()),
        JobConfig(checkpointing=Checkpointing(every=1)),
        MemoryStorage(),
        2,
        open_location=open_location,
    )
    job.run(60)
    saved = Path(job.take_savepoint(str(tmp_path / "saved")))
    return saved.rename(tmp_path / "under another name")


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_savepoint_is_inspected_without_a_cluster(saved: Path) -> None:
    shown = run("inspect", saved)
    for expected in (f"location   {saved}", "positions of numbers", "IndexRange("):
        assert expected in shown
    (line,) = [line.split() for line in shown.splitlines() if line.startswith("largest")]
    assert line[:3] == ["largest", "2", "128"]
    assert line[-3:] == ["reduce", "keyed", "300"]
    told = json.loads(run("inspect", saved / "metadata", "--json"))
    assert (told["kind"], told["location"]) == ("savepoint", str(saved))
    operators = {operator["operator_id"]: operator for operator in told["operators"]}
    assert operators["largest"]["states"][0]["entries"] == 300
    assert operators["numbers"]["parallelism"] == 2


def test_a_snapshot_of_strangers_moves_no_cursor_and_sets_no_title(tmp_path: Path) -> None:
    name = "\x1b]0;PWN\x07\x1b[31m\x9b2Jsum\u202e\r\n[red]x[/red]"
    held = coordinator_state((True, [FileSplit(name, 9, 0, 9)]))
    part = OperatorSubtaskState((), (OperatorStateHandle(name, RedistributionMode.UNION, held, 1),))
    operators = {name: OperatorState(name, 1, 128, {0: part}, coordinator=held)}
    masters = (MasterState(name, b"four"),)
    taken = CompletedCheckpoint(3, 1, SnapshotKind.SAVEPOINT, operators, 0.0, 1.0, master_states=masters)
    complete_elsewhere(open_location(str(tmp_path), create=True), taken)

    shown = run("inspect", tmp_path)
    assert shown.count(r"\x1b]0;PWN\x07\x1b[31m\x9b2Jsum\u202e\r") >= 3
    assert not [sign for sign in shown if sign != "\n" and (not sign.isprintable())]
    assert "[red]x[/red]" in shown


def coordinator_state(state: Any) -> InlineHandle:
    """A coordinator's part of a checkpoint without events in flight."""
    codec = ValueCodec()
    return InlineHandle(codec.dumps((codec.dumps(state), [])))


def test_coordinators_and_master_hooks_are_shown_without_unpickling_them(tmp_path: Path) -> None:
    splits = coordinator_state((True, [FileSplit("a.txt", 9, 0, 9), FileSplit("b.txt", 5, 0, 5)]))
    pickled = coordinator_state((True, [Random(1)]))
    operators = {
        name: OperatorState(name, 2, 128, coordinator=held)
        for name, held in (("files", splits), ("others", pickled))
    }
    masters = (MasterState("outside [queue]", b"four"),)
    size = splits.size + pickled.size + 4
    kind = SnapshotKind.SAVEPOINT
    taken = CompletedCheckpoint(3, 1, kind, operators, 0.0, 1.0, size=size, master_states=masters)
    complete_elsewhere(open_location(str(tmp_path), create=True), taken)

    shown = run("inspect", tmp_path)
    for expected in (
        f"{size:,} B; files besides the metadata: 0",
        f"coordinator of files: {splits.size} B, splits that no reader has: 2",
        "FileSplit(path='b.txt'",
        f"coordinator of others: {pickled.size:,} B\n",
        f"{pickled.size} bytes of a type that this program does not know",
    ):
        assert expected in shown
    assert ["outside", "[queue]", "4", "B"] in [line.split() for line in shown.splitlines()]
    told = json.loads(run("inspect", tmp_path, "--json"))
    assert [held["size"] for held in told["operators"]] == [splits.size, pickled.size]
    assert told["operators"][0]["coordinator"]["unassigned"] == 2
    assert told["masters"] == [{"identifier": "outside [queue]", "size": 4}]
    assert told["size"] == size
    assert "splits that no reader has: 1" in run("inspect", tmp_path, "--allow-pickle")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nothing", "there is no snapshot at .*/nothing: .*/nothing is not a folder"),
        ("", "there is no snapshot at .*name the folder of a savepoint"),
    ],
)
def test_an_error_names_the_place_without_a_snapshot(saved: Path, place: str, message: str) -> None:
    for command in (["inspect"], ["restore"]):
        more = ["python"] if command == ["restore"] else []
        with pytest.raises(RestoreError, match=message):
            run(*command, saved.parent / place, *more)


def test_a_program_gets_the_snapshot_of_its_job_in_its_environment(
    saved: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["restore", "--allow-non-restored-state", str(saved), sys.executable, "-c", SHOWS_ENVIRONMENT]
    done = CliRunner().invoke(app, [*command, "--input", "x"])
    assert done.exit_code == 3
    assert capfd.readouterr().out == f"{saved} 1 --input x\n"


def test_an_error_names_a_missing_program(saved: Path) -> None:
    with pytest.raises(ConfigurationError, match="'no-such-program' can't be run"):
        run("restore", saved, "no-such-program")


def test_a_program_without_its_interpreter_is_answered_with_the_whole_command(saved: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'job\.py' can't be run: .*such as python job.py"):
        run("restore", saved, "job.py")


def test_a_job_takes_the_snapshot_of_its_environment_unless_it_names_one(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_restore(JobGraph("j", ())).restore_from is None
    monkeypatch.setenv("PENSTOCK_RESTORE_FROM", str(saved))
    assert with_restore(JobGraph("j", ())).restore_from == str(saved)
    assert not with_restore(JobGraph("j", ())).allow_non_restored_state
    monkeypatch.setenv("PENSTOCK_ALLOW_NON_RESTORED_STATE", "1")
    assert with_restore(JobGraph("j", ())).allow_non_restored_state
    monkeypatch.chdir(saved.parent)
    own = with_restore(JobGraph("j", (), restore_from="mine"))
    assert (own.restore_from, own.allow_non_restored_state) == (str(saved.parent / "mine"), False)


@pytest.mark.parametrize("text", ["count", "count=", "=3", "count=x", "count=-1"])
def test_a_parallelism_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="give OPERATOR=N"):
        run("rescale", "job", "--", text)
