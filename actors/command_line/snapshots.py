"""`penstock checkpoint | savepoint | stop | checkpoints | rescale | inspect | restore`."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated

import typer

from penstock.actors.client.program import run_program
from penstock.actors.command_line.common import (
    AddressOption,
    AllowNonRestoredOption,
    JobArgument,
    JsonOption,
    StorageOption,
    TimeoutOption,
    end_lines,
    end_of,
    named_job,
    print_json,
    show,
)
from penstock.actors.command_line.submit import restoring
from penstock.actors.command_line.views import checkpoints_view, snapshot_view
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.error_text import escaped
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.storage import absolute_location, open_location
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.metadata import read_state
from penstock.runtime.state_processor.inspection import inspect_snapshot

SavepointArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SAVEPOINT]",
        help="Folder (path or URL that all nodes see) in which the savepoint gets a folder of its own. "
        "Default: the job's checkpoint storage.",
    ),
]
SnapshotArgument = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        help="Path or URL of a savepoint or a checkpoint (<storage>/<job>/chk-...), or <storage>/<job> for "
        "a job's newest snapshot.",
    ),
]


def checkpoint(
    job: JobArgument,
    full: Annotated[
        bool, typer.Option("--full", help="Write all state anew; only finished subtasks keep older files.")
    ] = False,
    timeout: TimeoutOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a checkpoint now, and wait until it is complete. Prints its number, size, duration and URL."""
    taken = named_job(job, address).checkpoint(full=full, timeout=timeout)
    if as_json:
        print_json(taken.to_dict())
        return
    sizes = f"{taken.size:,} B, {taken.written_bytes:,} B of it new"
    print(escaped(f"checkpoint {taken.checkpoint_id} took {taken.duration:.2f} s: {sizes}, in {taken.path}"))


def savepoint(
    job: JobArgument,
    savepoint: SavepointArgument = None,
    timeout: TimeoutOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a savepoint; the job continues. Prints its URL."""
    handle = named_job(job, address)
    url = handle.savepoint(savepoint, timeout=timeout)
    if as_json:
        print_json({"job_id": handle.job_id, "savepoint": url})
    else:
        print(escaped(url))


def stop(
    job: JobArgument,
    savepoint: SavepointArgument = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Advance event time to its end first, for a job that will not be resumed."
        ),
    ] = False,
    timeout: TimeoutOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a savepoint and end the job. Everything that it covers is committed. Prints its URL."""
    handle = named_job(job, address)
    url = handle.stop(savepoint, drain=drain, timeout=timeout)
    if as_json:
        print_json({"job_id": handle.job_id, "savepoint": url, "drained": drain, **end_of(handle)})
    else:
        print(escaped(url))
        sys.stdout.flush()
        for line in end_lines(handle):
            print(line, file=sys.stderr)


def checkpoints(
    job: JobArgument,
    address: AddressOption = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last checkpoints and savepoints, and the subtasks' measurements in the newest complete one."""
    details = named_job(job, address, storage).checkpoints()
    if as_json:
        print_json([taken.to_dict() for taken in details])
    elif details:
        show(*checkpoints_view(details))
    else:
        print("no checkpoints")


def rescale(
    job: JobArgument,
    parallelism: Annotated[
        list[str], typer.Argument(metavar="OPERATOR=N...", help="Operators and their new parallelism.")
    ],
    timeout: TimeoutOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the parallelism of a running job: save its state and deploy its subtasks again."""
    wanted = dict(map(_assignment, parallelism))
    begun = time.monotonic()
    handle = named_job(job, address)
    handle.rescale(wanted, timeout=timeout)
    seconds = time.monotonic() - begun
    if as_json:
        print_json({"job_id": handle.job_id, "parallelism": wanted, "seconds": seconds})
    else:
        print(f"job {handle.job_id} runs with {', '.join(parallelism)} after {seconds:.1f} s")


def inspect(
    snapshot: SnapshotArgument,
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Import the snapshot's modules and unpickle its values. Only for snapshots that you trust.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a snapshot and the time that each subtask took for it. Runs no job."""
    opened = open_snapshot(absolute_location("snapshot", snapshot), open_location)
    codec = ValueCodec(allow_pickle=allow_pickle)
    summary = inspect_snapshot(opened.checkpoint, lambda handle: read_state(opened.storage, handle), codec)
    if as_json:
        print_json(summary.to_dict())
    else:
        show(*snapshot_view(summary))


def restore(
    snapshot: SnapshotArgument,
    program: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="Program that starts the job: `python job.py ...`."),
    ],
    allow_non_restored_state: AllowNonRestoredOption = False,
) -> None:
    """Run a program whose job starts from a snapshot.

    A snapshot that the program names itself takes precedence. With `ray job submit`, put this command
    before the program: `-- penstock restore SNAPSHOT python job.py`.
    """
    restored = restoring(snapshot, allow_non_restored_state=allow_non_restored_state)
    sys.exit(run_program(program, {**os.environ, **restored}))


def register(app: typer.Typer) -> None:
    for command in (checkpoint, savepoint, stop, checkpoints, rescale, inspect):
        app.command()(command)
    app.command(context_settings={"allow_interspersed_args": False})(restore)


def _assignment(text: str) -> tuple[str, int]:
    operator, _, number = text.rpartition("=")
    if not operator or not number.isdecimal():
        msg = f"{text!r}: give OPERATOR=N, an operator's id and its new parallelism"
        raise ConfigurationError(msg)
    return operator, int(number)
