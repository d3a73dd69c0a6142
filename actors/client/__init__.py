"""The client: a program that submits jobs or inspects them.

- Joining or starting a Ray cluster, and opening the page of a job: `cluster`. `ray_notices` keeps Ray's own
  notices out of the output.
- Submitting: `executor`. `own_masters` gives the job to a warm JobMaster, or starts a new one. `interrupts`
  holds Ctrl-C meanwhile.
- Submitted jobs: `job_handle`, found again by `jobs`. `master_calls` calls a JobMaster, and waits with a
  deadline while it is restarted.
- The output of a job: `progress`, `logs`, and `collect` for results.
- Deleting what ended jobs have left in the cluster: `garbage`.

May import `template` and everything below.
"""
