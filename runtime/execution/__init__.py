"""Execution: assigns the roles of a job to processes, and interprets the calls between processes.

- Identity: `role` has the role of a process, and decides which calls fit it.
- The JobMaster's side: `master_process` is the role of its process, and `job_lifecycle` one job in it.
  `job_execution` carries out what the scheduler decides. `fleet` finds a process for each role, and
  `deployment` deploys an attempt. `heartbeats` renews leases and ends processes that hang.
- The subtask's side: `subtask_process` is the role of its process.
- Calls: `processes` is the port, with the outcomes of calls and the answers to senders. `deadlines` says when
  a call is repeated and when a lease ends. `heartbeat` detects silent processes, JobMasters included.
  `failure_causes` turns errors into values.

This package only decides: processes, calls, time and timers are ports. `actors/` has the real ones,
`testing/simulation` simulated ones, and both run these classes. Imports `job`, `task` and packages below.
"""
