"""Checkpointing.

- `coordinator/`: triggers, pending checkpoints, completion; runs in the JobMaster.
- `store/`: completed checkpoints, their retention, and how snapshots are opened again.
- `log/`: the numbered log in the checkpoint storage that decides.
- `operator_coordinators/`: operators' parts in the JobMaster, and the event valve.
- `master_hooks`: users' code in the JobMaster that takes part in checkpoints.
- `subtask_checkpoint_coordinator` and `operator_snapshot`: the subtask's side of a checkpoint.
- `channel_state_writer` and `channel_state_file`: data in flight.

Imports `restore`, `network` and what lies below; never `task` or `job`.
"""
