"""Reads processor times of a node's processes, kills processes, and calls functions on other nodes.

A hanging process can't answer, so another process on its node reads `/proc`: the caller if it runs there,
otherwise a Ray task. So no node needs a watcher, and a task works even when all processes of a job hang. The
first task on a node takes half a second, because Ray starts a worker; later tasks take some milliseconds.

The system reuses process ids. So `Place` has the start time of its process, and a later process with the same
id is not mistaken for it. Without `/proc`, as on macOS, no processor time is known.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, TypeVarTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.actors.shared.job_report import JobMasterProcess, SubtaskProcess
from penstock.runtime.execution.processes import Place

Ts = TypeVarTuple("Ts")

T = TypeVar("T")

#: Fields of `/proc/PID/stat` after the program's name, in ticks: processor time in user and kernel mode, and
#: the start time.
_USER, _KERNEL, _STARTED = 11, 12, 19

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def own_node() -> str:
    """Ray's id of this process's node; empty outside of a cluster."""
    node: str = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    return node


def own_place() -> Place:
    pid = os.getpid()
    fields = _fields(pid)
    return Place(pid, own_node(), 0 if fields is None else fields[_STARTED])


def processor_times(places: Sequence[Place]) -> dict[Place, float]:
    """Processor time in seconds of processes of this node; omits processes that have ended."""
    return {place: used for place in places if (used := _processor_time(place)) is not None}


def end_process(place: Place) -> bool:
    """Kill a process of this node; return `False` if it has already ended, even if its id was reused."""
    try:
        descriptor = os.pidfd_open(place.pid)  # refers to this process, even if its id is reused
    except ProcessLookupError:
        return False
    try:
        if _processor_time(place) is None:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


async def on_node(node_id: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Call a function on a node: in this process if it runs there, otherwise in a Ray task.

    Raises:
        ray.exceptions.RayError: The node has died, or can't be reached.
    """
    if node_id == own_node():
        return function(*arguments)
    # Ray exports the function to the GCS first, which blocks when the GCS does not answer.
    begin = partial(task_on_node, node_id, function, *arguments)
    answer: T = await (await asyncio.to_thread(begin))
    return answer


def call_on_node(node_id: str, seconds: float, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Like `on_node`, but blocks; another node has `seconds` to answer.

    Raises:
        ray.exceptions.RayError: The node has died, can't be reached, or has not answered in time.
    """
    if node_id == own_node():
        return function(*arguments)
    answer: T = ray.get(task_on_node(node_id, function, *arguments), timeout=seconds)
    return answer


def alive_nodes() -> list[str]:
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [str(node["NodeID"]) for node in known if node["Alive"]]


def answers_of_nodes(
    nodes: Iterable[str], seconds: float, function: Callable[..., T], *arguments: Any
) -> Iterator[tuple[str, T | ray.exceptions.RayError]]:
    """Call a function on all nodes at once, in Ray tasks; all answers must arrive within `seconds`.

    Yields each node with its answer, or with the error of the node or of the call.
    """
    calls = {node: task_on_node(node, function, *arguments) for node in nodes}
    deadline = time.monotonic() + seconds
    for node, call in calls.items():
        answer: T | ray.exceptions.RayError
        try:
            answer = ray.get(call, timeout=max(0.0, deadline - time.monotonic()))
        except ray.exceptions.RayError as error:
            answer = error
        yield node, answer


def task_on_node(node_id: str, function: Callable[..., object], *arguments: Any) -> Any:
    """Call a function on a node in a Ray task, which is repeated once if its worker dies."""
    task: Any = ray.remote(num_cpus=0, max_retries=1)(function)
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return task.options(scheduling_strategy=there).remote(*arguments)


def _processor_time(place: Place) -> float | None:
    fields = _fields(place.pid)
    if fields is None or not place.started or fields[_STARTED] != place.started:
        return None
    return (fields[_USER] + fields[_KERNEL]) / _TICKS_PER_SECOND


def _fields(pid: int) -> list[int] | None:
    """The fields of `/proc/PID/stat` after the program's name; 0 for a field that is not a number.

    Returns `None` without such a process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The program's name precedes them, in parentheses, and may contain any character.
    return [int(field) if field.isdecimal() else 0 for field in text.rpartition(")")[2].split()]


#: Seconds within which another node must have sent the signal.
_KILL_TIMEOUT: Final = 60.0


def kill_process(process: SubtaskProcess | JobMasterProcess) -> None:
    """SIGKILL a process of a job on any node, for demos and tests; returns when the signal is sent.

    Raises:
        ProcessLookupError: The process has already ended.
        ray.exceptions.GetTimeoutError: Its node has not sent the signal within a minute.
    """
    call_on_node(process.node_id, _KILL_TIMEOUT, _kill, process.pid)


def _kill(pid: int) -> None:
    """Kill a process of this node. A Ray task can't be a builtin such as `os.kill`."""
    os.kill(pid, signal.SIGKILL)
