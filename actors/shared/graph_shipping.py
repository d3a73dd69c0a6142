"""Pickles a job graph for its JobMaster; an error names the operator that can't be pickled.

The graph is pickled with Ray's cloudpickle; functions of the user's script are pickled by value. The data is
cut into small arguments, which Ray keeps inside the actor's specification. So a JobMaster still gets these
arguments if it is restarted after its driver has ended. Large arguments would be lost with the driver.

In a worker `__main__` is Ray's own module, so a class of the user's script or notebook can't be imported
there. Pickled functions contain such classes by value, but a codec finds classes by name. So the classes of
`__main__` are shipped with the job, and each subtask's codec gets them. They are pickled together with the
graph, so they are the same class objects that the user's functions refer to.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Final

import ray.cloudpickle as cloudpickle

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import DeploymentError, GraphError
from penstock.runtime.graph.job_graph import JobGraph, OperatorSpec

#: Maximum bytes of a pickled class. A larger one refers to data in its methods, so it is not a record class.
LARGEST_CLASS: Final = 256 * 1024


def main_classes() -> tuple[type, ...]:
    """All classes of this program's `__main__` and of modules that are registered to be pickled by value.

    Skips classes that can't be pickled or are too large; the codec raises an error if a job needs such a
    class.
    """
    by_value: set[str] = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    names = ["__main__", *sorted(by_value)]
    modules = (sys.modules.get(name) for name in names)
    return tuple(cls for module in modules if module is not None for cls in classes_of(module) if _fits(cls))


def classes_of(module: ModuleType) -> list[type]:
    """The classes that a module defines, including nested classes but not imported ones."""
    found: dict[type, None] = {}
    namespaces = [vars(module)]
    while namespaces:
        for value in list(namespaces.pop().values()):
            if isinstance(value, type) and value.__module__ == module.__name__ and value not in found:
                found[value] = None
                namespaces.append(dict(vars(value)))
    return list(found)


def _fits(cls: type) -> bool:
    try:
        data: bytes = cloudpickle.dumps(cls)  # type: ignore[no-untyped-call]
    except Exception:  # any error of the user's class; the codec names the class if a record needs it
        return False
    return len(data) <= LARGEST_CLASS


#: Ray inlines arguments below 100 kB each and 10 MB together.
_CHUNK: Final = 64 * 1024

_LIMIT: Final = 9 * 1024 * 1024


def pack_job(job: JobGraph, config: JobConfig) -> list[bytes]:
    """Pickle a job into chunks, with the classes that only this program knows.

    Raises:
        GraphError: A user's object can't be pickled, or the job is too large. For an object of an operator
            the message names the operator and the user's line.
        DeploymentError: A sink starts its collector when it is pickled, and the cluster can't be started.
    """
    job = replace(job, classes=main_classes())
    try:
        data = _dumps((job, config))
    except DeploymentError:
        raise
    except Exception as error:  # any error of a user's object when pickled
        raise _explain(job, error) from error
    if len(data) > _LIMIT:
        msg = (
            f"the job graph is {len(data) / 1e6:.1f} MB when pickled, more than {_LIMIT / 1e6:.0f} MB: "
            "a user's function or source contains data. Read the data in the source, or keep it in "
            "a file"
        )
        raise GraphError(msg)
    return [data[i : i + _CHUNK] for i in range(0, len(data), _CHUNK)]


def unpack_job(chunks: tuple[bytes, ...]) -> tuple[JobGraph, JobConfig]:
    """The job graph and its settings from the chunks of `pack_job`.

    Raises:
        GraphError: A user's module can't be imported here; the message names it and says what to do.
    """
    try:
        job, config = cloudpickle.loads(b"".join(chunks))
    except ImportError as error:
        msg = (
            f"the job needs a module that the cluster does not have: {error}. Ship it with "
            "`ray job submit --working-dir`, or put it into the job's runtime environment"
        )
        raise GraphError(msg) from error
    return job, config


def _dumps(value: object) -> bytes:
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def _explain(job: JobGraph, error: Exception) -> GraphError:
    for vertex in job.vertices:
        for operator in vertex.operators:
            reason = _why_not(operator)
            if reason is not None:
                where = f", defined at {operator.defined_at}" if operator.defined_at else ""
                return GraphError(
                    f"operator '{operator.id}' ({operator.name}){where} can't be sent to the cluster: "
                    f"{reason}. Its function must not hold on to open files, locks or connections; open them "
                    "in the operator (for example in KeyedProcessFunction.open)"
                )
    for edge in job.edges:
        try:
            _dumps(edge.partitioner)
        except Exception as error_of_key:
            reason = error_text(error_of_key)
            return GraphError(
                f"the key function of '{edge.target_vertex}' can't be sent to the cluster: {reason}"
            )
    return GraphError(f"the job can't be sent to the cluster: {error_text(error)}")


def _why_not(operator: OperatorSpec) -> str | None:
    try:
        _dumps(operator)
    except Exception as error:
        return error_text(error)
    return None
