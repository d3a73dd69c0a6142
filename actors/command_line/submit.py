"""`penstock submit`: runs a program on the cluster, and waits until its job runs."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import typer

from penstock.actors.client.cluster import join_existing
from penstock.actors.client.executor import ALLOW_NON_RESTORED_STATE, RESTORE_FROM
from penstock.actors.client.master_calls import Deadline
from penstock.actors.client.submissions import Submissions, program_of, python_here
from penstock.actors.command_line.common import (
    AddressOption,
    AllowNonRestoredOption,
    JsonOption,
    TimeoutOption,
    print_json,
    warn,
)
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.error_text import escaped
from penstock.runtime.errors import ConfigurationError, JobFailedError
from penstock.runtime.io.storage import absolute_location, open_location

ProgramArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="PROGRAM [ARGS]...", help="A file `job.py` with its arguments, or a command with its own."
    ),
]
WorkingDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder that is shipped to the cluster. Default: the folder of the file PROGRAM, or the "
        "current folder for a command.",
    ),
]
#: Settings of a command whose last argument is a program: options after it belong to the program.
OWN_OPTIONS: Final = {"allow_interspersed_args": False}


def submit(
    program: ProgramArgument,
    working_dir: WorkingDirOption = None,
    restore_from: Annotated[
        str | None,
        typer.Option(metavar="SNAPSHOT", help="Path or URL of the snapshot that the job starts from."),
    ] = None,
    allow_non_restored_state: AllowNonRestoredOption = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until the job runs.")] = False,
    timeout: TimeoutOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a program on the cluster (`ray job submit`), and wait until its job runs.

    Prints the commands that show and end the job. The program continues when this command ends.
    """
    environment = {}
    if restore_from is not None:
        environment = restoring(restore_from, allow_non_restored_state=allow_non_restored_state)
    elif allow_non_restored_state:
        msg = "--allow-non-restored-state has no effect without --restore-from"
        raise ConfigurationError(msg)
    join_existing(address)
    submissions = Submissions()
    made = program_of(program, working_dir, python_here())
    submission_id = submissions.submit(made, environment, {})
    if not as_json:
        print(f"program {submission_id}: {escaped(made.entrypoint)}", flush=True)
    report = None
    if not no_wait:
        deadline = Deadline(timeout, "", f"it continues: `ray job logs {submission_id}` shows its output")
        report = wait_for_job(submissions, submission_id, deadline)
    if as_json:
        job = {} if report is None else {"job_id": report.job_id, "status": report.status.value}
        print_json({"submission_id": submission_id, **job})
    elif report is not None:
        show_job(report)


def wait_for_job(submissions: Submissions, submission_id: str, deadline: Deadline) -> JobReport:
    """Wait until the job of a program runs; prints the last lines of a program that has failed."""
    try:
        return submissions.wait_for_job(submission_id, deadline)
    except JobFailedError as error:
        show_notes(error)
        raise
    except KeyboardInterrupt:
        warn(f"program {submission_id} was not stopped and continues: `ray job stop {submission_id}`")
        raise


def show_notes(error: BaseException) -> None:
    """Print the last lines of a failed program."""
    for line in getattr(error, "__notes__", ()):
        print(escaped(line), file=sys.stderr)


def restoring(snapshot: str, *, allow_non_restored_state: bool) -> dict[str, str]:
    """The environment of a program whose job starts from a snapshot.

    Raises:
        RestoreError: There is no such snapshot, or it is not complete.
    """
    url = absolute_location("snapshot", snapshot)
    open_snapshot(url, open_location)
    return {RESTORE_FROM: url, ALLOW_NON_RESTORED_STATE: "1" if allow_non_restored_state else "0"}


def show_job(report: JobReport) -> None:
    """Print a job, and the commands that show and end it."""
    job = quote(report.job_id)
    print(f"job {report.job_id} ({escaped(report.name)}): {report.status.value}")
    if report.restored_from is not None:
        print(escaped(f"restored from: {report.restored_from}"))
    print(f"its page: penstock ui --job {job}")
    print(f"to stop it: penstock stop {job} (with a savepoint), or penstock cancel {job}")
