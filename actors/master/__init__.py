"""The process of JobMasters, and everything that runs in it.

- `job_master`: the Ray actor and its calls. `master_process` runs jobs one after another, and `job_runner`
  runs one job. Their decisions are in `master_process` and `job_lifecycle` of `runtime/execution`.
- `job_assembly`: makes the runtime's `JobScheduler`, `JobExecution` and `Fleet`, which decide.
- `cluster_calls`: calls to Ray's GCS, in a thread, so that a hanging GCS does not stop other work.
- `ray_processes`: starts, calls and ends processes of subtasks, and turns Ray's errors into values.
- `job_requests`: users' requests. `job_reporter` and `job_telemetry`: the state of the job, for readers.

Every process with a handle of a JobMaster loads `job_master`. So that module imports the rest only when a
JobMaster starts. May import `subtask` and `shared`.
"""
