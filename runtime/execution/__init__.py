"""Execution: which process holds which role of a job, and what the calls between processes mean.

- Identity: `role` says what a process is, `role_holder` which calls a process takes.
- The JobMaster's side: `job_execution` carries out what the scheduler decides. `fleet` finds a process for
  each role, and `deployment` deploys an attempt. `control_lanes` keep messages in order, `run_end` interprets
  the end of a `run` call, and `watch` renews leases.
- The subtask's side: `lease` ends a process that hears nothing, `deliveries` answers its senders.
  `control_receiver` and `reports` are the two directions between JobMaster and subtask; `messages` has what
  they send.
- Calls: `processes` is the port, and how a call may end. `gathering` waits for several, `absence` decides
  when one is repeated, `failure_causes` turns errors into values.

Decides only: processes, calls, time and timers are ports. `actors/` gives the real ones, `testing/simulation`
simulated ones, and both run these same classes. Imports `job`, `task` and what lies below.
"""
