"""A subtask's side of a checkpoint.

* `subtask_checkpoint_coordinator`: the steps of one checkpoint, in the task's thread.
* `ports`: the state and the outputs that it drives, and where its answers go.
* `operator_snapshot`: the two parts of a snapshot; the second one runs beside the task.
* `statistics`: its counters.

Imports `channel_state` and what lies below.
"""
