"""Execution: which process holds which role of a job, and what the calls between processes mean.

- Identity: `role` says what a process is, and which calls it takes.
- The JobMaster's side: `master_process` is its own process, and `job_lifecycle` one job in it.
  `job_execution` carries out what the scheduler decides. `fleet` finds a process for each role, and
  `deployment` deploys an attempt. `heartbeats` renews leases and ends processes that hang.
- The subtask's side: `subtask_process` is the role of its process.
- Calls: `processes` is the port, how calls may end, and the answers to senders. `deadlines` says when a call
  is repeated and when a lease ends. `heartbeat` judges a silence, also that of a JobMaster. `failure_causes`
  turns errors into values.

Decides only: processes, calls, time and timers are ports. `actors/` gives the real ones, `testing/simulation`
simulated ones, and both run these same classes. Imports `job`, `task` and what lies below.
"""
