"""What all commands of the command line share: how a job is named and found, and how things are printed."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer
from rich.console import Console

from penstock.actors.client.cluster import join_existing
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.jobs import find as find_job
from penstock.runtime.errors import ConfigurationError, DeploymentError

#: Columns of what is not read on a terminal: nothing is cut there.
_WIDE: Final = 240

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's id, the beginning of one, or its name.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="The Ray cluster; else RAY_ADDRESS, else the one on this machine."
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A checkpoint storage (path or URL): also look there for jobs that have ended. No cluster need "
        "run then.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="How long to wait at most; by default for ever."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def join(address: str | None, storage: str | None) -> DeploymentError | None:
    """Join the cluster that somebody means.

    Returns:
        Why there is none, when a storage was named and no cluster: the storage alone is read then.

    Raises:
        DeploymentError: There is no such cluster.
    """
    try:
        join_existing(address)
    except DeploymentError as error:
        if storage is None or address is not None:
            raise
        return error
    return None


def find(job: str, address: str | None, storage: str | None = None) -> RayJobHandle:
    """The job that somebody means, on the cluster and in the storage that they mean.

    Raises:
        ConfigurationError: There is no such job, or there are several.
        DeploymentError: There is no such cluster.
        StorageError: The storage can't be read.
    """
    join(address, storage)
    if not job.strip():
        msg = "JOB is empty: give a job's id, the beginning of one, or its name"
        raise ConfigurationError(msg)
    return find_job(job, storage)


def print_json(value: object) -> None:
    """For programs."""
    print(json.dumps(value, indent=2))


def console() -> Console:
    """For people; on no terminal as wide as it takes."""
    made = Console(highlight=False, markup=False, emoji=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_WIDE)
