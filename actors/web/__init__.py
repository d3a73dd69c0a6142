"""`penstock ui`: jobs in a browser, and the same over REST.

- The server: `server` finds jobs and carries out what users ask of them. Its paths are in `look_routes` and
  `change_routes`. `openapi` describes them for programs. `access` decides who may ask.
- What it knows: a `job_watcher` asks the JobMaster of one job, for all browsers together. It has the
  job's log, too. `samples` are the job's curves and its trend.
- What it answers: `answers` are made of a `JobReport`; `answer_types` are their forms. `saved_state` and
  `flame_graph` are worked out on request.

It is a process of its own: it outlives JobMasters, and shares no interpreter with them. May import `client`
and everything below.
"""
