"""`penstock ui`: jobs in a browser, and the same over REST.

- The server: `server` finds jobs and carries out what users ask of them. Its paths are in `look_routes`,
  `change_routes` and `event_routes`. `openapi` describes them for programs. `access` decides who may ask.
- What it knows: a `job_watcher` asks the JobMaster of one job, for all browsers together. `samples` are the
  job's curves and its trend, `job_log` its log.
- What it answers: `answers` are made of a `JobReport`; `answer_types` are their forms. `saved_state` and
  `flame_graph` are worked out on request.

It is a process of its own: it outlives JobMasters, and shares no interpreter with them. May import `client`
and everything below.
"""
