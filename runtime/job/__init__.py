"""One job: its state machine, restart strategies, regions and ledger; runs in the JobMaster.

- `scheduler` creates the parts of a job, and passes each event to the job's state (`states/`). States change
  the job through `context`, which also has the port that deploys, starts and stops subtasks.
- `job_ledger` writes a job's durable records; `end_of_job` records the end and removes uncovered output.
- `failover` has the causes of failures, the restart strategies and the regions that restart together.
- `automatic_checkpoints`: checkpoints that must not wait for the next period.
- `job_operators`: the parts of operators in the JobMaster, and their events.
- `job_state`: states, requests, reports, statistics.

Imports `checkpoint` and the packages below it; never `task`.
"""
