"""The `CheckpointCoordinator` of a job, in the JobMaster's thread.

- `coordinator`: triggers, acknowledgements, attempts. Read it first.
- `requests`: the queue of requests, their timers and answers.
- `location`: preparation of a snapshot's location, and the folders that users name.
- `plan`: the subtasks of a checkpoint.
- `starts`: the start of a checkpoint, with operator coordinators and master hooks.
- `pending_checkpoint`: one running checkpoint and its acknowledgements.
- `completion`: metadata, record, and notification of a completed checkpoint.
- `operator_states`: the state of a completed checkpoint, including that of finished subtasks.
- `aborts`: aborted checkpoints.
- `failures`: the decision whether failed checkpoints fail the job.
- `parts`: the collaborators shared by starts, completions and aborts.
- `files`: files of completed checkpoints, and deletion.
- `history`: checkpoints for display.

Imports the other modules of `checkpoint`; none of them imports it.
"""
