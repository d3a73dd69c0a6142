"""Penstock on Ray: the only part that knows Ray.

`StreamEnvironment.run` and `submit` find the executor of this package by its entry point, so most programs
never import it. What is here for users: finding jobs again, handles and reports of jobs, rows collected in
the program, local clusters, and faults for tests of recovery. Every name is loaded when it is first asked
for: a subtask needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.actors.cluster import start_local as start_local
    from penstock.actors.collect import RayCollector as RayCollector
    from penstock.actors.executor import RayExecutor as RayExecutor
    from penstock.actors.fault_injection import JobMasterProcess as JobMasterProcess
    from penstock.actors.fault_injection import SubtaskProcess as SubtaskProcess
    from penstock.actors.fault_injection import kill_process as kill_process
    from penstock.actors.job_handle import RayJobHandle as RayJobHandle
    from penstock.actors.job_report import JobReport as JobReport
    from penstock.actors.job_report import OperatorInfo as OperatorInfo
    from penstock.actors.jobs import job as job
    from penstock.actors.logs import LogLine as LogLine

#: Where each public name is; the imports above say the same to type checkers.
_HOME: Final = {
    "JobMasterProcess": "fault_injection",
    "JobReport": "job_report",
    "LogLine": "logs",
    "OperatorInfo": "job_report",
    "RayCollector": "collect",
    "RayExecutor": "executor",
    "RayJobHandle": "job_handle",
    "SubtaskProcess": "fault_injection",
    "job": "jobs",
    "kill_process": "fault_injection",
    "start_local": "cluster",
}

__all__ = [
    "JobMasterProcess",
    "JobReport",
    "LogLine",
    "OperatorInfo",
    "RayCollector",
    "RayExecutor",
    "RayJobHandle",
    "SubtaskProcess",
    "job",
    "kill_process",
    "start_local",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
