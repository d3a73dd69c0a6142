"""Options that commands share, the search for a job, and printing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.jobs import find_job, join
from penstock.runtime.error_text import escaped
from penstock.runtime.errors import ConfigurationError

#: Columns of output to a file or pipe, so that nothing is cut.
_WIDE: Final = 240

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's id, the beginning of its id, or its name.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Ray cluster to join. Default: RAY_ADDRESS, else the cluster on this machine.",
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Checkpoint storage (path or URL) to search for ended jobs as well. Without --address, no "
        "cluster has to run.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="Maximum time to wait. Default: no limit."),
]
AllowNonRestoredOption = Annotated[
    bool,
    typer.Option(
        "--allow-non-restored-state", help="Drop the state of operators that the job does not have."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def named_job(job: str, address: str | None, storage: str | None = None) -> RayJobHandle:
    """Return the handle of the job that a command's arguments name."""
    join(storage, address)
    if not job.strip():
        msg = "JOB is empty: give a job's id, the beginning of an id, or a job's name"
        raise ConfigurationError(msg)
    return find_job(job, storage)


def end_of(handle: RayJobHandle) -> dict[str, str | None]:
    """Snapshots that an ended job has left, for JSON: `kept`, `deleted`, and the `command` to continue."""
    end = handle.report().end
    found = {} if end is None else end.to_dict()
    return {name: found.get(name) for name in ("kept", "deleted", "command")}


def end_lines(handle: RayJobHandle) -> Iterator[str]:
    """Snapshots that an ended job has left, as lines for a terminal."""
    end = handle.report().end
    return map(escaped, () if end is None else end.lines())


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def warn(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr)


def show(*parts: RenderableType) -> None:
    """Print to a console, which is wide if the output is not a terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    for part in parts:
        console.print(part)
