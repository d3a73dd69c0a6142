"""Checkpointing, one idea a folder.

- `coordinator`: triggers, pending checkpoints, completion; runs in the JobMaster.
- `store`: completed checkpoints, their retention, and how snapshots are opened again.
- `log`: the numbered log in the checkpoint storage that decides.
- `hooks`: master hooks.
- `operator_coordinators`: operators' parts in the JobMaster, and the event valve.
- `channel_state`: writes data in flight.
- `subtask`: the subtask's side of a checkpoint.

Imports `restore`, `network` and what lies below; never `task` or `job`.
"""
