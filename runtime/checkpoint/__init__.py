"""Checkpointing.

- `coordinator/`: triggers, pending checkpoints, completion; runs in the JobMaster.
- `completed_store`: completed checkpoints and their shared files.
- `recovery`: the snapshot that a job starts from, and files to sweep.
- `log/`: the numbered log of all durable decisions.
- `operator_coordinators/`: operators' parts in the JobMaster, and the event valve.
- `master_hooks`: users' code in the JobMaster that takes part in checkpoints.
- `subtask_checkpoint_coordinator` and `operator_snapshot`: the subtask's part of a checkpoint.
- `channel_state_writer`: in-flight data.

Imports `restore`, `network` and lower floors; never `task` or `job`.
"""
