"""Parts of a checkpoint: values, file formats and paths.

- `handles`: handles of state, by operator and subtask. `ids`: names of subtasks, exchanges and channels.
- `completed_checkpoint`: a completed checkpoint, the restored state of a subtask, the permit to commit.
- `metadata`: the files of a checkpoint. `sealed_file`: checksums. `paths`: names of all files.
- `checkpoint_record`: metrics of subtasks, and checkpoints for display. `plain_values`: dataclasses as JSON.
- `storage`: storages in memory and on disks.

Stored formats have versions: an old snapshot must stay readable. Imports only `record`, `trust`, `ports`,
`error_text` and `errors`.
"""
