"""`penstock cancel`, which asks before it deletes the only checkpoints of a job."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import typer

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.command_line.common import (
    AddressOption,
    JobArgument,
    JsonOption,
    end_lines,
    end_of,
    named_job,
    print_json,
)
from penstock.actors.shared.job_end import keeps_checkpoints
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.executor import JobStatus

_POLL: Final = 0.1


def cancel(
    job: JobArgument,
    address: AddressOption = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the job's end.")] = 60.0,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before the job's only checkpoints are deleted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """End a job. Output that its sinks have committed stays; the rest is dropped.

    Asks first if it would delete the job's checkpoints and the job has no savepoint.
    """
    handle = named_job(job, address)
    report = handle.report()
    had_ended = report.status.is_terminal
    if not (had_ended or yes) and deletes_only_checkpoints(report):
        _ask(report)
    status = report.status if had_ended else _cancel(handle, timeout)
    if as_json:
        print_json(
            {"job_id": handle.job_id, "status": status.value, "had_ended": had_ended, **end_of(handle)}
        )
    else:
        print(f"job {handle.job_id}{' had already ended' if had_ended else ''}: {status.value}")
        for line in end_lines(handle):
            print(line)


def deletes_only_checkpoints(report: JobReport) -> bool:
    """Whether a cancellation deletes checkpoints, and no checkpoint or savepoint of the job stays."""
    if report.statistics.last_checkpoint_id is None:
        return False
    return not (report.savepoints or keeps_checkpoints(report.settings, JobStatus.CANCELLED))


def is_terminal() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()


def _ask(report: JobReport) -> None:
    what = f"cancelling job {report.job_id} deletes its checkpoints, and it has no savepoint"
    if not is_terminal():
        msg = (
            f"{what}: add --yes to delete them; `penstock stop {report.job_id}` ends the job with a savepoint"
        )
        raise PenstockError(msg)
    typer.confirm(f"{what}. Cancel it?", abort=True, err=True)


def _cancel(handle: RayJobHandle, timeout: float) -> JobStatus:
    handle.cancel()
    deadline = time.monotonic() + timeout
    while not (now := handle.status()).is_terminal:
        if time.monotonic() >= deadline:
            msg = f"job {handle.job_id} is still {now.value} after {timeout:g} s; the cancellation continues"
            raise PenstockError(msg)
        time.sleep(_POLL)
    return now
