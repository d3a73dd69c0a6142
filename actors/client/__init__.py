"""The program that submits a job, or looks at one.

- Joining or starting a Ray cluster, and opening its page: `cluster`. `ray_notices` keeps Ray's own notices
  out of the output.
- Submitting: `executor`. `own_masters` gives the job to a JobMaster that waits, or starts one.
- Submitted jobs: `job_handle`, found again by `jobs`. `master_calls` asks a JobMaster and waits, with a
  deadline, for one that is restarted.
- The output of a job: `progress`, `logs`, and `collect` for results.

May import `master` and everything below.
"""
