"""One job: its state machine, restart strategies, regions and ledger; runs in the JobMaster.

- `scheduler` takes every event of a job and hands it to the job's state (`states/`). States change the job
  through `context`, which also has the port that deploys, starts and stops subtasks. `assembly` puts all of
  it together.
- `job_ledger` makes what must last durable; `end_of_job` records the end and removes what nothing covers.
- Failures: `failure` has the causes, `failover` decides about another attempt and what restarts together.
- `automatic_checkpoints`: checkpoints that must not wait for the next period.
- `job_operators`: the parts of operators in the JobMaster, and their events.
- `messages`: what users ask for, what became of it, and what subtasks report.
- `job_state`: states, transitions, statistics.

Imports `checkpoint` and what lies below; never `task`.
"""
