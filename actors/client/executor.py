"""`RayExecutor`: the `Executor` that runs job graphs on Ray (entry point `penstock.executors: ray`).

`ship_script_modules`: Ray puts the folder of the driver's script on the workers' path. In a job with a
`working_dir`, workers have only the `working_dir` there. So modules next to a script in a subfolder are
pickled by value, as the script itself is. Modules next to a notebook kernel's script are pickled by name,
because they are installed on the workers.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import ray
import ray.cloudpickle as cloudpickle

from penstock.actors.client.cluster import connect
from penstock.actors.client.collect import RayCollector, bring_rows
from penstock.actors.client.interrupts import InterruptsHeld, interrupts_delivered
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.own_masters import OwnMasters
from penstock.actors.client.ray_notices import NOTICES, take_notices_of_processes
from penstock.actors.shared.graph_shipping import pack_job
from penstock.actors.shared.job_report import NO_CHECKPOINTS
from penstock.actors.shared.output_capture import log_key
from penstock.actors.shared.registry import SubmittedJob
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.io.storage import absolute_location
from penstock.runtime.operators.sinks import Sink
from penstock.runtime.time.durations import Duration

#: Environment variable in which `ray job submit` passes the runtime environment and its id to `ray.init`.
_JOB_CONFIG: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def ship_script_modules() -> None:
    """Let cloudpickle pickle modules next to the script by value, unless workers find them by name."""
    folder = Path(sys.argv[0]).resolve().parent
    if folder == Path.cwd().resolve() or str(folder) not in sys.path or not _has_working_dir():
        return
    if folder in _installed():
        return
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and _is_beside(module, folder):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _installed() -> set[Path]:
    return {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}


def _is_beside(module: ModuleType, folder: Path) -> bool:
    top = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    if top == "__main__" or file is None:
        return False
    path = Path(file).resolve()
    return path == folder / f"{top}.py" or folder / top in path.parents


def _has_working_dir() -> bool:
    """Return whether the program runs, or is about to run, in a Ray job with a `working_dir`."""
    if ray.is_initialized():
        return "working_dir" in ray.get_runtime_context().runtime_env
    submitted = json.loads(os.environ.get(_JOB_CONFIG, "{}"))
    return "working_dir" in submitted.get("runtime_env", {})


logger = logging.getLogger(__name__)

#: Environment variable with the location of the snapshot from which the program's job starts.
RESTORE_FROM: Final = "PENSTOCK_RESTORE_FROM"
#: Environment variable; with the value 1, the job may drop state of operators that it does not have.
ALLOW_NON_RESTORED_STATE: Final = "PENSTOCK_ALLOW_NON_RESTORED_STATE"

#: The JobMasters that this program has started.
_MASTERS: Final = OwnMasters()


class RayExecutor:
    """Gives each job to a JobMaster actor; the job continues without the process that submitted it."""

    def submit(self, job: JobGraph, config: JobConfig) -> RayJobHandle:
        handle = self._submit(with_restore(job), config)
        if config.checkpointing is None:
            logger.warning("job '%s': %s", job.name, NO_CHECKPOINTS)
        return handle

    def rows(
        self,
        job: Callable[[Sink[Any]], JobGraph],
        config: JobConfig,
        limit: int | None,
        timeout: Duration | None,
    ) -> list[Any]:
        """Run the job of a quick look, and return its rows after the end of the job.

        Args:
            limit: Number of rows after which the job is cancelled; `None` waits for its end.
            timeout: Seconds, or a `timedelta`, after which the job is cancelled; `None` waits for ever.
        """
        return bring_rows(lambda sink: self._submit(job(sink), config), limit, timeout)

    def collector(self) -> RayCollector:
        """Return a new collector for a `CollectSink()` without one; joins or starts a cluster."""
        return RayCollector()

    def interrupts_held(self) -> AbstractContextManager[None]:
        """Return a context manager that holds Ctrl-C inside its block, except where the program waits."""
        return InterruptsHeld()

    def _submit(self, job: JobGraph, config: JobConfig) -> RayJobHandle:
        """Start a job; an interrupt during the start ends the job."""
        with InterruptsHeld():
            return self._begin(job, config)

    def _begin(self, job: JobGraph, config: JobConfig) -> RayJobHandle:
        with interrupts_delivered():
            config = with_storage(config)
            ship_script_modules()
            chunks = tuple(pack_job(job, config))
            connect()
            take_notices_of_processes()

        def submitted() -> SubmittedJob:
            return SubmittedJob(
                make_job_id(job.name),
                job.name,
                time.time(),
                chunks,
                submission=secrets.token_hex(8),
                ray_submission=ray_submission(),
            )

        job_id = _MASTERS.begin(submitted, may_reuse=config.reuse_processes)
        NOTICES.follow(job_id, log_key(job_id))
        return RayJobHandle(job_id, job.name, graph=job)


def ray_submission() -> str:
    """Return the id of this program in Ray's Jobs API; empty if the program was started otherwise."""
    submitted = json.loads(os.environ.get(_JOB_CONFIG, "{}"))
    return str(submitted.get("metadata", {}).get("job_submission_id", ""))


def default_storage() -> str:
    """Return the checkpoint storage of jobs that name none.

    `~/.penstock/checkpoints` suits one machine. On a larger cluster, subtasks detect at deployment that their
    node does not share the JobMaster's folder, and fail.
    """
    return str(Path.home() / ".penstock" / "checkpoints")


def with_storage(config: JobConfig) -> JobConfig:
    """Return the settings with the checkpoint storage filled in and made absolute."""
    checkpointing = config.checkpointing
    if checkpointing is None:
        return config
    url = checkpointing.storage or default_storage()
    return replace(config, checkpointing=replace(checkpointing, storage=absolute_location("storage", url)))


def with_restore(job: JobGraph) -> JobGraph:
    """Return the job with an absolute location to start from, if it starts from a snapshot.

    The default location is in the environment, where `penstock restore` puts it.
    """
    if job.restore_from is not None:
        return replace(job, restore_from=absolute_location("restore_from", job.restore_from))
    given = os.environ.get(RESTORE_FROM)
    if not given:
        return job
    allow = os.environ.get(ALLOW_NON_RESTORED_STATE) == "1"
    return replace(job, restore_from=absolute_location(RESTORE_FROM, given), allow_non_restored_state=allow)


def make_job_id(name: str) -> str:
    """Make an id for a job of this name: readable, safe in paths, and with 128 random bits.

    With 32 bits, two of 10,000 jobs with the same name would share an id with a probability of one percent.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"
    return f"{readable}-{secrets.token_hex(16)}"
