"""A subtask: a step function over its input, operator chain and outputs. It runs in one thread.

* `subtask` is the step function. `build` makes it from a `descriptor`; `describe_tasks` makes an attempt's
  descriptors.
* Input: `task_input`. Work: `work_in_progress`, `task_time`, `outputs`. `output_samples` shows users
  records that flow.
* Checkpoints: `subtask_checkpoints` (describes the path of a barrier), `channel_restore`.
* The end: `end_of_input`. Counters: `statistics`.

Imports `barrier`, `checkpoint`, `network` and lower folders, never `job`.
"""
