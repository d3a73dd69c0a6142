"""Penstock on Ray: the only part that knows Ray.

`StreamEnvironment.run` and `submit` find the executor of this package by its entry point, so most programs
never import it. What is here for users: finding jobs again, handles and reports of jobs, rows collected in
the program, local clusters, and faults for tests of recovery.
"""

from penstock.actors.cluster import start_local
from penstock.actors.collect import RayCollector
from penstock.actors.executor import RayExecutor
from penstock.actors.fault_injection import JobMasterProcess, SubtaskProcess, kill_process
from penstock.actors.job_handle import RayJobHandle
from penstock.actors.job_report import JobReport, OperatorInfo
from penstock.actors.jobs import job
from penstock.actors.logs import LogLine

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
