"""One subtask: a step function over its mailbox, input, operator chain and outputs. It runs in one thread.

* `subtask` steps. `build` makes one from its `descriptor` and puts its `subtask_parts` together.
* `gateway`: its port to the network and the JobMaster. `describe_tasks`: the descriptors of an attempt.
* Input: `task_input` is the port; `network_input`, `source_input` and `ends_only_input` implement it.
* Work: `work_in_progress` with `slicing`; `event_time`; `operator_mail`; `timers`; `outputs`.
* Checkpoints: `task_checkpoints` (begins with the way of a barrier), `requested_checkpoints`,
  `subtask_state`, `snapshot_files`, `channel_restore`.
* The end: `end_of_input`, `closing`.
* Accounts: `statistics`, `time_account`.

Imports `barrier`, `checkpoint`, `network` and what lies below, and never `job`.
"""
