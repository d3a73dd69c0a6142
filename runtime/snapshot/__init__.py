"""Parts of a checkpoint: values, file formats and paths. Nothing here decides.

- `handles`: handles of state, by operator and subtask. `ids`: names of subtasks, exchanges and channels.
- `completed_checkpoint`: the restored state of a job and its subtasks, and the permit of sinks to commit.
- `metadata`: the files of a checkpoint. `sealed_file`: checksums. `paths`: names of all files.
- `checkpoint_record`: measurements of subtasks, and checkpoints for display.
- `storage`: storages in memory and on disks, and their counters.

Stored formats have versions: an old snapshot must stay readable. Imports `record`, `errors` and `ports`.
"""
