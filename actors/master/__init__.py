"""The process of one job's JobMaster, and everything that runs in it.

`job_master` is the Ray actor. `job_life` takes its job from start to end: `job_assembly` makes the runtime's
`JobScheduler`, `JobExecution` and `Fleet`, which decide. `ray_processes` starts, calls and ends the processes
of subtasks for them, and turns what Ray raises into values; `loop_timers` and `guarded_loop` run what is due.
`job_requests` answers users, `job_reporter` and `job_metrics` tell them how the job stands.

All of it runs on the JobMaster's event loop, except what `user_threads` or a pool runs. `job_master` alone is
loaded wherever a handle of a JobMaster goes, so it imports the rest only when it starts. May import `subtask`
and `shared`.
"""
