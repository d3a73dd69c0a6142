"""The program that submits a job, or looks at one.

- Joining or starting a Ray cluster: `cluster`. `ray_notices` keeps what Ray says out of the output.
- Submitting: `executor`. `own_masters` gives the job to a JobMaster that waits, or starts one.
- Submitted jobs: `job_handle`, found again by `jobs`. `master_calls` asks a JobMaster and waits, with a
  deadline, for one that is restarted.
- What a job shows: `progress`, `logs`, `user_interface`, and `collect` for results.

May import `master` and everything below.
"""
