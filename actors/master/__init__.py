"""The process of JobMasters, and everything that runs in it.

- `job_master`: the Ray actor and its calls. `master_process` runs jobs one after the other.
- `job_runner`: one job from start to end.
- `job_assembly`: makes the runtime's `JobScheduler`, `JobExecution` and `Fleet`, which decide.
- `cluster_calls`: what Ray's GCS must answer, in a thread, so that a GCS that stands still stops nothing.
- `ray_processes`: starts, calls and ends processes of subtasks for them; turns Ray's errors into values.
- `guarded_loop`, `loop_timers`, `user_threads`: where all of this runs.
- `job_requests`: users' requests. `job_reporter`, `job_metrics` and `job_traces`: how the job stands.

All of it runs on the JobMaster's event loop, except what `user_threads`, `cluster_calls` or
a pool runs. `job_master` alone is
loaded wherever a handle of a JobMaster goes, so it imports the rest only when it starts. May import `subtask`
and `shared`.
"""
