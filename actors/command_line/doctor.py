"""`penstock doctor`: checks the environment, a checkpoint storage, and that a local cluster runs a job."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from operator import add
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import ray
import typer

from penstock.actors.client.cluster import start_local
from penstock.actors.client.executor import default_storage
from penstock.actors.command_line.checks import CheckResult, CheckStatus, as_plain, check_environment
from penstock.actors.command_line.common import JsonOption, print_json
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.error_text import error_text, escaped
from penstock.runtime.errors import ObjectExistsError, PenstockError, StorageError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.io.storage import ObjectStorage, absolute_location, open_storage
from penstock.runtime.redaction import redacted

_STORAGE_TIMEOUT: Final = 30.0
_JOB_TIMEOUT: Final = 120.0
_NUMBERS: Final = 1_000


def doctor(
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Path or URL of a checkpoint storage for jobs. Default: the storage of jobs that name none.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Start no cluster, and run no job.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that jobs can run here: Python, Ray, a storage, memory, optional packages, and a small job.

    Prints a line for each check, with advice after a failure. The exit code is 0 if jobs can run, else 1.
    """
    results = []
    for result in _check_all(storage, quick):
        results.append(result)
        if not as_json:
            print(escaped(str(result)), flush=True)
    bad = [r.name for r in results if r.is_required and r.status is not CheckStatus.OK]
    odd = [r.name for r in results if not r.is_required and r.status is CheckStatus.BROKEN]
    if as_json:
        print_json({"can_run": not bad, "checks": as_plain(results)})
        raise typer.Exit(1 if bad else 0)
    if bad:
        msg = f"jobs can't run here: look at {', '.join(bad)}"
        raise PenstockError(msg)
    print(f"jobs can run here; look at {', '.join(odd)}" if odd else "jobs can run here")


def _check_all(storage: str | None, quick: bool) -> Iterator[CheckResult]:
    yield from check_environment()
    yield check_storage(storage)
    if not quick:
        yield check_cluster()


def check_storage(storage: str | None) -> CheckResult:
    """Write, read, list and delete in a checkpoint storage, and check that it creates no object twice.

    The check is required only if the user has named the storage. The file `.penstock` stays, as
    in the storage of each job.
    """
    url, required = storage or default_storage(), storage is not None
    begun = time.monotonic()
    try:
        opened = open_storage(absolute_location("--storage", url), timeout=_STORAGE_TIMEOUT)
        _try(opened, f"penstock-doctor-{secrets.token_hex(8)}/")
    except PenstockError as error:
        return CheckResult("storage", CheckStatus.BROKEN, redacted(str(error)), required)
    text = (
        f"{opened.url}: writes, reads, lists, deletes and creates once, in {time.monotonic() - begun:.2f} s"
    )
    return CheckResult("storage", CheckStatus.OK, text, required)


def _try(storage: ObjectStorage, folder: str) -> None:
    path, data = f"{folder}written", secrets.token_bytes(1024)
    storage.put(path, data, create=True)
    try:
        if storage.get(path) != data or storage.list(folder) != [path]:
            msg = f"{storage.url} does not return what was written. Use a storage that is consistent"
            raise StorageError(msg)
        _require_refusal(storage, path)
    finally:
        storage.delete([path])
    if left := storage.list(folder):
        msg = f"{storage.url} still lists {left[0]} after its deletion. Use a storage that is consistent"
        raise StorageError(msg)


def _require_refusal(storage: ObjectStorage, path: str) -> None:
    try:
        storage.put(path, b"", create=True)
    except ObjectExistsError:
        return
    msg = f"{storage.url} created {path} twice. Use a storage with conditional writes (docs/checkpoints.md)"
    raise StorageError(msg)


def check_cluster() -> CheckResult:
    """Run a job with two chains, in a new local cluster unless this process is in a cluster already."""
    begun, is_own = time.monotonic(), not ray.is_initialized()
    try:
        if is_own:
            start_local()
        with TemporaryDirectory(prefix="penstock-doctor-") as folder:
            _run_job(folder)
    except Exception as error:  # Ray raises many types when a cluster can't start
        text = f"{error_text(error)}. Look at the logs of Ray in /tmp/ray/session_latest/logs"
        return CheckResult("cluster", CheckStatus.BROKEN, text, is_required=True)
    finally:
        if is_own:
            ray.shutdown()
    what = "a local cluster started and" if is_own else "the cluster of this process"
    text = f"{what} ran a job in {time.monotonic() - begun:.1f} s"
    return CheckResult("cluster", CheckStatus.OK, text, is_required=True)


def _run_job(folder: str) -> None:
    sink = CollectSink()
    env = StreamEnvironment("doctor", checkpointing=Checkpointing(every=60, storage=folder))
    numbers = env.from_collection("numbers", range(_NUMBERS))
    numbers.key_by(_one_key).reduce("sum", add).sink("out", sink)
    env.submit().wait(_JOB_TIMEOUT)
    if not (sums := sink.rows()) or max(sums) != sum(range(_NUMBERS)):
        msg = f"the job finished with wrong results: {sums[-1:]}"
        raise PenstockError(msg)


def _one_key(number: int) -> int:
    return 0
