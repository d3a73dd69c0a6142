"""Answers that are computed on request: the content of a job's newest snapshot, and flame graphs of subtasks.

A snapshot may hold values of users' classes. This module neither unpickles such values nor imports their
classes: it shows the values in their encoded form.

For a flame graph, py-spy samples the stacks of a subtask for some seconds, on the subtask's node. It reads
another process's memory. The system may forbid that (`ptrace`): in containers, or by
`kernel.yama.ptrace_scope`. The error then names `ptrace`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any, Final

import ray

from penstock.actors.shared.actor_calls import ray_text
from penstock.actors.shared.job_report import JobReport, SubtaskProcess
from penstock.actors.shared.node_processes import call_on_node
from penstock.runtime.checkpoint.recovery import OpenedSnapshot, open_snapshot
from penstock.runtime.errors import ConfigurationError, DeploymentError
from penstock.runtime.io.storage import absolute_location, open_location
from penstock.runtime.names import normal_name
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange, StateHandle
from penstock.runtime.snapshot.metadata import read_state
from penstock.runtime.state.key_groups import key_group_of
from penstock.runtime.state_processor.inspection import inspect_snapshot
from penstock.runtime.state_processor.states import (
    known_states,
    no_such_state,
    operator_state,
    read_keyed,
)

#: Maximum number of entries of one key that are shown.
_MOST_ENTRIES: Final = 100
#: Maximum number of characters shown of a part or a value.
_MOST_CHARACTERS: Final = 2_000


def newest_snapshot(report: JobReport) -> dict[str, Any]:
    """Content of the newest snapshot of a job, as `penstock inspect --json` prints it; blocks."""
    opened = _open(report)
    summary = inspect_snapshot(
        opened.checkpoint, lambda handle: read_state(opened.storage, handle), ValueCodec(allow_pickle=False)
    )
    return summary.to_dict()


def value_of_key(report: JobReport, operator: str, state: str, key: str) -> dict[str, Any]:
    """The value of one key in the newest snapshot of a job; `key_of` parses `key`. Blocks."""
    opened, state = _open(report), normal_name(state)
    held = operator_state(opened.checkpoint, operator)

    def read(handle: StateHandle) -> bytes:
        return read_state(opened.storage, handle)

    wanted = key_of(key)
    group = key_group_of(wanted, held.max_parallelism)
    codec = ValueCodec(allow_pickle=False)
    entries = read_keyed(held, state, KeyGroupRange(group, group), read, codec)
    if entries is None:
        raise no_such_state(held, state, known_states(held, read))
    places = [place for place, known in enumerate(entries.keys) if known == wanted]
    return {
        "key": repr(wanted),
        "key_group": group,
        "kind": opened.checkpoint.kind.value,
        "checkpoint_id": opened.checkpoint.checkpoint_id,
        "found": bool(places),
        "entries": [
            {
                "part": None if entries.parts is None else _shown(entries.parts[place]),
                "value": _shown(entries.values[place]),
            }
            for place in places[:_MOST_ENTRIES]
        ],
        "more": max(0, len(places) - _MOST_ENTRIES),
    }


def key_of(text: str) -> Any:
    """Parse a key: JSON, with lists as tuples; text that is not JSON is a string.

    Example:
        >>> key_of("7"), key_of("seven"), key_of('"7"'), key_of('["a", 1]')
        (7, 'seven', '7', ('a', 1))
    """
    try:
        return _as_tuples(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _as_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        msg = "a key is a number, a string, true, false, null, or a list of these"
        raise ConfigurationError(msg)
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _open(report: JobReport) -> OpenedSnapshot:
    if report.storage is None:
        msg = f"job {report.job_id} takes no checkpoints, so none of its state is saved"
        raise ConfigurationError(msg)
    storage = absolute_location("storage", report.storage).rstrip("/")
    return open_snapshot(f"{storage}/{report.job_id}", open_location)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}… ({len(text):,} characters)"


#: Samples per second. py-spy takes them without pausing the process (`--nonblocking`).
RATE: Final = 100
#: Maximum sampling time, in seconds.
MOST_SECONDS: Final = 30.0
#: Seconds after the end of the sampling within which py-spy must answer.
_PATIENCE: Final = 60.0


class FlameGraphType(Enum):
    """The samples of a flame graph: of threads that run, of threads that wait, or of both."""

    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"
    MIXED = "mixed"


def flame_graph(
    process: SubtaskProcess, seconds: float, kind: FlameGraphType = FlameGraphType.ON_CPU
) -> dict[str, Any]:
    """Sample the stacks of a process into a tree of functions; blocks for slightly longer than `seconds`.

    A node is `{name, value, children}`; its value counts the stacks that contain the node. On-CPU samples are
    of all threads. The others are of the task's thread only, because most threads of a process always wait.

    Raises:
        DeploymentError: py-spy can't sample the process; the message says why.
    """
    seconds = min(max(seconds, 0.1), MOST_SECONDS)
    thread = str(process.subtask)  # the name of the task thread
    try:
        stacks, problem = call_on_node(
            process.node_id, seconds + 2 * _PATIENCE, take_stacks, process.pid, seconds, kind.value, thread
        )
    except ray.exceptions.RayError as error:
        stacks, problem = [], f"its node does not answer: {ray_text(error)}"
    if problem:
        msg = f"no flame graph of {process.subtask}: {problem}"
        raise DeploymentError(msg)
    return {"root": tree_of(stacks), "seconds": seconds, "rate": RATE, "type": kind.value}


def take_stacks(
    pid: int, seconds: float, kind: str = FlameGraphType.ON_CPU.value, thread: str = ""
) -> tuple[list[str], str]:
    """Stacks of a process on this node as `frame;frame count`, and the reason if there are none; blocks.

    Args:
        kind: Value of a `FlameGraphType`.
        thread: Name of the thread that is sampled, except on-CPU, where all threads are.
    """
    if kind == FlameGraphType.ON_CPU.value:
        return _recorded(pid, seconds)
    if kind == FlameGraphType.MIXED.value:
        stacks, problem = _recorded(pid, seconds, "--idle", "--threads")
        stacks = _of_thread(thread, stacks)
    else:
        # py-spy does not mark stacks of threads that wait. So two py-spy processes sample at the same time.
        with ThreadPoolExecutor(2) as pool:
            all_stacks = pool.submit(_recorded, pid, seconds, "--idle", "--threads")
            running = pool.submit(_recorded, pid, seconds, "--threads", may_be_empty=True)
        problem = all_stacks.result()[1] or running.result()[1]
        stacks = without(_of_thread(thread, all_stacks.result()[0]), _of_thread(thread, running.result()[0]))
    if not stacks and not problem:
        problem = f"py-spy saw no stacks of the thread {thread}"
    return stacks, problem


def without(stacks: Iterable[str], others: Iterable[str]) -> list[str]:
    """Subtract the counts of the same stacks in `others`; stacks without a remaining count are left out.

    Example:
        >>> without(["main;wait 90", "main;parse 10"], ["main;parse 11"])
        ['main;wait 90']
    """
    counts: Counter[str] = Counter()
    for found, sign in ((stacks, 1), (others, -1)):
        for line in found:
            stack, _, count = line.rpartition(" ")
            counts[stack] += sign * int(count)
    return [f"{stack} {count}" for stack, count in counts.items() if count > 0]


def _of_thread(thread: str, stacks: Iterable[str]) -> list[str]:
    """The stacks of a thread, without py-spy's `thread (id): name`."""
    first = re.compile(rf"thread \([^)]*\): {re.escape(thread)};")
    return [stack[found.end() :] for stack in stacks if (found := first.match(stack)) is not None]


def _recorded(pid: int, seconds: float, *options: str, may_be_empty: bool = False) -> tuple[list[str], str]:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        return [], "py-spy is not installed on its node: `pip install py-spy`"
    command = [program, "record", "--format", "raw", "--output", "/dev/stdout", "--nonblocking", *options]
    command += ["--rate", str(RATE), "--duration", str(max(1, round(seconds))), "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + _PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return [], f"py-spy did not finish within {seconds + _PATIENCE:.0f} s"
    except OSError as error:
        return [], f"{program} can't be run: {error}"
    # py-spy's own lines may end with a number, too: `py-spy> Wrote ... Errors: 0`.
    lines = (line for line in done.stdout.splitlines() if not line.startswith("py-spy>"))
    stacks = [line for line in lines if line.rpartition(" ")[2].isdecimal()]
    if done.returncode == 0 and (stacks or may_be_empty):
        return stacks, ""
    said = " ".join((done.stderr or done.stdout).split())[-500:]
    if "ermission" in said or "ptrace" in said:
        return [], (
            "the system forbids py-spy from reading other processes (ptrace): allow it with the capability "
            f"SYS_PTRACE, or with sysctl kernel.yama.ptrace_scope=0. py-spy said: {said}"
        )
    return [], said or "py-spy saw no stacks: the process may have ended"


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
