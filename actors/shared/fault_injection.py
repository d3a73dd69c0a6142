"""Kills processes of a job on purpose, for demos and for tests of recovery."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.actors.shared.job_report import JobMasterProcess, SubtaskProcess

#: Seconds within which another node must have sent the signal.
_KILL_TIMEOUT: Final = 60.0


def kill_process(process: SubtaskProcess | JobMasterProcess) -> None:
    """SIGKILL a process of a job, on any node; returns when the signal is sent.

    Raises:
        ProcessLookupError: The process has already ended.
        ray.exceptions.GetTimeoutError: Its node has not sent the signal within a minute.
    """
    if process.node_id == ray.get_runtime_context().get_node_id():
        os.kill(process.pid, signal.SIGKILL)
        return
    on_its_node = NodeAffinitySchedulingStrategy(process.node_id, soft=False)
    kill: Any = ray.remote(num_cpus=0)(_kill)
    ray.get(kill.options(scheduling_strategy=on_its_node).remote(process.pid), timeout=_KILL_TIMEOUT)


def _kill(pid: int) -> None:
    """Kill a process; runs as a task on its node. Ray takes no builtin such as `os.kill` as a task."""
    os.kill(pid, signal.SIGKILL)
