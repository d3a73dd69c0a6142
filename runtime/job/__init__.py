"""One job: its state machine, restart strategies, regions and ledger; runs in the JobMaster.

- `scheduler` takes every event of a job and hands it to the job's state (`states/`, one class a state).
  States change the job through `context`; `assembly` puts all of it together.
- The world: `execution_gateway` is the port that deploys, starts and stops subtasks. `job_ledger` makes
  what must last durable; `end_of_job` records the end.
- Failures: `failure` has the causes, `restart_strategies` decide about another attempt, `regions` about
  what restarts together, `uncovered_output` removes what nobody can commit any more.
- Checkpoints: `coordinator_link` joins the coordinator to the job, `final_checkpoint` and
  `savepoint_follow_up` ask for checkpoints that must not wait for the next period.
- Operators in the JobMaster: `job_operators`, and `event_link` for their events.
- Users' requests and what became of them: `stop_request`, `rescale_request`, `rescale_history`,
  `scheduler_statistics`.

Imports `checkpoint` and what lies below; never `task`.
"""
