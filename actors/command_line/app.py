"""`penstock list | status | logs | gc | --version`, and the entry point of all commands.

`list`, `status`, `logs` and `gc` first join the cluster at `--address` or `RAY_ADDRESS`, by default the
cluster on this machine. With `--storage` and without `--address`, `list` and `status` need no cluster. An
error of Penstock or Ray prints one line on stderr, and the exit code is 1.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Annotated, Final

import ray
import typer

from penstock._version import __version__
from penstock.actors.client.garbage import collect
from penstock.actors.client.interrupts import EXIT_CODE
from penstock.actors.client.jobs import join, known_jobs
from penstock.actors.client.logs import LogReader
from penstock.actors.command_line.cancel import cancel
from penstock.actors.command_line.common import (
    AddressOption,
    JobArgument,
    JsonOption,
    StorageOption,
    named_job,
    print_json,
    show,
    warn,
)
from penstock.actors.command_line.doctor import doctor
from penstock.actors.command_line.kafka import kafka
from penstock.actors.command_line.monitoring import metrics
from penstock.actors.command_line.snapshots import register
from penstock.actors.command_line.submit import OWN_OPTIONS, submit
from penstock.actors.command_line.upgrade import upgrade
from penstock.actors.command_line.views import jobs_table, status_view
from penstock.actors.command_line.web import ui
from penstock.actors.shared.actor_calls import ray_text
from penstock.runtime.error_text import escaped
from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.snapshot.plain_values import to_plain

_POLL: Final = 0.5

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Show, save, rescale and end Penstock's jobs on a Ray cluster."""


@app.command("list")
def list_jobs(
    address: AddressOption = None, storage: StorageOption = None, as_json: JsonOption = False
) -> None:
    """List all jobs, oldest first.

    Lists jobs that the cluster knows; with --storage also ended jobs whose report is in that storage.
    """
    alone = join(storage, address)
    if alone is not None:
        warn(f"{alone}. Listing the ended jobs in {storage}")
    known = known_jobs(storage)
    if as_json:
        print_json(
            [{**job.report.to_dict(), "state": job.state, "problem": job.problem or None} for job in known]
        )
    elif known:
        show(jobs_table(job for job in known if not job.problem))
        for job in known:
            if job.problem:
                print(f"{job.report.job_id}: unreadable: {escaped(job.problem)}")
    else:
        print("no jobs")


@app.command()
def status(
    job: JobArgument,
    address: AddressOption = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a job: state, history, operators, checkpoints."""
    report = named_job(job, address, storage).report()
    if as_json:
        print_json(report.to_dict())
    else:
        show(*status_view(report))


@app.command()
def logs(
    job: JobArgument,
    operator: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Show only the chain of this operator, or `job-master`, or `ray`."),
    ] = None,
    subtask: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show only this subtask, counted from 0.")
    ] = None,
    tail: Annotated[int | None, typer.Option(metavar="N", min=0, help="Show only the last N lines.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines until the job ends.")
    ] = False,
    address: AddressOption = None,
) -> None:
    """Print the output and the log of a job. Each line has its time (UTC), and its chain and subtask."""
    handle = named_job(job, address)
    reader = handle.log_reader(operator, subtask)
    _print_lines(reader, tail)
    while follow:
        ended = handle.status().is_terminal
        _print_lines(reader)
        if ended:
            return
        time.sleep(_POLL)


@app.command()
def gc(
    older_than: Annotated[
        str,
        typer.Option(metavar="TIME", help="Minimum time since the job's end: 90s, 30m, 12h, 7d."),
    ] = "7d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete the records and the printed lines of ended jobs from the cluster.

    If an upgrade of such a job was interrupted, it can no longer be repeated: the saved program of the job is
    deleted, too. Checkpoints and savepoints are never touched. `penstock status --storage` still shows a job
    whose report is in that storage.
    """
    seconds = _seconds(older_than)
    join(None, address)
    done = collect(seconds, time.time(), dry_run=dry_run)
    if as_json:
        print_json(to_plain(done))
        return
    jobs = len(done.jobs) + len(done.unknown_jobs)
    print(
        f"{'would delete' if dry_run else 'deleted'} the leftovers of {jobs} job(s): "
        f"{done.records} record(s), {done.files} log file(s) of {done.bytes:,} B"
    )
    for job_id in done.jobs:
        program = " (and the program that an upgrade has kept)" if job_id in done.kept_programs else ""
        print(f"  {job_id}{program}")
    for job_id in done.unknown_jobs:
        print(f"  {job_id} (the cluster no longer knows this job; only log files)")
    if done.silent_nodes:
        silent = ", ".join(done.silent_nodes)
        warn(f"no answer from node(s) {silent}: run the command again to delete their files")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if found is None:
        msg = f"--older-than {text!r}: give a number and its unit (s, m, h or d), such as 12h or 7d"
        raise ConfigurationError(msg)
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


register(app)
app.command()(cancel)
app.command()(doctor)
app.command(context_settings=OWN_OPTIONS)(submit)
app.command(context_settings=OWN_OPTIONS)(upgrade)
app.command()(ui)
app.add_typer(metrics, name="metrics")
app.add_typer(kafka, name="kafka")


def main() -> None:
    try:
        app()
    except BrokenPipeError:  # `penstock logs ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (PenstockError, ray.exceptions.RayError) as error:
        is_of_ray = isinstance(error, ray.exceptions.RayError)
        warn(escaped(" ".join((ray_text(error) if is_of_ray else str(error)).split())))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(EXIT_CODE)


def _print_lines(reader: LogReader, tail: int | None = None) -> None:
    lines = reader.read()
    for line in lines if tail is None else lines[max(0, len(lines) - tail) :]:
        print(line)
    sys.stdout.flush()
    if reader.foreign_lines:
        warn(f"lines skipped, because no process of the job wrote them: {reader.foreign_lines}")
        reader.foreign_lines = 0
    if reader.refused_files:
        files = f"{len(reader.refused_files)}, such as {escaped(reader.refused_files[0])}"
        warn(f"log files of another user skipped: {files}; run this as the user of the job")
    if reader.silent_nodes:
        warn(f"no answer from node(s) {', '.join(reader.silent_nodes)}: their lines are missing")
