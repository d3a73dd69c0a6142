"""`penstock ui`: jobs in a browser, and the same over REST.

- The server: `server`, with its paths in `routes` and their description for programs in `openapi`. `access`
  says who may ask and from where.
- What it knows: `job_directory` finds jobs. A `job_watcher` asks the JobMaster of one, for all browsers
  together. `samples` are its curves, `known_checkpoints` its checkpoints, `job_log` its log.
- What it answers: `answers` are made of a `JobReport`, `lag_trend` of the samples. `rescale_preview`,
  `saved_state` and `flame_graph` are worked out on request. `flink_names` has Flink's words, and
  `report_forms` and `answer_types` the forms for `openapi`.
- `triggers` carry out what a user asks a job to do.

It is a process of its own: it outlives JobMasters, and shares no interpreter with them. May import `client`
and everything below.
"""
