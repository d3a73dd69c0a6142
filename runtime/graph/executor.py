"""The `Executor` port: what runs a job graph, and how the installed one is found.

This package only builds graphs. Whatever runs them says so in an entry point of the group
`penstock.executors`; `penstock.actors` registers `ray`. Reading the list of installed entry points is the
only effect that is allowed here. It happens once, when a job is submitted, and never while one runs.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Protocol, runtime_checkable

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.job_handle import JobHandle

#: The group of entry points; each names a class or function that is called without arguments.
EXECUTOR_GROUP: Final = "penstock.executors"

#: Taken when several are installed.
DEFAULT_EXECUTOR: Final = "ray"


@runtime_checkable
class Executor(Protocol):
    """Runs jobs."""

    def submit(self, job: JobGraph, config: JobConfig) -> JobHandle:
        """Start a job and return at once.

        Raises:
            GraphError: A user's function can't be sent to the subtasks; the message names its operator.
            DeploymentError: There is nowhere to run it.
        """
        ...


@runtime_checkable
class HoldsInterrupts(Protocol):
    """An executor that keeps Ctrl-C from losing a job between its submission and the wait for its end."""

    def interrupts_held(self) -> AbstractContextManager[None]:
        """Hold interrupts inside, except where `JobHandle.wait` waits."""
        ...


def find_executor(name: str | None = None) -> Executor:
    """The installed executor.

    Args:
        name: Which one; `None` takes the only one, or `ray` among several.

    Raises:
        ConfigurationError: None is installed, or none of that name, or it is no executor.
    """
    return load_executor(list(entry_points(group=EXECUTOR_GROUP)), name)


def load_executor(installed: list[EntryPoint], name: str | None = None) -> Executor:
    """Choose among entry points and load the choice; see `find_executor`.

    Args:
        installed: Entry points of the group.
        name: Which one; the only one or the default when left out.

    Raises:
        ConfigurationError: There is none, none of this name, or it can't run jobs.
    """
    names = sorted({point.name for point in installed})
    if not names:
        msg = (
            f"nothing is installed that can run a job: no entry point in the group {EXECUTOR_GROUP!r}. "
            "Install penstock itself (`pip install penstock`), or pass `executor=` to the StreamEnvironment"
        )
        raise ConfigurationError(msg)
    wanted = name or (names[0] if len(names) == 1 else DEFAULT_EXECUTOR)
    for point in installed:
        if point.name == wanted:
            executor = point.load()()
            if not isinstance(executor, Executor):
                msg = f"the executor {wanted!r} ({point.value}) has no method `submit(job, config)`"
                raise ConfigurationError(msg)
            return executor
    msg = f"no executor {wanted!r} is installed; there are: {', '.join(names)}"
    raise ConfigurationError(msg)
