"""One subtask: a step function over its mailbox, input, operator chain and outputs. It runs in one thread.

* `subtask` steps. `build` makes one from its `descriptor` and puts its `subtask_parts` together.
* `describe_tasks` makes the descriptors of an attempt.
* Input: `task_input`. Work: `work_in_progress` with `slicing`; `coordinator_mail`; `task_time`; `outputs`.
* Checkpoints: `requested_checkpoints` (describes the way of a barrier), `channel_restore`.
* The end: `end_of_input`, `closing`. Counters: `statistics`.

Imports `barrier`, `checkpoint`, `network` and what lies below, and never `job`.
"""
