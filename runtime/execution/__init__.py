"""Execution: which process holds which role of a job, and what the calls between processes mean.

- Identity: `role` says what a process is, and which calls it takes.
- The JobMaster's side: `job_execution` carries out what the scheduler decides and keeps control messages in
  order. `fleet` finds a process for each role, and `deployment` deploys an attempt. `heartbeats` renews
  leases and ends processes that hang.
- The subtask's side: `subtask_process` is the role of its process. `deliveries` answers its senders, and
  `master_guard` ends a JobMaster that hangs.
- Calls: `processes` is the port, and how calls may end; `messages` says how subtasks end. `deadlines` says
  when a call is repeated and when a lease ends, `heartbeat` what a silence means. `failure_causes` turns
  errors into values.

Decides only: processes, calls, time and timers are ports. `actors/` gives the real ones, `testing/simulation`
simulated ones, and both run these same classes. Imports `job`, `task` and what lies below.
"""
