"""`penstock upgrade`: replaces the program of a job, and goes back if the new one fails."""

from __future__ import annotations

import sys
from shlex import join
from typing import Annotated, Final, NoReturn

import typer

from penstock.actors.client.master_calls import Deadline
from penstock.actors.client.submissions import Submissions, program_of, python_here
from penstock.actors.client.upgrade import Upgrade
from penstock.actors.command_line.common import (
    AddressOption,
    AllowNonRestoredOption,
    JobArgument,
    JsonOption,
    named_job,
    print_json,
    warn,
)
from penstock.actors.command_line.submit import ProgramArgument, WorkingDirOption, show_job, show_notes
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.error_text import escaped
from penstock.runtime.errors import DeploymentError, JobFailedError, JobTimeoutError, PenstockError

_PATIENCE: Final = 600.0


def upgrade(
    job: JobArgument,
    program: ProgramArgument,
    working_dir: WorkingDirOption = None,
    savepoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder for the savepoint. Default: the job's checkpoint storage."
        ),
    ] = None,
    allow_non_restored_state: AllowNonRestoredOption = False,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Maximum time from the submission to the first checkpoint. Then the old program is started.",
        ),
    ] = _PATIENCE,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the program of a job: stop it with a savepoint, and start PROGRAM from the savepoint.

    Waits for the first checkpoint of the new job. If the new program fails before that, starts the old one
    again from the savepoint, and exits with 1. A command that was killed can be repeated.
    """
    handle = named_job(job, address)
    submissions = Submissions()
    made = program_of(program, working_dir, python_here())

    def say(text: str) -> None:
        print(escaped(text), file=sys.stderr if as_json else sys.stdout, flush=True)

    options = [*_option("--working-dir", working_dir), *_option("--savepoint", savepoint)]
    options += [*_option("--address", address), "--timeout", f"{timeout:g}"]
    options += ["--allow-non-restored-state"] if allow_non_restored_state else []
    repeat = join(["penstock", "upgrade", *options, handle.job_id, *program])
    say(f"if this command is killed, repeat: {repeat}")
    steps = Upgrade(handle, submissions, say)
    try:
        if not steps.is_going_back:
            submissions.ship(made)  # a program that can't be uploaded does not stop the job
        saved = steps.stop(savepoint, None)
        if steps.is_going_back:
            _go_back(steps, handle.job_id, saved, as_json=as_json)
        try:
            submission_id = steps.start(made, saved, allow_non_restored_state=allow_non_restored_state)
            deadline = Deadline(timeout, "", "the upgrade goes back")
            report = steps.first_checkpoint(submission_id, saved, deadline)
        except (JobFailedError, JobTimeoutError, DeploymentError) as error:
            show_notes(error)
            print(escaped(str(error)), file=sys.stderr)
            _go_back(steps, handle.job_id, saved, as_json=as_json)
    except KeyboardInterrupt:
        warn(escaped(f"the upgrade is not complete; to continue: {repeat}"))
        raise
    _show(report, as_json=as_json, has_gone_back=False)


def _go_back(steps: Upgrade, job_id: str, savepoint: str, *, as_json: bool) -> NoReturn:
    back = steps.go_back(savepoint)
    _show(back, as_json=as_json, has_gone_back=True)
    msg = f"job {job_id} was not upgraded; job {back.job_id} continues with the old program"
    raise PenstockError(msg)


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def _show(report: JobReport, *, as_json: bool, has_gone_back: bool) -> None:
    if as_json:
        what = {"job_id": report.job_id, "status": report.status.value, "savepoint": report.restored_from}
        print_json({**what, "has_gone_back": has_gone_back})
    else:
        show_job(report)
