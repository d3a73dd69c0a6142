"""The program that submits a job, or looks at one.

- Joining or starting a Ray cluster: `cluster`.
- Submitting: `executor`, with `script_modules` for modules that only the program has. `own_masters` gives the
  job to a JobMaster that waits, or starts one.
- Jobs that were submitted: `job_handle`, found again by `jobs`, or in their storage by `archived_jobs`.
  `master_calls` asks a JobMaster and waits for one that is restarted; `deadlines` says for how long.
- What a job shows: `progress`, `job_card`, `logs`, `user_interface`, and `collect` for results.
  `ray_notices` keeps what Ray says.

May import `master` and everything below.
"""
