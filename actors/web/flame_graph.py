"""Flame graphs of a subtask: py-spy samples its stacks for some seconds, on the subtask's node.

py-spy reads another process's memory. The system may forbid that (`ptrace`): in containers, or by
`kernel.yama.ptrace_scope`. The error then names `ptrace`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import ray

from penstock.actors.shared.job_report import SubtaskProcess
from penstock.actors.shared.node_processes import own_node, task_on_node
from penstock.runtime.errors import DeploymentError

#: Samples a second. Each sample stops the process for a fraction of a millisecond.
RATE: Final = 100
#: The longest sampling time.
MOST_SECONDS: Final = 30.0
#: Seconds after the end of the sampling within which py-spy must answer.
_PATIENCE: Final = 60.0


def flame_graph(process: SubtaskProcess, seconds: float) -> dict[str, Any]:
    """Sample the stacks of a process as a tree of functions; blocks for little longer than `seconds`.

    Args:
        seconds: Sampling time; at most 30 are used.

    Returns:
        A node is `{name, value, children}`; a value counts the stacks that hold it.

    Raises:
        DeploymentError: py-spy can't sample the process; the message says why.
    """
    seconds = min(max(seconds, 0.1), MOST_SECONDS)
    if process.node_id == own_node():
        stacks, problem = take_stacks(process.pid, seconds)
    else:
        stacks, problem = _on_its_node(process, seconds)
    if problem:
        msg = f"no flame graph of {process.subtask}: {problem}"
        raise DeploymentError(msg)
    return {"root": tree_of(stacks), "seconds": seconds, "rate": RATE}


def take_stacks(pid: int, seconds: float) -> tuple[list[str], str]:
    """Stacks of a process of this node as `frame;frame count`, and the reason if there are none; blocks."""
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        return [], "py-spy is not installed on its node: `pip install py-spy`"
    command = [program, "record", "--format", "raw", "--output", "/dev/stdout", "--nonblocking"]
    command += ["--rate", str(RATE), "--duration", str(max(1, round(seconds))), "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + _PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return [], f"py-spy has not ended after {seconds + _PATIENCE:.0f} s"
    except OSError as error:
        return [], f"{program} can't be run: {error}"
    stacks = [line for line in done.stdout.splitlines() if line.rpartition(" ")[2].isdecimal()]
    if done.returncode == 0 and stacks:
        return stacks, ""
    said = " ".join((done.stderr or done.stdout).split())[-500:]
    if "ermission" in said or "ptrace" in said:
        return [], (
            "the system forbids py-spy to look at other processes (ptrace): allow it with the capability "
            f"SYS_PTRACE, or with sysctl kernel.yama.ptrace_scope=0. It said: {said}"
        )
    return [], said or "py-spy has seen no stack: the process may have ended"


def tree_of(stacks: Iterable[str]) -> dict[str, Any]:
    """Build a tree from stacks in py-spy's raw format.

    Example:
        >>> tree = tree_of(["main (job.py:1);parse (job.py:7) 3", "main (job.py:1) 1"])
        >>> tree["value"], tree["children"][0]["value"], tree["children"][0]["children"][0]["name"]
        (4, 4, 'parse (job.py:7)')
    """
    root: dict[str, Any] = {"name": "all", "value": 0, "children": {}}
    for stack in stacks:
        frames, _, count = stack.rpartition(" ")
        node = root
        node["value"] += int(count)
        for frame in frames.split(";"):
            node = node["children"].setdefault(frame, {"name": frame, "value": 0, "children": {}})
            node["value"] += int(count)
    return _listed(root)


def _listed(node: dict[str, Any]) -> dict[str, Any]:
    children = sorted(node["children"].values(), key=lambda child: -child["value"])
    return {"name": node["name"], "value": node["value"], "children": [_listed(child) for child in children]}


def _on_its_node(process: SubtaskProcess, seconds: float) -> tuple[list[str], str]:
    answer = task_on_node(process.node_id, take_stacks, process.pid, seconds)
    try:
        stacks, problem = ray.get(answer, timeout=seconds + 2 * _PATIENCE)
    except ray.exceptions.RayError as error:
        return [], f"its node does not answer: {error}"
    return list(stacks), str(problem)
