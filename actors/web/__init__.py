"""`penstock ui`: shows jobs in a browser and over REST.

- The server: `server` finds jobs and carries out users' requests. Its paths are in `routes`; `application`
  serves them. `openapi` describes them for programs. `access` checks permissions.
- Its data: a `job_watcher` polls the JobMaster of one job, for all browsers together, and reads the job's
  log. `samples` holds the job's time series and the trend of its lag.
- Its answers: `answers` makes them from a `JobReport`; `answer_types` declares their types. `inspections` are
  computed on request.

The server is a process of its own: it outlives JobMasters, and shares no interpreter with them. May import
`client` and everything below.
"""
