"""Penstock on Ray: the only part that knows Ray.

`StreamEnvironment.run` and `submit` find the executor of this package by its entry point, so most programs
never import it. What is here for users: handles of jobs that run, and faults for tests of recovery.
"""

from penstock.actors.executor import RayExecutor
from penstock.actors.fault_injection import JobMasterProcess, SubtaskProcess, kill_process
from penstock.actors.job_handle import RayJobHandle
from penstock.actors.job_report import JobReport

__all__ = ["JobMasterProcess", "JobReport", "RayExecutor", "RayJobHandle", "SubtaskProcess", "kill_process"]
