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
    from penstock.actors.client.cluster import start_local as start_local
    from penstock.actors.client.collect import RayCollector as RayCollector
    from penstock.actors.client.executor import RayExecutor as RayExecutor
    from penstock.actors.client.job_handle import RayJobHandle as RayJobHandle
    from penstock.actors.client.jobs import job as job
    from penstock.actors.client.logs import LogLine as LogLine
    from penstock.actors.shared.fault_injection import kill_process as kill_process
    from penstock.actors.shared.job_report import JobMasterProcess as JobMasterProcess
    from penstock.actors.shared.job_report import JobReport as JobReport
    from penstock.actors.shared.job_report import OperatorInfo as OperatorInfo
    from penstock.actors.shared.job_report import SubtaskProcess as SubtaskProcess

#: Where each public name is; the imports above say the same to type checkers.
_HOME: Final = {
    "JobMasterProcess": "shared.job_report",
    "JobReport": "shared.job_report",
    "LogLine": "client.logs",
    "OperatorInfo": "shared.job_report",
    "RayCollector": "client.collect",
    "RayExecutor": "client.executor",
    "RayJobHandle": "client.job_handle",
    "SubtaskProcess": "shared.job_report",
    "job": "client.jobs",
    "kill_process": "shared.fault_injection",
    "start_local": "client.cluster",
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
